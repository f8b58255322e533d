//! `stead shell`: a front on a steward, for a person at a terminal and for scripts.

use crate::{args, print};
use signal_hook::consts::SIGINT;
use signal_hook::iterator::Signals;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stead_model::frame::Stream;
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::{
    Cancel, CommandInfo, Exec, FaultCode, FirstSignal, OpenShell, Program, Reply, Request, ShellInfo, Status,
};
use stead_model::state::Bytes;
use stead_steward::client::{Client, ClientError, Told};
use stead_steward::keeper::Role;
use stead_steward::start::{self, StartError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ShellError {
    #[error("no place for the steward: neither HOME nor XDG_DATA_HOME is set; give one with `--dir`")]
    NoHome,
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the steward answered another question")]
    Unexpected,
    #[error("can't read standard input")]
    Input(#[source] io::Error),
    #[error("can't write the output")]
    Output(#[source] io::Error),
    #[error("can't listen for Ctrl-C")]
    Signals(#[source] io::Error),
}

/// Runs what was asked and gives the exit code.
pub(crate) fn run(asked: &args::Shell) -> Result<u8, ShellError> {
    let dir = asked.dir.clone().map_or_else(default_dir, Ok)?;
    start::start(&dir, &keeper)?;
    let mut front = Front {
        dir: dir.clone(),
        shell: asked.name.clone(),
        timeout: asked.timeout,
        running: Arc::new(Mutex::new(None)),
    };
    let info = front.open(asked.kind.into(), asked.fresh)?;
    front.stop_on_interrupt()?;
    if !asked.commands.is_empty() {
        return front.run_all(&asked.commands);
    }
    if io::stdin().is_terminal() {
        return front.converse(&info);
    }
    let mut script = Vec::new();
    io::stdin().read_to_end(&mut script).map_err(ShellError::Input)?;
    front.run(script).map(|info| exit_code(&info))
}

/// Durable: what a shell printed is still there tomorrow.
fn default_dir() -> Result<PathBuf, ShellError> {
    let data = std::env::var_os("XDG_DATA_HOME").filter(|dir| Path::new(dir).is_absolute()).map(PathBuf::from);
    let home = std::env::var_os("HOME").filter(|dir| !dir.is_empty()).map(|dir| Path::new(&dir).join(".local/share"));
    Ok(data.or(home).ok_or(ShellError::NoHome)?.join("stead/shell"))
}

fn keeper(dir: &stead_steward::dir::Dir) -> Role {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
    let words = ["steward", "keep", "--dir"].map(str::to_owned);
    Role { program, arguments: words.into_iter().chain([dir.root().to_string_lossy().into_owned()]).collect() }
}

struct Front {
    dir: PathBuf,
    shell: ShellId,
    timeout: Option<Duration>,
    /// What Ctrl-C is to stop.
    running: Arc<Mutex<Option<CommandId>>>,
}

impl Front {
    fn client(&self) -> Result<Client, ClientError> {
        Client::connect(&self.dir, "stead shell")
    }

    /// With keeper and steward both dead a new one can still tell what became of the command.
    fn client_again(&self) -> Result<Client, ClientError> {
        match self.client() {
            Err(ClientError::Connect(dir, error)) => match start::start(&self.dir, &keeper) {
                Ok(_) => self.client(),
                Err(_) => Err(ClientError::Connect(dir, error)),
            },
            client => client,
        }
    }

    fn open(&self, program: Program, fresh: bool) -> Result<ShellInfo, ShellError> {
        let mut client = self.client()?;
        if fresh {
            match client.request(&Request::CloseShell(self.shell.clone())) {
                Err(error) if error.fault() != Some(FaultCode::NotFound) => return Err(error.into()),
                _ => {}
            }
        }
        // Ours to decide per shell: what this call happens to have exported, but not what describes this call.
        let own = |name: &[u8]| {
            matches!(
                name,
                b"_" | b"PWD" | b"OLDPWD" | b"SHLVL" | b"ENV" | b"BASH_ENV" | b"SHELLOPTS" | b"BASHOPTS" | b"PS4"
            )
        };
        let env = std::env::vars_os().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        let env = env.filter(|(name, _)| !own(name)).map(|(name, value)| (Bytes(name), Bytes(value))).collect();
        let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let open = OpenShell {
            shell: self.shell.clone(),
            program,
            env,
            cwd: Bytes::from(cwd.as_os_str().as_bytes()),
            state: None,
            version: None,
        };
        let Reply::Shell(info) = client.request(&Request::OpenShell(Box::new(open)))? else {
            return Err(ShellError::Unexpected);
        };
        Ok(*info)
    }

    fn run_all(&self, commands: &[String]) -> Result<u8, ShellError> {
        for command in commands {
            let code = exit_code(&self.run(command.clone().into_bytes())?);
            if code != 0 {
                return Ok(code);
            }
        }
        Ok(0)
    }

    /// Runs one command to its end, whatever becomes of the connection meanwhile.
    fn run(&self, text: Vec<u8>) -> Result<CommandInfo, ShellError> {
        let id = fresh_id();
        let timeout_ms = self.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let exec = Exec { timeout_ms, ..Exec::new(self.shell.clone(), id.clone(), text) };
        self.set_running(Some(id));
        let mut failed = None;
        let info = Client::run(&exec, &mut || self.client_again(), &mut |told| {
            if let Err(error) = show(&told) {
                failed.get_or_insert(error);
            }
        });
        self.set_running(None);
        let info = info?;
        // `| head` has read enough; that is its right.
        match failed {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(ShellError::Output(error)),
            _ => {}
        }
        for warning in info.ending.iter().flat_map(|ending| &ending.warnings) {
            tell!("stead: warning: {}", warning.message);
        }
        if let Some(fault) = info.ending.as_ref().and_then(|ending| ending.error.as_ref()) {
            tell!("stead: {fault}");
        }
        Ok(info)
    }

    fn set_running(&self, id: Option<CommandId>) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }

    /// Ctrl-C stops the command and not us; at a prompt it does nothing but give a new one.
    fn stop_on_interrupt(&mut self) -> Result<(), ShellError> {
        let mut signals = Signals::new([SIGINT]).map_err(ShellError::Signals)?;
        let (running, dir) = (Arc::clone(&self.running), self.dir.clone());
        std::thread::spawn(move || {
            for _ in signals.forever() {
                let Some(command) = running.lock().unwrap_or_else(PoisonError::into_inner).clone() else { continue };
                let cancel = Request::Cancel(Cancel { command, first: FirstSignal::Interrupt });
                if let Err(error) = Client::connect(&dir, "stead shell").and_then(|mut client| client.request(&cancel))
                {
                    tell!("stead: can't stop the command: {error}");
                }
            }
        });
        Ok(())
    }

    /// A person types.
    fn converse(&self, info: &ShellInfo) -> Result<u8, ShellError> {
        tell!("shell `{}` in a steward at {}; Ctrl-D leaves, the shell stays", self.shell, self.dir.display());
        let (mut cwd, mut code) = (info.cwd.clone(), 0);
        loop {
            let Some(text) = read_command(&cwd)? else {
                tell!("");
                return Ok(code);
            };
            if text.trim_ascii().is_empty() {
                continue;
            }
            let info = self.run(text)?;
            code = exit_code(&info);
            cwd = info.cwd.clone();
            remark(&info);
        }
    }
}

/// One command of as many lines as it takes; `None` at the end of input.
fn read_command(cwd: &[u8]) -> Result<Option<Vec<u8>>, ShellError> {
    let mut text = Vec::new();
    loop {
        let prompt = if text.is_empty() { format!("{} $ ", String::from_utf8_lossy(cwd)) } else { "> ".to_owned() };
        print::error(format_args!("{prompt}"));
        let read = io::stdin().lock().read_until(b'\n', &mut text).map_err(ShellError::Input)?;
        if read == 0 {
            return Ok((!text.is_empty()).then_some(text));
        }
        if !wants_more(&text) {
            return Ok(Some(text));
        }
    }
}

/// Only a shell knows whether `for i in 1 2` is a whole command: ask one, without running it.
fn wants_more(text: &[u8]) -> bool {
    let child =
        Command::new("bash").args(["-n", "-c"]).arg(std::ffi::OsStr::from_bytes(text)).stderr(Stdio::piped()).output();
    let said = child.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
    said.contains("unexpected end of file") || said.contains("unexpected EOF") || said.contains("here-document")
}

/// What a person should know and the output doesn't tell.
fn remark(info: &CommandInfo) {
    let Some(ending) = &info.ending else { return };
    let remark = match ending.status {
        Status::TimedOut => "timed out",
        Status::Cancelled => "stopped",
        Status::Lost => "lost: the steward died under it",
        Status::Exited if ending.shell_exited => "the shell exited; a new one has its state",
        Status::Exited if ending.shell_replaced => "the shell had to be replaced; the new one has its last state",
        Status::Exited | Status::Queued | Status::Running | Status::Failed => return,
    };
    tell!("[{remark}]");
}

fn show(told: &Told) -> io::Result<()> {
    match told {
        Told::Output(chunk) => match chunk.stream {
            Stream::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(&chunk.bytes)?;
                stdout.flush()
            }
            Stream::Stderr => io::stderr().lock().write_all(&chunk.bytes),
        },
        Told::Event(stead_model::proto::Event::Stalled(true)) => {
            tell!("stead: the disk is full; the command waits for room");
            Ok(())
        }
        Told::Event(_) => Ok(()),
    }
}

fn exit_code(info: &CommandInfo) -> u8 {
    let Some(ending) = &info.ending else { return 125 };
    match ending.status {
        Status::TimedOut => 124,
        Status::Cancelled => 130,
        Status::Lost => 137,
        Status::Exited => ending.exit_code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125),
        Status::Failed | Status::Queued | Status::Running => 125,
    }
}

/// Unique among all that ever ran here: time and process.
fn fresh_id() -> CommandId {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let id = format!("cmd-{nanos:x}-{:x}", std::process::id());
    CommandId::parse(&id).unwrap_or_else(|_| unreachable!("hexadecimal digits make a valid id"))
}
