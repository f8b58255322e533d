//! The loop: wait, let each owner do its step, tell who wants to hear, then do what nobody waits for.

use crate::attach;
use crate::conn::{Conn, Input, Room};
use crate::dir::Dir;
use crate::follow;
use crate::heir::{self, Heir};
use crate::host::{Host, Settings, Source, Timer, What};
use crate::keeper::Role;
use crate::kills::{self, Kills};
use crate::link::Link;
use crate::retain;
use crate::shell::Shell;
use crate::start;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::Reply;
use stead_term::fifo::Probe;
use stead_term::poll::{Interest, Poller, Ready};
use stead_term::scarce;

/// Connections beyond one for each shell: servers that only read, command lines, people. More than this is a mistake or
/// an attack.
const SPARE_CONNECTIONS: usize = 256;

/// Connections past the limit that are kept just long enough to be told so.
const REFUSALS: usize = 64;

/// How long nobody is let in when there is no descriptor for it.
const DEAF: Duration = Duration::from_millis(100);

/// Descriptors reckoned for one shell: with a running command and a connection it takes 14, with a person at its terminal
/// and background children that hold older output some more.
const DESCRIPTORS_OF_A_SHELL: u64 = 20;

/// The longest wait between two keepers that could not take over.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// In the keeper: a steward has come to serve, so that whatever shells have is there too.
const KEPT: &str = "kept";

#[derive(Debug)]
pub(crate) struct Steward {
    pub(crate) host: Host,
    pub(crate) epoch: u64,
    pub(crate) shells: BTreeMap<u32, Shell>,
    pub(crate) names: HashMap<ShellId, u32>,
    pub(crate) ids: HashMap<CommandId, (u32, u64)>,
    pub(crate) connections: BTreeMap<u32, Conn>,
    pub(crate) last_key: u32,
    listener: UnixListener,
    lock: Option<OwnedFd>,
    next_connection: u32,
    /// Shells with news for a connection that has no room for it.
    held: BTreeSet<(u32, u32)>,
    /// A descriptor for a moment in which there is no other.
    spare: Option<OwnedFd>,
    keeper: Role,
    keeper_is_dead: bool,
    stopping: bool,
}

/// Runs a steward over `dir` until it is told to end; `link` is the keeper's.
pub(crate) fn run(dir: Dir, settings: Settings, keeper: Role, heir: Option<Role>, link: OwnedFd) -> io::Result<()> {
    let (link, mut store) = Link::receive(link)?;
    let epoch = dir.next_epoch();
    let ready = store.remove("ready");
    let lock = store.remove("lock");
    let counter = Kills::new(store.remove(kills::COUNTER));
    let poller = Poller::new()?;
    let listener = if let Some(kept) = store.remove("listen") {
        UnixListener::from(kept)
    } else {
        let listener = dir.bind()?;
        link.park("listen", &listener)?;
        listener
    };
    listener.set_nonblocking(true)?;
    poller.add(&listener, Source::Listener.token(), Interest::Read)?;
    poller.add(link.socket(), Source::Keeper.token(), Interest::Read)?;
    let open_files = stead_term::spawn::raise_open_files()?;
    let heir = Heir::adopt(heir, &poller, &mut store)?;
    // Held until what they kept alive has been moved.
    let _settled = if heir.is_there() { Vec::new() } else { heir::settle(&dir)? };
    let mut host = Host::new(dir, settings, poller, Probe::new()?, link, heir, open_files, counter);
    host.kept = store.remove(KEPT).is_some();
    let mut steward = Steward {
        host,
        epoch,
        listener,
        lock,
        keeper,
        keeper_is_dead: false,
        shells: BTreeMap::new(),
        names: HashMap::new(),
        ids: HashMap::new(),
        connections: BTreeMap::new(),
        last_key: 0,
        next_connection: 0,
        held: BTreeSet::new(),
        spare: spare_descriptor().ok(),
        stopping: false,
    };
    steward.recover(&mut store)?;
    // Whatever is left belongs to a shell that never came to be.
    for name in store.keys() {
        steward.host.link.unpark(name);
    }
    steward.host.link.park(KEPT, &steward.listener)?;
    steward.host.link.serving();
    if let Some(ready) = ready {
        // In this order: whoever waits takes the end of the pipe without a byte for the end of us and our keeper.
        let _ = rustix::io::write(&ready, b"1");
        steward.host.link.unpark("ready");
    }
    steward.run()
}

fn spare_descriptor() -> io::Result<OwnedFd> {
    std::fs::File::open("/dev/null").map(OwnedFd::from)
}

impl Steward {
    fn recover(&mut self, store: &mut BTreeMap<String, OwnedFd>) -> io::Result<()> {
        let mut unread = Vec::new();
        for key in self.host.dir.journals()? {
            self.last_key = self.last_key.max(key);
            match Shell::recover(&mut self.host, key, store) {
                Ok(Some(shell)) => {
                    self.names.insert(shell.open.shell.clone(), key);
                    self.ids.extend(shell.commands.iter().map(|(number, entry)| (entry.id.clone(), (key, *number))));
                    self.shells.insert(key, shell);
                }
                Ok(None) => std::fs::remove_dir_all(self.host.dir.journal(key))?,
                // What is used up now is free again some time. Who goes on without a shell gives its process away, so we
                // end, and the keeper tries again.
                Err(error) if error.is_passing() => return Err(io::Error::other(error)),
                // One journal that can't be read must not take the others with it. It stays where it is.
                Err(error) => {
                    note!("steward: journal {key}: {error}");
                    unread.push(key);
                }
            }
        }
        let shells = &self.shells;
        crate::memory::sweep(&self.host.dir, |key| shells.contains_key(&key) || unread.contains(&key));
        self.host.dir.sweep_runs(|key| shells.contains_key(&key) || unread.contains(&key))
    }

    fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        while !self.stopping {
            self.host.poller.wait(self.host.next_wait(), &mut ready)?;
            for event in &ready {
                self.dispatch(*event)?;
            }
            for (key, pair) in std::mem::take(&mut self.host.unread) {
                self.with_shell(key, |shell, host| shell.output_ready(host, pair));
            }
            for key in std::mem::take(&mut self.host.feeding) {
                self.with_shell(key, Shell::feed_screen);
            }
            let round = Instant::now();
            while let Some(timer) = self.host.due(round) {
                self.ring(timer);
            }
            for key in std::mem::take(&mut self.host.prompts) {
                self.with_shell(key, Shell::update_prompt);
            }
            self.ids.extend(self.host.named.drain(..));
            self.tell();
            self.do_chores();
            if self.keeper_is_dead && !self.stopping {
                self.replace_keeper();
                return Ok(());
            }
        }
        Ok(())
    }

    fn with_shell(&mut self, key: u32, step: impl FnOnce(&mut Shell, &mut Host)) {
        if let Some(shell) = self.shells.get_mut(&key) {
            step(shell, &mut self.host);
        }
    }

    fn dispatch(&mut self, event: Ready) -> io::Result<()> {
        match Source::from_token(event.token) {
            Some(Source::Heir) => self.heir_died(),
            Some(Source::Keeper) => {
                self.keeper_spoke();
                Ok(())
            }
            Some(Source::Listener) => {
                self.welcome();
                Ok(())
            }
            Some(Source::Connection(id)) => {
                self.connection_ready(id, event);
                Ok(())
            }
            Some(Source::Replies(key)) => {
                self.with_shell(key, Shell::replies_ready);
                Ok(())
            }
            Some(Source::Terminal(key)) => {
                self.with_shell(key, Shell::terminal_ready);
                Ok(())
            }
            Some(Source::Process(key)) => {
                self.with_shell(key, Shell::process_gone);
                Ok(())
            }
            Some(Source::Output(key, pair)) => {
                self.with_shell(key, |shell, host| shell.output_ready(host, pair));
                Ok(())
            }
            Some(Source::Input(key)) => {
                self.with_shell(key, Shell::input_ready);
                Ok(())
            }
            Some(Source::Prompt(key)) => {
                self.with_shell(key, Shell::prompt_ready);
                Ok(())
            }
            Some(Source::PromptSaid(key)) => {
                self.with_shell(key, Shell::prompt_said);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn ring(&mut self, timer: Timer) {
        if timer.what == What::Listen {
            return self.listen_again();
        }
        self.with_shell(timer.shell, |shell, host| match timer.what {
            What::Announce(number) => {
                if shell.is_quick(number) {
                    host.news.insert(timer.shell);
                }
            }
            What::Deadline(number) => shell.deadline(host, number),
            What::Escalate(number) => shell.escalate(host, number),
            What::Watch(number) => shell.watch(host, number),
            What::Retry => shell.retry(host),
            What::Unreaped(incarnation) => shell.unreaped(host, incarnation),
            What::Respawn => shell.respawn(host),
            What::Input => shell.input_ready(host),
            What::Env(number) => shell.env_overdue(host, number),
            What::Keys => shell.pass_keys(host),
            What::Draw => {
                shell.tty.drawing = false;
                host.news.insert(timer.shell);
            }
            What::Redraw => shell.redraw_prompt(host),
            What::Prompt => shell.update_prompt(host),
            What::Sum => shell.sum(host),
            What::Gathered(pair) => shell.output_gathered(host, pair),
            What::Listen => {}
        });
    }

    /// The keeper told of children that ended, or is dead itself.
    fn keeper_spoke(&mut self) {
        if !self.host.link.poll() {
            self.keeper_is_dead = true;
            return;
        }
        let Self { shells, host, .. } = self;
        for shell in shells.values_mut().filter(|shell| shell.is_gone()) {
            shell.process_gone(host);
        }
    }

    /// Starts a new keeper, gives it everything, and makes way: it starts the next steward as its own child, so that
    /// shells to come are its to reap. The same way as a crash, but nobody has to notice first.
    ///
    /// From the moment in which the new keeper has everything, journals and pipes are the next steward's: nothing may be
    /// done here any more but this. We hold all of it until the next steward serves, for the new keeper may be killed,
    /// too; then there is another one.
    fn replace_keeper(&self) {
        note!("steward: the keeper is dead; making a new one");
        let mut wait = Duration::ZERO;
        loop {
            match self.hand_over() {
                Ok(()) => return,
                Err(error) => note!("steward: can't hand over to a new keeper: {error}"),
            }
            stead_term::poll::nap(wait);
            wait = (wait * 2).clamp(Duration::from_millis(5), LONGEST_WAIT);
        }
    }

    /// Returns when the next steward serves.
    fn hand_over(&self) -> io::Result<()> {
        let (mut serving, theirs) = io::pipe()?;
        let mut things: Vec<(String, std::os::fd::BorrowedFd<'_>)> =
            vec![("listen".into(), self.listener.as_fd()), (KEPT.into(), self.listener.as_fd())];
        things.push(("ready".into(), theirs.as_fd()));
        things.extend(self.lock.as_ref().map(|lock| ("lock".into(), lock.as_fd())));
        things.extend(self.host.heir.link());
        things.extend(self.host.kills.counter());
        for shell in self.shells.values() {
            shell.descriptors(&mut things);
        }
        start::keeper(&self.host.dir, &self.keeper, &things, Some(self.host.open_files))?;
        drop(theirs);
        serving.read_exact(&mut [0])
    }

    /// The heir never speaks: an event on its link is its end.
    fn heir_died(&mut self) -> io::Result<()> {
        self.host.heir.is_dead(&self.host.poller);
        let mut pipes = Vec::new();
        for shell in self.shells.values() {
            shell.output_pipes(&mut pipes);
        }
        let Host { heir, dir, poller, link, open_files, .. } = &mut self.host;
        heir.start(dir, poller, link, *open_files, &pipes)
    }

    /// How many shells may be open: as many as is set, and as the limit of open files has room for. Every one of them can
    /// then be connected to and read.
    pub(crate) fn shell_limit(&self) -> usize {
        let descriptors = self.host.open_files.hard().saturating_sub((SPARE_CONNECTIONS + REFUSALS) as u64);
        let room = usize::try_from(descriptors / DESCRIPTORS_OF_A_SHELL).unwrap_or(usize::MAX);
        self.host.settings.shell_limit.min(room).max(1)
    }

    pub(crate) fn connection_limit(&self) -> usize {
        self.shell_limit() + SPARE_CONNECTIONS
    }

    fn welcome(&mut self) {
        loop {
            let (stream, room) = match self.listener.accept() {
                Ok((stream, _)) => (stream, Room::Free),
                Err(error) if scarce::is_passing(&error) && error.kind() != io::ErrorKind::WouldBlock => {
                    let Some(stream) = self.accept_to_refuse() else { return self.listen_later(&error) };
                    (stream, Room::Lent)
                }
                Err(_) => return,
            };
            if self.connections.len() >= self.connection_limit() + REFUSALS {
                note!("steward: {} connections are open; refused one more", self.connections.len());
                continue;
            }
            self.next_connection = (self.next_connection + 1) & 0xff_ffff;
            let id = self.next_connection;
            match Conn::new(&self.host, id, stream, room) {
                Ok(conn) => {
                    self.connections.insert(id, conn);
                }
                Err(error) => note!("steward: a connection failed: {error}"),
            }
        }
    }

    /// With no descriptor to spare, the one that is kept for this is lent to somebody just long enough to be told so.
    fn accept_to_refuse(&mut self) -> Option<UnixStream> {
        drop(self.spare.take()?);
        self.listener.accept().ok().map(|(stream, _)| stream)
    }

    /// Who can't be let in would wake us again at once.
    fn listen_later(&mut self, error: &io::Error) {
        note!("steward: can't accept a connection: {error}");
        let _ = self.host.poller.remove(&self.listener);
        self.host.after(DEAF, 0, What::Listen);
    }

    fn listen_again(&mut self) {
        // Somebody has had the one that is lent for long enough, and says nothing.
        let lent = self.connections.iter().filter(|(_, conn)| conn.room == Room::Lent).map(|(id, _)| *id);
        for id in lent.collect::<Vec<_>>() {
            self.hang_up(id);
        }
        self.spare = self.spare.take().or_else(|| spare_descriptor().ok());
        if let Err(error) = self.host.poller.add(&self.listener, Source::Listener.token(), Interest::Read) {
            self.listen_later(&error);
        }
    }

    fn connection_ready(&mut self, id: u32, event: Ready) {
        if event.writable && self.connections.get_mut(&id).is_some_and(|conn| !conn.flush(&self.host)) {
            return self.hang_up(id);
        }
        if !event.readable {
            return;
        }
        let Some(conn) = self.connections.get_mut(&id) else { return };
        match conn.receive() {
            Input::Over => self.hang_up(id),
            Input::Frames(frames) => {
                for frame in frames {
                    if !self.handle(id, &frame) {
                        if let Some(conn) = self.connections.get_mut(&id) {
                            conn.flush(&self.host);
                        }
                        return self.hang_up(id);
                    }
                }
            }
        }
    }

    /// The client is gone; what it asked for goes on.
    fn hang_up(&mut self, id: u32) {
        if let Some(conn) = self.connections.remove(&id) {
            conn.close(&self.host);
        }
        self.spare = self.spare.take().or_else(|| spare_descriptor().ok());
        for shell in self.shells.values_mut() {
            shell.followers.retain(|follower| follower.connection != id);
            shell.hung_up(&mut self.host, id);
        }
    }

    fn tell(&mut self) {
        for key in std::mem::take(&mut self.host.news) {
            if let Some(shell) = self.shells.get_mut(&key) {
                let mut full = follow::pump(shell, &mut self.connections);
                full.extend(attach::pump(shell, &mut self.host, &mut self.connections));
                self.held.extend(full.into_iter().map(|connection| (key, connection)));
            }
        }
        let with_output = self.connections.iter_mut().filter(|(_, conn)| conn.has_output());
        let gone: Vec<_> = with_output.filter_map(|(id, conn)| (!conn.flush(&self.host)).then_some(*id)).collect();
        for id in gone {
            self.hang_up(id);
        }
        // Whichever turn empties a connection, it is this one or a later one that no news of the shell leads to.
        let Self { held, connections, host, .. } = self;
        held.retain(|(key, connection)| {
            let Some(conn) = connections.get(connection) else { return false };
            if !conn.is_full() {
                host.news.insert(*key);
            }
            conn.is_full()
        });
    }

    fn do_chores(&mut self) {
        let chores = std::mem::take(&mut self.host.chores);
        if chores.is_empty() {
            return;
        }
        for key in chores {
            self.with_shell(key, Shell::chores);
        }
        retain::enforce(&self.host, &mut self.shells, &mut self.ids);
    }

    /// Ends all shells, then us; the keeper follows.
    pub(crate) fn shut_down(&mut self, from: (u32, u32)) {
        for shell in self.shells.values_mut() {
            if let Err(fault) = shell.stop(&mut self.host) {
                note!("steward: shell {}: {fault}", shell.open.shell);
            }
        }
        let _ = std::fs::remove_file(self.host.dir.root().join("sock"));
        self.host.link.stop();
        if let Some(conn) = self.connections.get_mut(&from.0) {
            conn.reply(from.1, &Reply::Done);
            conn.flush(&self.host);
        }
        self.stopping = true;
    }
}
