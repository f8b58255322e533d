//! People at a shell's terminal. Each gets the screen as it is, then what changes, as fast as they take it: one whose window
//! has the terminal's size gets the very bytes, one with a larger window a picture of the smaller screen in its corner.
//! One who falls far behind is not given what was missed, but the screen anew.

use crate::conn::Conn;
use crate::host::{Host, What, now};
use crate::shell::{Display, Shell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use stead_model::frame::{Chunk, Stream};
use stead_model::proto::{Attach, Detached, Event, Reply, Size};
use stead_term::screen::Frame;

/// Between two pictures for one person.
const FRAME: Duration = Duration::from_millis(30);

/// The most that is put into one frame of the protocol.
const MOST: usize = 32 << 10;

#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) connection: u32,
    pub(crate) request: u32,
    pub(crate) size: Size,
    /// May go below zero by one piece.
    pub(crate) credit: i64,
    view: View,
    seq: u64,
    sent: u64,
    /// Things to be told besides the screen, in order.
    pub(crate) events: Vec<Event>,
    pub(crate) over: Option<Detached>,
}

#[derive(Debug)]
enum View {
    /// Is to begin anew.
    Fresh,
    /// Gets the bytes from this place on.
    Bytes(u64),
    /// Has this picture.
    Picture(Box<Frame>, Instant),
}

impl Attached {
    pub(crate) fn new(from: (u32, u32), attach: &Attach) -> Self {
        Self {
            connection: from.0,
            request: from.1,
            size: attach.size.clamped(),
            credit: i64::try_from(attach.credit).unwrap_or(i64::MAX),
            view: View::Fresh,
            seq: 0,
            sent: 0,
            events: Vec::new(),
            over: None,
        }
    }

    pub(crate) fn begin_anew(&mut self) {
        self.view = View::Fresh;
    }

    /// Sends what there is; whether its connection had no room for all.
    fn pump(&mut self, display: &mut Display, size: Size, conn: &mut Conn) -> Sent {
        if conn.is_full() {
            return Sent::Held;
        }
        for event in self.events.drain(..) {
            conn.event(self.request, &event);
        }
        loop {
            if conn.is_full() {
                return Sent::Held;
            }
            if self.credit <= 0 {
                return Sent::All;
            }
            match &mut self.view {
                View::Fresh if self.size == size => {
                    let Some((bytes, place)) = display.beginning() else { return Sent::All };
                    self.view = View::Bytes(place);
                    self.send(conn, bytes);
                }
                View::Fresh => {
                    let Some(frame) = display.frame() else { return Sent::All };
                    let bytes = frame.since(None);
                    self.view = View::Picture(Box::new(frame), Instant::now());
                    self.send(conn, bytes);
                }
                View::Bytes(place) => match display.after(*place, MOST) {
                    None => self.view = View::Fresh,
                    Some([]) => return Sent::All,
                    Some(bytes) => {
                        *place += bytes.len() as u64;
                        let bytes = bytes.to_vec();
                        self.send(conn, bytes);
                    }
                },
                View::Picture(before, at) => {
                    if at.elapsed() < FRAME {
                        return Sent::Later(FRAME.saturating_sub(at.elapsed()));
                    }
                    let Some(frame) = display.frame() else { return Sent::All };
                    let change = frame.since(Some(before));
                    if change.is_empty() {
                        return Sent::All;
                    }
                    self.view = View::Picture(Box::new(frame), Instant::now());
                    self.send(conn, change);
                }
            }
        }
    }

    fn send(&mut self, conn: &mut Conn, bytes: Vec<u8>) {
        let length = bytes.len() as u64;
        self.seq += 1;
        let (seq, offset) = (self.seq, self.sent);
        conn.data(self.request, &Chunk { seq, stream: Stream::Stdout, late: false, offset, at: now(), bytes });
        self.sent += length;
        self.credit -= i64::try_from(length).unwrap_or(i64::MAX);
    }
}

enum Sent {
    All,
    Held,
    Later(Duration),
}

/// Shows a shell's screen to those who look at it. Returns the connections that had no room for more.
pub(crate) fn pump(shell: &mut Shell, host: &mut Host, connections: &mut BTreeMap<u32, Conn>) -> Vec<u32> {
    let mut held = Vec::new();
    let size = shell.tty.size;
    let mut people = std::mem::take(&mut shell.tty.people);
    let mut later: Option<Duration> = None;
    people.retain_mut(|person| {
        let Some(conn) = connections.get_mut(&person.connection) else { return false };
        if let Some(display) = shell.tty.display.as_mut() {
            match person.pump(display, size, conn) {
                Sent::All => {}
                Sent::Held => held.push(person.connection),
                Sent::Later(wait) => later = Some(later.map_or(wait, |before| before.min(wait))),
            }
        }
        match person.over {
            Some(why) => {
                conn.reply(person.request, &Reply::Detached(why));
                false
            }
            None => true,
        }
    });
    shell.tty.people = people;
    if let Some(wait) = later.filter(|_| !shell.tty.drawing) {
        shell.tty.drawing = true;
        host.after(wait, shell.key, What::Draw);
    }
    held
}
