//! What programs tell their terminal about themselves, besides what they draw: OSC 7501 (`state=working`), Auggie's
//! OSC 7777 (`idle`), and the title (OSC 0 and 2).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    Idle,
    Working,
    Done,
    Blocked {
        /// `permission`, `question`, `auth`.
        kind: Option<String>,
        message: Option<String>,
    },
    Failed,
    Title(String),
}

/// Finds the sequences in what a program writes, however it is cut into pieces.
#[derive(Debug, Clone, Default)]
pub struct Scanner {
    state: State,
    text: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    Escape,
    Inside,
    /// An escape within a sequence: its end, if a backslash follows.
    Ending,
    /// One that is too long to mean anything to us.
    Skipping,
    SkippingEscape,
}

const MOST: usize = 4096;

impl Scanner {
    #[expect(clippy::match_same_arms, reason = "one arm for each edge")]
    pub fn scan(&mut self, bytes: &[u8]) -> Vec<Signal> {
        let mut found = Vec::new();
        for &byte in bytes {
            self.state = match (self.state, byte) {
                (State::Ground | State::Escape | State::Ending, 0x1b) => State::Escape,
                (State::Ground, _) => State::Ground,
                (State::Escape, b']') => {
                    self.text.clear();
                    State::Inside
                }
                (State::Escape, _) => State::Ground,
                (State::Inside, 0x07) | (State::Ending, b'\\') => {
                    found.extend(read(&self.text));
                    State::Ground
                }
                (State::Inside, 0x1b) => State::Ending,
                // Cancelled.
                (State::Inside | State::Skipping, 0x18 | 0x1a) => State::Ground,
                (State::Inside, _) if self.text.len() >= MOST => State::Skipping,
                (State::Inside, _) => {
                    self.text.push(byte);
                    State::Inside
                }
                (State::Ending, b']') => {
                    self.text.clear();
                    State::Inside
                }
                (State::Ending, _) => State::Ground,
                (State::Skipping, 0x07) | (State::SkippingEscape, b'\\') => State::Ground,
                (State::Skipping, 0x1b) => State::SkippingEscape,
                (State::Skipping | State::SkippingEscape, _) => State::Skipping,
            };
        }
        found
    }
}

fn read(text: &[u8]) -> Option<Signal> {
    let text = std::str::from_utf8(text).ok()?;
    let (code, rest) = text.split_once(';')?;
    match code {
        "7501" => status(rest),
        "7777" => (rest == "idle").then_some(Signal::Idle),
        "0" | "2" => Some(Signal::Title(rest.trim().to_owned())),
        _ => None,
    }
}

fn status(text: &str) -> Option<Signal> {
    let field = |name: &str| text.split(':').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    match field("state")? {
        "idle" | "clear" => Some(Signal::Idle),
        "working" => Some(Signal::Working),
        "done" => Some(Signal::Done),
        "error" => Some(Signal::Failed),
        "blocked" => {
            let message = field("msg").and_then(|base64| STANDARD.decode(base64).ok());
            let message = message.and_then(|bytes| String::from_utf8(bytes).ok());
            Some(Signal::Blocked { kind: field("kind").map(str::to_owned), message })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scan(bytes: &[u8]) -> Vec<Signal> {
        Scanner::default().scan(bytes)
    }

    #[test]
    fn what_agents_send_is_understood() {
        let blocked = |kind: &str, message: Option<&str>| Signal::Blocked {
            kind: Some(kind.to_owned()),
            message: message.map(str::to_owned),
        };
        let cases: [(&[u8], Vec<Signal>); 11] = [
            (b"\x1b]7501;state=idle:app=codex\x07", vec![Signal::Idle]),
            (b"x\x1b]7501;state=working:app=codex\x1b\\y", vec![Signal::Working]),
            (b"\x1b]7501;state=done\x07", vec![Signal::Done]),
            (b"\x1b]7501;state=blocked:app=codex:kind=permission\x07", vec![blocked("permission", None)]),
            (
                b"\x1b]7501;state=blocked:kind=permission:msg=YXBwcm92ZSBCYXNo\x07",
                vec![blocked("permission", Some("approve Bash"))],
            ),
            (b"\x1b]7501;?\x07", vec![]),
            (b"\x1b]7777;idle\x07", vec![Signal::Idle]),
            (b"\x1b]0;  Ready (p4)   \x07", vec![Signal::Title("Ready (p4)".to_owned())]),
            (b"\x1b]8;;http://x\x07link\x1b]8;;\x07", vec![]),
            (b"\x1b]7501;state=odd\x07\x1b]7501;nothing\x07\x1b]7501\x07", vec![]),
            (b"\x1b[1m\x1b]7501;state=idle\x18\x1b]7501;state=error\x1b\\", vec![Signal::Failed]),
        ];
        for (bytes, signals) in cases {
            assert_eq!(scan(bytes), signals, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn one_that_never_ends_costs_little_and_hides_nothing_behind_its_end() {
        let mut long = b"\x1b]0;".to_vec();
        long.extend(vec![b'a'; 1 << 20]);
        let mut scanner = Scanner::default();
        assert!(scanner.scan(&long).is_empty());
        assert!(scanner.text.len() <= MOST);
        assert_eq!(scanner.scan(b"\x07\x1b]7777;idle\x07"), [Signal::Idle]);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(bytes in "(\x1b\\]7501;state=(idle|working)\x07|\x1b\\]0;[a-z]{0,9}\x1b\\\\|[a-z\x1b\\]\x07;]{0,5}){0,12}", at in 0usize..200) {
            let bytes = bytes.as_bytes();
            let at = at.min(bytes.len());
            let mut scanner = Scanner::default();
            let mut found = scanner.scan(&bytes[..at]);
            found.extend(scanner.scan(&bytes[at..]));
            prop_assert_eq!(found, scan(bytes));
        }

        #[test]
        fn garbage_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
            scan(&bytes);
        }
    }
}
