//! One shell: its process, its queue, its output, its state. Each step of a command's way is a file:
//!
//! ```text
//! open ─► accept ─► start ─► report ─► finish ─► start the next
//!           │         │        ▲          ▲
//!  [run]    │  [spawn]│ [pair] │ [report] │ [finish]      all: methods of Shell
//!           │         ├► watch ┤          │   a shell that is back without a report
//!           │         └► cancel┴──────────┤   INT, TERM, KILL, or another shell
//!           └────────────────────────────►┘   cancelled in the queue
//! ```

mod cancel;
mod close;
mod display;
mod env;
mod finish;
mod input;
mod note;
mod outputs;
mod pair;
mod private;
mod prompt;
pub(crate) mod recover;
mod report;
mod run;
mod spawn;
mod stored;
mod summing;
mod trigger;
mod tty;
mod watch;

use crate::follow::Follower;
use crate::host::{Host, uptime};
use crate::journal::{Journal, JournalError, LogPos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::{Duration, Instant};
use stead_model::effect::{Context, Effect};
use stead_model::epilogue::Leftovers;
use stead_model::escalate::Escalation;
use stead_model::frame::Stream;
use stead_model::ids::CommandId;
use stead_model::proto::{
    CancelReason, CommandInfo, Ending, Exec, Fault, FaultCode, OpenShell, Reply, ShellInfo, Status, StoredState,
    Summed, Warning,
};
use stead_model::record::{Accepted, Ended, Head, Record, Spawned, StateMark, Sums};
use stead_model::shell::{Dialect, Lines, Overlay, Report, Reports};
use stead_model::state::{Bytes, Capture, ShellState};

pub(crate) use pair::Pair;
pub(crate) use spawn::open_kept as open_private;
pub(crate) use tty::Display;

#[derive(Debug)]
pub(crate) struct Shell {
    /// Names its directories; small, so that paths are short.
    pub(crate) key: u32,
    pub(crate) open: OpenShell,
    program: PathBuf,
    /// Words before the shell's own arguments: `busybox` needs to be told that it is a shell.
    applet: Option<&'static str>,
    pub(crate) dialect: Dialect,
    run: PathBuf,
    pub(crate) journal: Journal,
    pub(crate) commands: BTreeMap<u64, Entry>,
    next_number: u64,
    mark: StateMark,
    state: ShellState,
    trust: stored::Trust,
    context: Context,
    /// A command spoke of `enable`: from here on any word may be a builtin loaded from a file.
    loaded: bool,
    baseline: Option<Capture>,
    incarnation: u64,
    live: Option<Live>,
    /// Shells in a row that died before they were ready.
    stillborn: u32,
    /// One was killed before it was ready, and that was not counted.
    killed_unborn: bool,
    /// Times in a row that none could be started.
    unstarted: u32,
    queue: VecDeque<u64>,
    /// Ends of commands that never ran, which a full disk has kept from being noted.
    unended: Vec<(u64, Ending)>,
    running: Option<Running>,
    pairs: BTreeMap<u64, Pair>,
    spare: Option<u64>,
    next_pair: u64,
    next_query: u64,
    /// Processes and groups that were there before the running command: its cancellation leaves them alone.
    bystanders: BTreeSet<i32>,
    pub(crate) followers: Vec<Follower>,
    /// The terminal, as people see it.
    pub(crate) tty: tty::Tty,
    /// For the next result: something happened between two commands.
    warnings: Vec<Warning>,
    stream_bytes: u64,
    /// There may be bytes in the output files that have no record yet.
    unnoted: bool,
    /// Versions of stored states that the present one replaced.
    obsolete: Vec<u64>,
    unsummed: summing::Unsummed,
    /// Answers to requests that had to wait for a pipe: connection, request, answer.
    pub(crate) outbox: Vec<(u32, u32, Result<Reply, Fault>)>,
    env: env::Env,
}

/// What is kept in memory of a command; the rest is in the journal.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: CommandId,
    pub(crate) first: LogPos,
    pub(crate) accepted_at: u64,
    pub(crate) start: Option<Start>,
    /// The place of its start in its sequence.
    pub(crate) start_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) bytes: [u64; 2],
    /// Behind these in the files: the beginning of a character whose rest may still come.
    held: [u64; 2],
    pub(crate) ended: Option<LogPos>,
    /// What to run; dropped when it has ended.
    exec: Option<Rc<Exec>>,
    /// Nobody holds its streams any more.
    pub(crate) drained: bool,
    pub(crate) evicted: bool,
    /// What its output sums up to.
    sums: Option<Sums>,
    /// What is written down is not what is run.
    masked: Option<private::Masked>,
}

/// When a command was first noted as started. Where its shell died before it read the command, another gets it, and that
/// is no second start: whoever heard of the first keeps to it, and the time of the command counts from there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    at: u64,
    uptime: u64,
}

impl Entry {
    fn new(accepted: Accepted, first: LogPos) -> Self {
        Self {
            id: accepted.exec.command.clone(),
            first,
            accepted_at: accepted.at,
            start: None,
            start_seq: accepted.seq() + 1,
            last_seq: accepted.seq(),
            bytes: [0, 0],
            held: [0, 0],
            ended: None,
            exec: Some(Rc::new(accepted.exec)),
            drained: false,
            evicted: false,
            sums: None,
            masked: None,
        }
    }

    /// How much is left of its time; `None` if it has no limit or has not started.
    fn time_left(&self) -> Option<Duration> {
        let limit = Duration::from_millis(self.exec.as_deref()?.timeout_ms?);
        let ran = Duration::from_micros(uptime().saturating_sub(self.start?.uptime));
        Some(limit.saturating_sub(ran))
    }

    fn has_written(&self) -> bool {
        (self.bytes, self.held) != ([0, 0], [0, 0])
    }
}

/// The process.
#[derive(Debug)]
struct Live {
    pid: i32,
    /// With the pid it names the process for ever.
    start_time: u64,
    /// `None`: it was gone already when a new steward looked for it.
    process: Option<OwnedFd>,
    lines: Lines,
    control: File,
    trigger: trigger::TriggerFile,
    /// Bytes that we have put into the control FIFO.
    said: u64,
    replies: OwnedFd,
    terminal: OwnedFd,
    /// Replies are moved into a file before they are read, so that none is lost with us.
    reply_log: File,
    reply_length: u64,
    reports: Reports,
    /// The command text, written anew for each.
    text: File,
    text_length: u64,
    /// Where the shell writes its dump.
    dump: File,
    ready: bool,
    /// `$?` as the EXIT trap saw it.
    exiting: Option<Report>,
    /// The process is gone.
    gone: bool,
    /// How, once that is known or known to be unknowable.
    death: Option<Death>,
    /// How often nobody had told.
    looks: u32,
    /// We have killed it.
    condemned: bool,
}

/// What became of a process.
#[derive(Debug, Clone, Copy)]
enum Death {
    Reaped(ExitStatus),
    /// By somebody who doesn't tell us.
    Unseen,
}

impl Live {
    /// Whether a command may be given to it: it is not about to go.
    fn can_take(&self) -> bool {
        !self.gone && !self.condemned && self.exiting.is_none()
    }
}

/// The command that the shell is busy with.
#[derive(Debug)]
struct Running {
    number: u64,
    /// [`pair::NO_PAIR`]: its streams are the terminal.
    pair: u64,
    overlay: Overlay,
    effect: Effect,
    report: Option<Report>,
    /// What its epilogue reported.
    leftovers: Leftovers,
    stage: Stage,
    cancel: Option<Cancelling>,
    /// Nobody knows whether the shell ever had it.
    in_doubt: bool,
    /// The overlay's directory could not be entered: it has not run.
    no_directory: bool,
    watch: watch::Watch,
    /// How much had been said when its trigger was; `None` if a steward before us said it.
    said_at: Option<u64>,
    input: Option<input::Input>,
    stalled: bool,
    /// Its end, worked out once; only the record of it is missing.
    settled: Option<(Ending, StateMark)>,
    /// How many had been killed for want of memory when it began, and how many that are no shell's children.
    killed_before: (Option<u64>, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// The report is there; the capture is on its way.
    Capturing,
    /// After a cancellation: the answer to this query means that everything is captured.
    CatchingUp(u64),
    /// All is said; only its end is yet to be noted, and the disk may be full.
    Over,
}

#[derive(Debug)]
struct Cancelling {
    reason: CancelReason,
    began: Instant,
    escalation: Escalation,
    signalled: bool,
    /// The last query; it is back at its top when this one is answered.
    query: Option<u64>,
    answered: bool,
    replacing: bool,
}

impl Shell {
    /// Makes a shell that was never there before.
    pub(crate) fn create(host: &mut Host, key: u32, open: OpenShell) -> Result<Self, Fault> {
        let state = match &open.state {
            Some(stored) => minicbor::decode(stored)
                .map_err(|_| Fault::new(FaultCode::Invalid, "the state to begin with can't be read"))?,
            None => ShellState::default(),
        };
        let (program, applet, dialect) = spawn::find_program(&open)?;
        let journal = Journal::open(&host.dir.journal(key), |_, _| {}).map_err(|error| journal_fault(&error))?;
        let mut shell = Self::bare(host, key, open, journal, program, applet, dialect);
        shell.mark.cwd = if state.cwd.is_empty() { shell.open.cwd.clone() } else { state.cwd.clone() };
        shell.mark.oldpwd.clone_from(&state.oldpwd);
        shell.mark.version = shell.open.version.unwrap_or(0);
        shell.set_state(state);
        if shell.open.state.is_some() {
            shell.store_state(0).map_err(|error| journal_fault(&error))?;
        }
        shell.journal.begin_segment(&shell.head()).map_err(|error| journal_fault(&error))?;
        shell.spawn(host)?;
        Ok(shell)
    }

    fn bare(
        host: &Host,
        key: u32,
        open: OpenShell,
        journal: Journal,
        program: PathBuf,
        applet: Option<&'static str>,
        dialect: Dialect,
    ) -> Self {
        Self {
            run: host.dir.run(key),
            key,
            open,
            program,
            applet,
            dialect,
            journal,
            commands: BTreeMap::new(),
            next_number: 1,
            mark: StateMark::default(),
            state: ShellState::default(),
            trust: stored::Trust::Whole,
            context: Context::default(),
            loaded: false,
            baseline: None,
            incarnation: 0,
            live: None,
            stillborn: 0,
            killed_unborn: false,
            unstarted: 0,
            queue: VecDeque::new(),
            unended: Vec::new(),
            running: None,
            pairs: BTreeMap::new(),
            spare: None,
            next_pair: 1,
            next_query: 1,
            bystanders: BTreeSet::new(),
            followers: Vec::new(),
            tty: tty::Tty::default(),
            warnings: Vec::new(),
            stream_bytes: 0,
            unnoted: false,
            obsolete: Vec::new(),
            unsummed: summing::Unsummed::default(),
            outbox: Vec::new(),
            env: env::Env::default(),
        }
    }

    fn head(&self) -> Record {
        Record::Head(Box::new(Head {
            shell: self.open.shell.clone(),
            open: self.open.clone(),
            next_number: self.next_number,
            state: self.mark.clone(),
            incarnation: self.incarnation,
            spawned: None,
        }))
    }

    fn set_state(&mut self, state: ShellState) {
        self.context = state.context();
        self.state = state;
        self.state.cwd = self.mark.cwd.clone();
        self.state.oldpwd.clone_from(&self.mark.oldpwd);
    }

    pub(crate) fn info(&self) -> ShellInfo {
        ShellInfo {
            shell: self.open.shell.clone(),
            dialect: self.dialect,
            program: Bytes::from(self.program.as_os_str().as_encoded_bytes()),
            pid: self.live.as_ref().map(|live| live.pid),
            incarnation: self.incarnation,
            cwd: self.mark.cwd.clone(),
            state_version: self.mark.version,
            running: self.running.as_ref().and_then(|run| self.commands.get(&run.number)).map(|entry| entry.id.clone()),
            queued: self.queue.len() as u64,
            captures_functions: self.dialect == Dialect::Bash,
            journal_bytes: self.journal_bytes(),
            jobs: None,
            env: Some(self.env.info()),
        }
    }

    /// The same with its processes counted, which means looking at all there are.
    pub(crate) fn info_with_jobs(&self) -> ShellInfo {
        let jobs = self.live.as_ref().map_or(0, |live| {
            let session = stead_term::proc::of_session(live.pid);
            session.iter().filter(|stat| stat.pid != live.pid && stat.state != b'Z').count() as u64
        });
        ShellInfo { jobs: Some(jobs), ..self.info() }
    }

    pub(crate) fn stored_state(&self) -> Result<StoredState, Fault> {
        self.require_state()?;
        let state = minicbor::to_vec(&self.state).unwrap_or_default();
        Ok(StoredState { version: self.mark.version, state: Bytes(state) })
    }

    /// The state that a command left, if it changed it and none has ended since.
    pub(crate) fn state_left_by(&self, info: &CommandInfo) -> Option<Bytes> {
        let changed = info.ending.as_ref().is_some_and(|ending| ending.state_changed);
        let is_newest = changed && info.state_version == self.mark.version;
        is_newest.then(|| self.stored_state().ok()).flatten().map(|stored| stored.state)
    }

    pub(crate) fn journal_bytes(&self) -> u64 {
        self.stream_bytes + self.journal.log_bytes()
    }

    pub(crate) fn running_count(&self) -> (u64, u64) {
        (u64::from(self.running.is_some()), self.queue.len() as u64)
    }

    pub(crate) fn command_info(&self, number: u64) -> Result<CommandInfo, Fault> {
        let entry = self.commands.get(&number).ok_or_else(|| Fault::new(FaultCode::NotFound, "no such command"))?;
        let ended = match entry.ended {
            Some(at) => Some(self.ended_at(at)?),
            None => None,
        };
        let running = self.running.as_ref().filter(|running| running.number == number);
        let status = match (&ended, running) {
            (Some(ended), _) => ended.ending.status,
            (None, Some(_)) => Status::Running,
            // It waits for another shell, after the first was killed before it read the command.
            (None, None) if entry.start.is_some() => Status::Running,
            (None, None) => Status::Queued,
        };
        let mark = ended.as_ref().map_or(&self.mark, |ended| &ended.state);
        Ok(CommandInfo {
            command: entry.id.clone(),
            shell: self.open.shell.clone(),
            number,
            status,
            stdout_bytes: entry.bytes[0],
            stderr_bytes: entry.bytes[1],
            last_seq: entry.last_seq,
            cwd: mark.cwd.clone(),
            state_version: mark.version,
            accepted_at: entry.accepted_at,
            started_at: entry.start.map(|start| start.at),
            ended_at: ended.as_ref().map(|ended| ended.at),
            // Whatever held them when it ended may have let go since.
            ending: ended.map(|Ended { ending, .. }| {
                let streams_open = ending.streams_open && !entry.drained;
                Ending { streams_open, ..ending }
            }),
            stalled: running.is_some_and(|running| running.stalled),
            evicted: entry.evicted,
            state: None,
            sums: entry.sums.map(|sums| Summed { key: self.key, sums }),
        })
    }

    fn ended_at(&self, at: LogPos) -> Result<Ended, Fault> {
        match self.journal.record_at(at).map_err(|error| journal_fault(&error))? {
            Some(Record::Ended(ended)) => Ok(Ended { ending: ended.ending.or_lost(), ..*ended }),
            _ => Err(Fault::new(
                FaultCode::Damaged,
                "the journal is damaged: the record of how the command ended is lost",
            )),
        }
    }

    /// What was asked for under an id.
    pub(crate) fn accepted(&self, number: u64) -> Result<Accepted, Fault> {
        let first = self.commands.get(&number).map(|entry| entry.first);
        let first = first.ok_or_else(|| Fault::new(FaultCode::NotFound, "no such command"))?;
        match self.journal.record_at(first).map_err(|error| journal_fault(&error))? {
            Some(Record::Accepted(accepted)) => Ok(*accepted),
            _ => Err(Fault::new(FaultCode::Damaged, "the journal is damaged: the record of what was asked is lost")),
        }
    }

    /// Its output was removed; from where on there is some.
    pub(crate) fn gone(&self) -> Fault {
        let earliest = self.commands.iter().find(|(_, entry)| !entry.evicted).map(|(number, _)| *number);
        Fault { earliest, ..Fault::new(FaultCode::Gone, "the output of the command was removed to make room") }
    }

    /// Where one stream of a command lies, and how much of it counts.
    pub(crate) fn stream(&self, number: u64, stream: Stream) -> Result<(PathBuf, u64), Fault> {
        let entry = self.commands.get(&number).ok_or_else(|| Fault::new(FaultCode::NotFound, "no such command"))?;
        if entry.evicted {
            return Err(self.gone());
        }
        let total = entry.bytes.get(pair::stream_index(stream)).copied().unwrap_or(0);
        Ok((self.journal.stream_path(number, stream), total))
    }

    /// The oldest command whose output could be removed: when it was accepted, and its number.
    pub(crate) fn oldest_output(&self) -> Option<(u64, u64)> {
        let removable =
            |entry: &Entry| entry.ended.is_some() && entry.drained && !entry.evicted && entry.bytes != [0, 0];
        self.commands
            .iter()
            .find(|(number, entry)| removable(entry) && !self.is_followed(**number))
            .map(|(number, entry)| (entry.accepted_at, *number))
    }

    /// Whoever is reading it may finish.
    pub(crate) fn is_followed(&self, number: u64) -> bool {
        self.followers.iter().any(|follower| follower.number == number)
    }

    pub(crate) fn forget_output(&mut self, number: u64) {
        if let Some(entry) = self.commands.get_mut(&number) {
            entry.evicted = true;
            self.stream_bytes = self.stream_bytes.saturating_sub(entry.bytes.iter().sum());
        }
    }

    /// Started this instant, with nothing to tell yet.
    pub(crate) fn is_quick(&self, number: u64) -> bool {
        let running = self.running.as_ref().is_some_and(|running| running.number == number);
        running && self.commands.get(&number).is_some_and(|entry| entry.last_seq <= entry.start_seq)
    }

    pub(crate) fn is_stalled(&self, number: u64) -> bool {
        self.running.as_ref().is_some_and(|running| running.number == number && running.stalled)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.gone)
    }

    /// Everything the keeper should have of this shell.
    pub(crate) fn descriptors<'a>(&'a self, things: &mut Vec<(String, BorrowedFd<'a>)>) {
        if let Some(live) = &self.live {
            things.push((self.parked("ctl"), live.control.as_fd()));
            things.push((self.parked(trigger::PARKED), live.trigger.file.as_fd()));
            things.push((self.parked("rep"), live.replies.as_fd()));
            things.push((self.parked("pty"), live.terminal.as_fd()));
        }
        things.extend(self.env.memory().map(|memory| (self.parked("sec"), memory)));
        for (number, entry) in &self.commands {
            if let Some(masked) = &entry.masked {
                things.push((self.parked(&format!("text:{number}")), masked.as_fd()));
            }
        }
        self.terminal_descriptors(things);
        self.output_pipes(things);
        if let Some(running) = &self.running
            && let Some(input) = &running.input
        {
            things.extend(input.pipe().map(|pipe| (self.parked(&format!("i:{}", running.number)), pipe)));
            things.extend(input.spool().map(|spool| (self.parked(&format!("q:{}", running.number)), spool)));
        }
    }

    /// What the heir should have of it.
    pub(crate) fn output_pipes<'a>(&'a self, things: &mut Vec<(String, BorrowedFd<'a>)>) {
        for (id, pair) in &self.pairs {
            things.extend(pair.pipes().map(|(kind, stream, pipe)| (self.parked_end(*id, kind, stream), pipe)));
        }
    }

    fn warn(&mut self, code: &str, message: impl Into<String>) {
        self.warnings.push(Warning { code: code.to_owned(), message: message.into() });
    }

    fn spawned_record(&self, host: &Host, pid: i32, start_time: u64) -> Record {
        Record::Spawned(Spawned {
            incarnation: self.incarnation,
            pid,
            start_time,
            boot: Bytes::from(&host.boot),
            stillborn: Some(self.stillborn).filter(|stillborn| *stillborn > 0),
        })
    }
}

pub(crate) fn journal_fault(error: &JournalError) -> Fault {
    match error {
        JournalError::NoSpace => {
            Fault::new(FaultCode::NoSpace, "the journal's disk is full; free some space and try again")
        }
        JournalError::Damaged { .. } => Fault::new(FaultCode::Damaged, error.to_string()),
        JournalError::Io { source, .. } => Fault::new(FaultCode::Unavailable, format!("{error}: {source}")),
    }
}

pub(crate) fn io_fault(what: &str, error: &io::Error) -> Fault {
    let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let code = if full { FaultCode::NoSpace } else { FaultCode::Unavailable };
    Fault::new(code, format!("{what}: {error}"))
}
