//! What a client may ask, and who answers.

use crate::conn::Room;
use crate::follow::Follower;
use crate::host::Host;
use crate::serve::Steward;
use crate::shell::{Shell, journal_fault};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use stead_model::frame::{Frame, Kind};
use stead_model::ids::{CommandId, ShellId};
use stead_model::proto::{
    Attach, Cancel, CancelReason, Detached, Exec, Fault, FaultCode, Follow, Hello, ListCommands, OpenShell, Read,
    ReadBytes, Reply, Request, Resize, SetEnv, SetState, Stats, StdinBytes, Type, VERSIONS, Welcome,
};
use stead_model::state::Bytes;
use stead_model::word::is_name;

/// Who asks: connection and request.
type From = (u32, u32);

/// The most that one `Read` gives, so that its answer fits a frame.
const MOST_READ: u64 = 4 << 20;
const MOST_COMMANDS: u64 = 1000;

impl Steward {
    /// Answers a frame, now or, for what takes time, later. `false`: this isn't our protocol, hang up.
    pub(crate) fn handle(&mut self, connection: u32, frame: &Frame) -> bool {
        if frame.kind != Kind::Request {
            return false;
        }
        let from = (connection, frame.request);
        let request = match minicbor::decode::<Request>(&frame.payload) {
            Ok(request) => request,
            Err(error) => {
                self.answer(from, Err(Fault::new(FaultCode::Invalid, format!("the request can't be read: {error}"))));
                return true;
            }
        };
        let greeted = self.connections.get(&connection).is_some_and(|conn| conn.greeted);
        if !greeted && !matches!(request, Request::Hello(_)) {
            self.answer(from, Err(Fault::new(FaultCode::Invalid, "say hello first")));
            return false;
        }
        if !greeted && self.connections.len() > self.connection_limit() {
            let message = format!("{} connections to this sandbox are open already", self.connection_limit());
            self.answer(from, Err(Fault::new(FaultCode::LimitReached, message)));
            return false;
        }
        if self.connections.get(&connection).is_some_and(|conn| conn.room == Room::Lent) {
            let message = "the sandbox has as many files open as it may have: end some commands, or try again";
            self.answer(from, Err(Fault::new(FaultCode::Unavailable, message)));
            return false;
        }
        match self.reply(from, request) {
            Ok(Some(reply)) => self.answer(from, Ok(reply)),
            Ok(None) => {}
            Err(fault) => self.answer(from, Err(fault)),
        }
        true
    }

    fn answer(&mut self, from: From, answer: Result<Reply, Fault>) {
        let Some(conn) = self.connections.get_mut(&from.0) else { return };
        match answer {
            Ok(reply) => conn.reply(from.1, &reply),
            Err(fault) => conn.fault(from.1, &fault),
        }
    }

    /// `None`: answered later.
    fn reply(&mut self, from: From, request: Request) -> Result<Option<Reply>, Fault> {
        match request {
            Request::Hello(hello) => self.hello(from, &hello).map(Some),
            Request::OpenShell(open) => self.open_shell(*open).map(Some),
            Request::CloseShell(id) => self.close_shell(&id).map(Some),
            Request::Shell(id) => Ok(Some(Reply::Shell(Box::new(self.shell(&id)?.info_with_jobs())))),
            Request::Shells => Ok(Some(Reply::Shells(self.shells.values().map(Shell::info).collect()))),
            Request::State(id) => Ok(Some(Reply::State(self.shell(&id)?.stored_state()?))),
            Request::Exec(exec) => self.exec(from, *exec),
            Request::Follow(follow) => self.follow(from, &follow),
            Request::Credit(credit) => {
                self.credit(from.0, credit.request, credit.bytes);
                Ok(None)
            }
            Request::Read(read) => self.read(&read).map(Some),
            Request::Cancel(cancel) => self.cancel(&cancel).map(Some),
            Request::Stdin(stdin) => self.stdin(from, stdin),
            Request::Command(id) => self.command(&id).map(Some),
            Request::Commands(list) => self.commands(&list).map(Some),
            Request::Stats => Ok(Some(Reply::Stats(self.stats()))),
            Request::RestShell(id) => self.rest_shell(&id).map(Some),
            Request::SetState(set) => self.set_state(&set).map(Some),
            Request::SetEnv(set) => self.set_env(*set).map(Some),
            Request::Attach(attach) => self.attach(from, &attach),
            Request::Type(keys) => self.press(from, keys),
            Request::Resize(resize) => self.resize(from, resize).map(Some),
            Request::Detach(attachment) => self.detach(from, attachment).map(Some),
            Request::MakeRoom(before) => {
                crate::retain::make_room(&mut self.shells, before);
                Ok(Some(Reply::Done))
            }
            Request::Shutdown => {
                self.shut_down(from);
                Ok(None)
            }
        }
    }

    fn hello(&mut self, from: From, hello: &Hello) -> Result<Reply, Fault> {
        let version = hello.newest.min(*VERSIONS.end());
        if version < hello.oldest.max(*VERSIONS.start()) {
            let message = format!(
                "no version in common: the client speaks {} to {}, this steward {} to {}",
                hello.oldest,
                hello.newest,
                VERSIONS.start(),
                VERSIONS.end()
            );
            return Err(Fault::new(FaultCode::Version, message));
        }
        if let Some(conn) = self.connections.get_mut(&from.0) {
            conn.greeted = true;
        }
        Ok(Reply::Welcome(Welcome {
            version,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: self.epoch,
            pid: std::process::id(),
            keeper_pid: rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs()),
        }))
    }

    fn shell(&self, id: &ShellId) -> Result<&Shell, Fault> {
        let key = self.names.get(id).copied();
        key.and_then(|key| self.shells.get(&key))
            .ok_or_else(|| Fault::new(FaultCode::NotFound, format!("no shell `{id}`")))
    }

    fn open_shell(&mut self, open: OpenShell) -> Result<Reply, Fault> {
        let Self { names, shells, host, .. } = self;
        if let Some(shell) = names.get(&open.shell).and_then(|key| shells.get_mut(key)) {
            shell.replace_lost_state(host, &open)?;
            return Ok(Reply::Shell(Box::new(shell.info())));
        }
        if self.shells.len() >= self.shell_limit() {
            let message =
                format!("{} terminals are open in this sandbox; delete one that is not needed", self.shells.len());
            return Err(Fault::new(FaultCode::LimitReached, message));
        }
        for (name, value) in &open.env {
            // bash hands functions down as `BASH_FUNC_name%%`; that is no name, but it is how they travel.
            if name.is_empty() || name.contains(&b'=') || name.contains(&0) || value.contains(&0) {
                let message = format!("`{}` can't be in an environment", name.escape_ascii());
                return Err(Fault::new(FaultCode::Invalid, message));
            }
            if is_name(name) && matches!(name.0.as_slice(), b"SHELLOPTS" | b"BASHOPTS" | b"BASH_ENV" | b"ENV" | b"PS4")
            {
                let message = format!("`{}` would run code in every shell; set it by a command", name.escape_ascii());
                return Err(Fault::new(FaultCode::Invalid, message));
            }
        }
        let key = self.shells.keys().last().copied().unwrap_or(0).max(self.last_key) + 1;
        self.last_key = key;
        let id = open.shell.clone();
        let shell = match Shell::create(&mut self.host, key, open) {
            Ok(shell) => shell,
            Err(fault) => {
                // Nothing of it stays.
                let _ = std::fs::remove_dir_all(self.host.dir.run(key));
                let _ = std::fs::remove_dir_all(self.host.dir.journal(key));
                return Err(fault);
            }
        };
        let info = shell.info();
        self.shells.insert(key, shell);
        self.names.insert(id, key);
        Ok(Reply::Shell(Box::new(info)))
    }

    fn close_shell(&mut self, id: &ShellId) -> Result<Reply, Fault> {
        let key = self.names.remove(id).ok_or_else(|| Fault::new(FaultCode::NotFound, format!("no shell `{id}`")))?;
        let Some(mut shell) = self.shells.remove(&key) else { return Ok(Reply::Done) };
        self.ids.retain(|_, place| place.0 != key);
        for follower in std::mem::take(&mut shell.followers) {
            let fault = Fault::new(FaultCode::NotFound, "the shell was closed");
            self.answer((follower.connection, follower.request), Err(fault));
        }
        for person in std::mem::take(&mut shell.tty.people) {
            self.answer((person.connection, person.request), Ok(Reply::Detached(Detached::Closed)));
        }
        shell.destroy(&mut self.host)?;
        Ok(Reply::Done)
    }

    fn rest_shell(&mut self, id: &ShellId) -> Result<Reply, Fault> {
        let Self { names, shells, host, .. } = self;
        let shell = names.get(id).and_then(|key| shells.get_mut(key));
        let shell = shell.ok_or_else(|| Fault::new(FaultCode::NotFound, format!("no shell `{id}`")))?;
        shell.rest(host)?;
        shell.close_terminal(host);
        Ok(Reply::Done)
    }

    fn set_state(&mut self, set: &SetState) -> Result<Reply, Fault> {
        let Self { names, shells, host, .. } = self;
        let shell = names.get(&set.shell).and_then(|key| shells.get_mut(key));
        let shell = shell.ok_or_else(|| Fault::new(FaultCode::NotFound, format!("no shell `{}`", set.shell)))?;
        shell.put_state(host, set)?;
        Ok(Reply::Shell(Box::new(shell.info())))
    }

    fn set_env(&mut self, set: SetEnv) -> Result<Reply, Fault> {
        let Self { names, shells, host, .. } = self;
        let shell = names.get(&set.shell).and_then(|key| shells.get_mut(key));
        let shell = shell.ok_or_else(|| Fault::new(FaultCode::NotFound, format!("no shell `{}`", set.shell)))?;
        shell.put_env(host, set)?;
        Ok(Reply::State(shell.stored_state()?))
    }

    fn exec(&mut self, from: From, exec: Exec) -> Result<Option<Reply>, Fault> {
        let follow = exec.follow.map(|credit| Follow {
            command: exec.command.clone(),
            after: 0,
            credit,
            late: false,
            state: exec.state,
            index: None,
        });
        if let Some((key, number)) = self.ids.get(&exec.command).copied() {
            let shell = self.shells.get(&key).ok_or_else(|| Fault::new(FaultCode::NotFound, "no such command"))?;
            let before = shell.accepted(number)?.exec;
            if !before.is_same_work(&exec) && !before.is_same_work(&shell.as_written(&exec)) {
                let message = format!("`{}` is the id of another command", exec.command);
                return Err(Fault::new(FaultCode::Conflict, message));
            }
            return match follow {
                Some(follow) => self.follow(from, &follow),
                None => Ok(Some(Reply::Command(Box::new(shell.command_info(number)?)))),
            };
        }
        let key = self.names.get(&exec.shell).copied();
        let missing = || Fault::new(FaultCode::NotFound, format!("no shell `{}`", exec.shell));
        let shell = key.and_then(|key| self.shells.get_mut(&key)).ok_or_else(missing)?;
        let id = exec.command.clone();
        let number = shell.accept(&mut self.host, exec)?;
        let key = shell.key;
        self.ids.insert(id, (key, number));
        let Some(follow) = follow else { return self.info(key, number).map(Some) };
        let follower = Follower::new(shell, number, from, &follow)?;
        shell.followers.push(follower);
        // One that has only just been started will have more to tell in a moment.
        if !shell.is_quick(number) {
            self.host.news.insert(key);
        }
        Ok(None)
    }

    fn find(&self, id: &CommandId) -> Result<(u32, u64), Fault> {
        self.ids.get(id).copied().ok_or_else(|| Fault::new(FaultCode::NotFound, format!("no command `{id}`")))
    }

    fn info(&self, key: u32, number: u64) -> Result<Reply, Fault> {
        let shell = self.shells.get(&key).ok_or_else(|| Fault::new(FaultCode::NotFound, "the shell is gone"))?;
        Ok(Reply::Command(Box::new(shell.command_info(number)?)))
    }

    fn command(&self, id: &CommandId) -> Result<Reply, Fault> {
        let (key, number) = self.find(id)?;
        self.info(key, number)
    }

    fn commands(&self, list: &ListCommands) -> Result<Reply, Fault> {
        let shell = self.shell(&list.shell)?;
        let before = list.before.unwrap_or(u64::MAX);
        let limit = usize::try_from(list.limit.min(MOST_COMMANDS)).unwrap_or(0);
        let numbers = shell.commands.range(..before).rev().take(limit).map(|(number, _)| *number);
        Ok(Reply::Commands(numbers.map(|number| shell.command_info(number)).collect::<Result<_, _>>()?))
    }

    fn follow(&mut self, from: From, follow: &Follow) -> Result<Option<Reply>, Fault> {
        let (key, number) = self.find(&follow.command)?;
        let shell = self.shells.get_mut(&key).ok_or_else(|| Fault::new(FaultCode::NotFound, "the shell is gone"))?;
        let follower = Follower::new(shell, number, from, follow)?;
        shell.followers.push(follower);
        self.host.news.insert(key);
        Ok(None)
    }

    fn attach(&mut self, from: From, attach: &Attach) -> Result<Option<Reply>, Fault> {
        let Self { names, shells, host, .. } = self;
        let shell = names.get(&attach.shell).and_then(|key| shells.get_mut(key));
        let shell = shell.ok_or_else(|| Fault::new(FaultCode::NotFound, format!("no shell `{}`", attach.shell)))?;
        shell.attach(host, from, attach)?;
        Ok(None)
    }

    /// The shell that this connection looks at by that request.
    fn attached(&mut self, connection: u32, request: u32) -> Result<(&mut Shell, &mut Host), Fault> {
        let looks = |shell: &&mut Shell| {
            shell.tty.people.iter().any(|person| (person.connection, person.request) == (connection, request))
        };
        let shell = self.shells.values_mut().find(looks);
        let shell = shell.ok_or_else(|| Fault::new(FaultCode::NotFound, "this connection has no such attachment"))?;
        Ok((shell, &mut self.host))
    }

    fn press(&mut self, from: From, keys: Type) -> Result<Option<Reply>, Fault> {
        let (shell, host) = self.attached(from.0, keys.attachment)?;
        shell.press(host, from, keys.attachment, keys.bytes.0)?;
        Ok(None)
    }

    fn resize(&mut self, from: From, resize: Resize) -> Result<Reply, Fault> {
        let (shell, host) = self.attached(from.0, resize.attachment)?;
        shell.resize(host, from.0, resize.attachment, resize.size)?;
        Ok(Reply::Done)
    }

    fn detach(&mut self, from: From, attachment: u32) -> Result<Reply, Fault> {
        let (shell, host) = self.attached(from.0, attachment)?;
        shell.detach(host, from.0, attachment)?;
        Ok(Reply::Done)
    }

    fn credit(&mut self, connection: u32, request: u32, bytes: u64) {
        for (key, shell) in &mut self.shells {
            for follower in shell.followers.iter_mut().filter(|f| (f.connection, f.request) == (connection, request)) {
                follower.credit = follower.credit.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
                self.host.news.insert(*key);
            }
            let mut people = shell.tty.people.iter_mut();
            if let Some(person) = people.find(|person| (person.connection, person.request) == (connection, request)) {
                person.credit = person.credit.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
                self.host.news.insert(*key);
            }
        }
    }

    fn read(&self, read: &Read) -> Result<Reply, Fault> {
        let (key, number) = self.find(&read.command)?;
        let shell = self.shells.get(&key).ok_or_else(|| Fault::new(FaultCode::NotFound, "the shell is gone"))?;
        let (path, total) = shell.stream(number, read.stream)?;
        shell.verify(number)?;
        let length = total.saturating_sub(read.offset).min(read.length).min(MOST_READ);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        if length > 0 {
            let mut read_all = |path| -> io::Result<()> { File::open(path)?.read_exact_at(&mut bytes, read.offset) };
            read_all(path).map_err(|error| crate::sum::fault(read.stream, &error))?;
        }
        Ok(Reply::Bytes(ReadBytes { bytes: Bytes(bytes), total }))
    }

    fn cancel(&mut self, cancel: &Cancel) -> Result<Reply, Fault> {
        let (key, number) = self.find(&cancel.command)?;
        if let Some(shell) = self.shells.get_mut(&key) {
            let cancelled = shell.cancel(&mut self.host, number, CancelReason::Asked(cancel.first));
            cancelled.map_err(|error| journal_fault(&error))?;
        }
        self.info(key, number)
    }

    fn stdin(&mut self, from: From, stdin: StdinBytes) -> Result<Option<Reply>, Fault> {
        let (key, number) = self.find(&stdin.command)?;
        let shell = self.shells.get_mut(&key).ok_or_else(|| Fault::new(FaultCode::NotFound, "the shell is gone"))?;
        shell.write_input(&mut self.host, number, from, stdin)?;
        Ok(None)
    }

    fn stats(&self) -> Stats {
        let counts = self.shells.values().map(Shell::running_count);
        let (running, queued) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Stats {
            shells: self.shells.len() as u64,
            connections: self.connections.len() as u64,
            running,
            queued,
            commands: self.ids.len() as u64,
            journal_bytes: self.shells.values().map(Shell::journal_bytes).sum(),
            journal_limit: self.host.settings.journal_limit,
        }
    }
}
