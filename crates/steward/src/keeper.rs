//! The keeper: a process so small that it has no reason to die. It keeps descriptors under names, starts the steward,
//! starts it again when it dies and hands everything back; and it reaps, because orphans of the steward become its
//! children. It reads no byte that a user wrote.
//!
//! ```text
//! to the keeper:      S name + descriptor   keep this        D name   drop it
//!                     U   I serve           Q   end when I do
//! to the steward:     F name + descriptor   you had this     Z        that was all   R pid, start time, status   a child ended
//! ```

use crate::dir::Dir;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use stead_term::packet::{self, Wait};
use stead_term::spawn::{self, OpenFiles, Reaped};

/// Ended children that a steward which is just being started again has yet to hear of.
const REMEMBERED: usize = 1024;

/// One steward after another that fails to start is tried ever more rarely, down to this.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How to start a steward: this program with these arguments.
#[derive(Debug, Clone)]
pub struct Role {
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

enum Note {
    /// From the steward of this number.
    Packet(u64, Vec<u8>, Option<OwnedFd>),
    /// Its end of the link is closed: it is dead, all it sent has been noted; or it could not be started.
    LinkClosed(u64),
    Reaped(Reaped),
}

/// Runs until told to end. `link` brings the first things to keep: from whoever starts us, or from a steward whose
/// keeper died.
pub fn run(dir: &Dir, steward: &Role, link: OwnedFd) -> io::Result<()> {
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
    let open_files = spawn::raise_open_files()?;
    let mut keeper = Keeper {
        store: BTreeMap::new(),
        reaped: VecDeque::new(),
        stopping: false,
        served: false,
        number: 0,
        open_files,
    };
    loop {
        match packet::receive(&link, Wait::Block)? {
            Some((bytes, fd)) if bytes.first() == Some(&b'S') => keeper.store(&bytes, fd),
            Some((bytes, _)) if bytes.as_slice() == b"Z" => break,
            // Whoever was handing over died half-way: without all descriptors there is nothing to keep.
            Some(_) | None => return Ok(()),
        }
    }
    drop(link);
    let (notes, inbox) = channel();
    let (wake, reaper_wake) = channel();
    {
        let notes = notes.clone();
        std::thread::Builder::new().stack_size(64 << 10).spawn(move || reap(&notes, &reaper_wake))?;
    }
    let mut wait = Duration::ZERO;
    while !keeper.stopping {
        keeper.served = false;
        if let Err(error) = keeper.serve_one(dir, steward, &notes, &inbox, &wake) {
            note!("keeper: can't start a steward: {error}");
        }
        // Somebody removed the directory under us: there is nothing left to keep.
        if keeper.stopping || !dir.root().is_dir() {
            break;
        }
        // One that came to serve and was killed is started again at once, however often.
        wait = if keeper.served { Duration::ZERO } else { (wait * 2).clamp(Duration::from_millis(5), LONGEST_WAIT) };
        keeper.note_until(&inbox, Instant::now() + wait);
    }
    Ok(())
}

struct Keeper {
    store: BTreeMap<Vec<u8>, OwnedFd>,
    reaped: VecDeque<Reaped>,
    stopping: bool,
    /// The present steward has come to serve.
    served: bool,
    /// Of the present steward, or the one that is about to be started.
    number: u64,
    /// What the steward, and its shells, may open: what we were allowed.
    open_files: OpenFiles,
}

impl Keeper {
    /// The life of one steward.
    fn serve_one(
        &mut self,
        dir: &Dir,
        role: &Role,
        notes: &Sender<Note>,
        inbox: &Receiver<Note>,
        wake: &Sender<()>,
    ) -> io::Result<()> {
        let (ours, theirs) = packet::pair()?;
        let log = dir.log_file().map_or_else(|_| Stdio::null(), Stdio::from);
        // Everything that can fail comes before the steward is there: nobody would notice the end of one that we gave up.
        let reader = ours.try_clone()?;
        let packets = notes.clone();
        self.number += 1;
        let number = self.number;
        std::thread::Builder::new().stack_size(64 << 10).spawn(move || listen(number, &reader, &packets))?;
        let pid = spawn::successor(&role.program, &role.arguments, theirs, log, Some(self.open_files))?.id();
        let _ = wake.send(());
        if let Err(error) = self.hand_over(&ours) {
            // It died already; the notes of that are on their way.
            note!("keeper: can't hand over to the steward: {error}");
        }
        let (mut link_open, mut alive) = (true, true);
        // Both, in either order: its last packets, and the fact that it is no more.
        while link_open || alive {
            match inbox.recv() {
                Ok(Note::Packet(from, bytes, fd)) if from == number => self.store(&bytes, fd),
                Ok(Note::LinkClosed(of)) if of == number => link_open = false,
                Ok(Note::Packet(..) | Note::LinkClosed(_)) => {}
                Ok(Note::Reaped(ended)) => {
                    if i64::from(ended.pid) == i64::from(pid) {
                        alive = false;
                    } else {
                        self.remember(ended);
                        // Can't lock up: what the steward sends meanwhile is taken by a thread of its own. A dead
                        // one will be told with everything else when it starts again.
                        let _ = packet::send(&ours, &reaped_packet(ended), None, Wait::Block);
                    }
                }
                Err(_) => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
        Ok(())
    }

    fn hand_over(&self, link: &OwnedFd) -> io::Result<()> {
        for (name, fd) in &self.store {
            packet::send(link, &[b"F", name.as_slice()].concat(), Some(fd.as_fd()), Wait::Block)?;
        }
        for ended in &self.reaped {
            packet::send(link, &reaped_packet(*ended), None, Wait::Block)?;
        }
        packet::send(link, b"Z", None, Wait::Block)
    }

    fn store(&mut self, bytes: &[u8], fd: Option<OwnedFd>) {
        match (bytes.split_first(), fd) {
            (Some((b'S', name)), Some(fd)) => {
                self.store.insert(name.to_vec(), fd);
            }
            (Some((b'D', name)), _) => {
                self.store.remove(name);
            }
            (Some((b'U', _)), _) => self.served = true,
            (Some((b'Q', _)), _) => self.stopping = true,
            _ => {}
        }
    }

    fn remember(&mut self, ended: Reaped) {
        if self.reaped.len() == REMEMBERED {
            self.reaped.pop_front();
        }
        self.reaped.push_back(ended);
    }

    /// Between two stewards there are still children to note.
    fn note_until(&mut self, inbox: &Receiver<Note>, until: Instant) {
        loop {
            match inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Note::Reaped(ended)) => self.remember(ended),
                Ok(Note::Packet(..) | Note::LinkClosed(_)) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

fn reaped_packet(ended: Reaped) -> Vec<u8> {
    let Reaped { pid, start_time, status } = ended;
    [b"R".as_slice(), &pid.to_be_bytes(), &start_time.to_be_bytes(), &status.to_be_bytes()].concat()
}

/// Passes on what a steward sends until it is gone.
fn listen(number: u64, link: &OwnedFd, notes: &Sender<Note>) {
    while let Ok(Some((bytes, fd))) = packet::receive(link, Wait::Block) {
        if notes.send(Note::Packet(number, bytes, fd)).is_err() {
            return;
        }
    }
    let _ = notes.send(Note::LinkClosed(number));
}

/// Waits for children, one after the other, and for the next steward when there are none.
fn reap(notes: &Sender<Note>, wake: &Receiver<()>) {
    loop {
        match spawn::reap_child() {
            Ok(ended) => {
                if notes.send(Note::Reaped(ended)).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => {
                if wake.recv().is_err() {
                    return;
                }
            }
        }
    }
}
