//! Two small readers of what programs write to a terminal.
//!
//! [`Quiet`] leaves out the questions: the screen answers them, and the terminals of the people who look on must not
//! answer them a second time. [`Tracked`] remembers what the emulator keeps to itself and a restore needs.

/// A sequence that is longer than this is passed on as it is: no question is.
const LONGEST: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Ground,
    Escape,
    /// After `ESC [`.
    Csi,
    /// After `ESC ]`, `ESC P` and the like: until BEL or `ESC \`.
    Text,
    /// A text that was too long to be a question: on its way out.
    LongText,
}

/// Passes on everything but questions to the terminal. Holds back at most the beginning of one sequence.
#[derive(Debug, Default)]
pub struct Quiet {
    state: State,
    held: Vec<u8>,
}

impl Quiet {
    pub fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for &byte in bytes {
            self.step(byte, out);
        }
    }

    fn step(&mut self, byte: u8, out: &mut Vec<u8>) {
        match (self.state, byte) {
            // Cancel, substitute: whatever was begun is over.
            (_, 0x18 | 0x1a) => {
                self.let_go(out);
                out.push(byte);
            }
            (State::Ground, 0x1b) => {
                self.held.push(byte);
                self.state = State::Escape;
            }
            // Within a sequence, control characters act at once and change nothing about it.
            (State::Ground, _) | (State::Escape | State::Csi, 0..=0x17 | 0x19 | 0x1c..=0x1f) => out.push(byte),
            (State::Escape, b'[') => self.hold(byte, State::Csi, out),
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => self.hold(byte, State::Text, out),
            // `ESC Z`: what are you?
            (State::Escape, b'Z') => self.drop_held(),
            (State::Escape | State::Csi, 0x1b) => {
                self.let_go(out);
                self.held.push(byte);
                self.state = State::Escape;
            }
            (State::Escape, _) => {
                self.held.push(byte);
                self.let_go(out);
            }
            (State::Csi, 0x40..=0x7e) => {
                self.held.push(byte);
                if is_csi_question(&self.held) { self.drop_held() } else { self.let_go(out) }
            }
            (State::Csi, _) => self.hold(byte, State::Csi, out),
            (State::Text, _) => self.text(byte, out),
            (State::LongText, _) => {
                out.push(byte);
                if byte == 7 || (byte == b'\\' && self.held == [0x1b]) {
                    self.drop_held();
                } else {
                    self.held.clear();
                    if byte == 0x1b {
                        self.held.push(byte);
                    }
                }
            }
        }
    }

    fn text(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.held.push(byte);
        if byte == 7 || self.held.ends_with(b"\x1b\\") {
            if is_text_question(&self.held) { self.drop_held() } else { self.let_go(out) }
        } else if self.held.len() > LONGEST {
            out.append(&mut self.held);
            self.state = State::LongText;
            if byte == 0x1b {
                self.held.push(byte);
            }
        }
    }

    fn hold(&mut self, byte: u8, state: State, out: &mut Vec<u8>) {
        self.held.push(byte);
        self.state = state;
        if self.held.len() > LONGEST {
            self.let_go(out);
        }
    }

    fn let_go(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.held);
        self.state = State::Ground;
    }

    fn drop_held(&mut self) {
        self.held.clear();
        self.state = State::Ground;
    }
}

fn is_csi_question(sequence: &[u8]) -> bool {
    let Some((last, body)) = sequence.get(2..).and_then(<[u8]>::split_last) else { return false };
    let first_number = || {
        let digits: Vec<u8> = body.iter().copied().take_while(u8::is_ascii_digit).collect();
        String::from_utf8_lossy(&digits).parse::<u32>().unwrap_or(0)
    };
    match last {
        // Device attributes, terminal parameters.
        b'c' | b'x' => true,
        // Status and cursor reports; `>` is xterm's own and sets something.
        b'n' => body.first() != Some(&b'>'),
        // DECRQM.
        b'p' => body.last() == Some(&b'$'),
        // XTVERSION.
        b'q' => body.first() == Some(&b'>'),
        // Reports of the window's size, place and title.
        b't' => matches!(first_number(), 11 | 13..=16 | 18..=21),
        // The keyboard protocol in force; what graphics there are.
        b'u' | b'S' => body.first() == Some(&b'?'),
        _ => false,
    }
}

/// `OSC 10 ; ? BEL` and its relatives, DECRQSS (`DCS $ q`) and XTGETTCAP (`DCS + q`).
fn is_text_question(sequence: &[u8]) -> bool {
    let text = sequence.get(2..).unwrap_or_default();
    let text = text.strip_suffix(b"\x07").or_else(|| text.strip_suffix(b"\x1b\\")).unwrap_or(text);
    match sequence.get(1) {
        Some(b']') => text.ends_with(b";?"),
        Some(b'P') => text.starts_with(b"$q") || text.starts_with(b"+q"),
        _ => false,
    }
}

/// The scrolling region and the shift state.
#[derive(Debug)]
pub(super) struct Tracked {
    state: State,
    parameters: Vec<u8>,
    /// First and last row, from 1.
    pub(super) region: Option<(u16, u16)>,
    pub(super) shifted: bool,
    rows: u16,
}

impl Tracked {
    pub(super) fn new(rows: u16) -> Self {
        Self { state: State::Ground, parameters: Vec::new(), region: None, shifted: false, rows }
    }

    pub(super) fn see(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match (self.state, byte) {
                (_, 0x18 | 0x1a) | (State::Text | State::LongText, 7) => self.state = State::Ground,
                (State::Ground | State::Escape | State::Csi, 0x1b) => self.state = State::Escape,
                (State::Ground | State::Escape | State::Csi, 0x0e) => self.shifted = true,
                (State::Ground | State::Escape | State::Csi, 0x0f) => self.shifted = false,
                (State::Ground, _) => {}
                (State::Escape, b'[') => {
                    self.parameters.clear();
                    self.state = State::Csi;
                }
                (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => {
                    self.parameters.clear();
                    self.state = State::Text;
                }
                (State::Escape, byte) => {
                    if byte == b'c' {
                        (self.region, self.shifted) = (None, false);
                    }
                    // What is followed by one more byte (`ESC ( 0`) can't be taken for anything we look for.
                    self.state = State::Ground;
                }
                (State::Csi, 0x40..=0x7e) => {
                    if byte == b'r' {
                        self.set_region();
                    }
                    self.state = State::Ground;
                }
                (State::Csi, _) => {
                    if self.parameters.len() < LONGEST {
                        self.parameters.push(byte);
                    }
                }
                (State::Text | State::LongText, b'\\') if self.parameters == [0x1b] => self.state = State::Ground,
                (State::Text | State::LongText, _) => {
                    self.parameters.clear();
                    self.parameters.push(byte);
                }
            }
        }
    }

    fn set_region(&mut self) {
        let text = String::from_utf8_lossy(&self.parameters);
        let mut numbers = text.split(';').map(|number| if number.is_empty() { Ok(0) } else { number.parse::<u16>() });
        let (Some(Ok(first)), last) = (numbers.next(), numbers.next().unwrap_or(Ok(0))) else { return };
        let Ok(last) = last else { return };
        let (first, last) = (first.max(1), if last == 0 { self.rows } else { last });
        // One that isn't a region changes nothing.
        if first < last {
            self.region = Some((first, last));
        }
    }

    pub(super) fn resized(&mut self, rows: u16) {
        self.rows = rows;
        self.region = None;
    }
}
