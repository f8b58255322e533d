//! What must not be on a disk as long as a shell has secrets: the files through which it is spoken to, and commands that
//! hold the value of one.

use super::Shell;
use super::spawn::open_kept;
use crate::host::Host;
use crate::memory;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use stead_model::env::redact_text;
use stead_model::proto::{Ending, Exec, Fault};
use stead_model::shell::{PRIVATE, is_private};

/// A command as it is run, held by the keeper too until it has ended.
#[derive(Debug)]
pub(crate) struct Masked(OwnedFd);

impl Masked {
    pub(super) fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }
}

impl Shell {
    /// From here on nothing that goes to or comes from the process is on a disk.
    pub(super) fn go_private(&mut self, host: &Host) -> io::Result<()> {
        if self.env.private.is_some() {
            return Ok(());
        }
        let path = memory::directory(&host.dir, self.key)?;
        for name in PRIVATE {
            memory::write(&path.join(name), b"")?;
        }
        self.env.private = Some(path);
        let lines = self.lines();
        crate::dir::write_atomically(&self.run.join("x"), lines.exit_script().as_bytes())?;
        if let Some(live) = &mut self.live {
            live.lines = lines;
            (live.text, live.text_length) = (open_kept(&self.env.place(&self.run, "c"))?, 0);
            live.dump = open_kept(&self.env.place(&self.run, "st"))?;
        }
        Ok(())
    }

    /// Whether the process that is about to be started, or was found, is one that is spoken to in private.
    pub(super) fn choose_privacy(&mut self, host: &Host, private: bool) -> io::Result<()> {
        self.env.private = None;
        if private {
            self.env.private = Some(memory::directory(&host.dir, self.key)?);
        }
        Ok(())
    }

    pub(super) fn has_secrets(&self) -> bool {
        !self.env.secrets.is_empty()
    }

    fn has_values(&self) -> bool {
        !self.env.values().is_empty()
    }

    pub(super) fn private(&self) -> Option<&PathBuf> {
        self.env.private.as_ref()
    }

    /// Where one of the shell's files lies.
    pub(super) fn place(&self, name: &str) -> PathBuf {
        self.env.place(&self.run, name)
    }

    /// Its end is in the journal: what the files in memory say of the command is needed no more.
    pub(super) fn wipe(&mut self) {
        let Some(private) = &self.env.private else { return };
        for name in PRIVATE.iter().filter(|name| **name != "v") {
            let path = private.join(name);
            if let Err(error) = File::options().write(true).truncate(true).open(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                note!("steward: can't wipe `{}`: {error}", path.display());
            }
        }
        if let Some(live) = &mut self.live {
            live.text_length = 0;
        }
    }

    /// Nothing of the secrets stays behind.
    pub(super) fn forget_secrets(&mut self, host: &Host) {
        if self.env.memory.take().is_some() {
            host.link.unpark(&self.parked("sec"));
        }
        if let Some(private) = self.env.private.take() {
            let _ = fs::remove_dir_all(&private);
            if let Some(parent) = private.parent() {
                // Other shells may have theirs there.
                let _ = fs::remove_dir(parent);
            }
        }
    }

    /// The command as it may be written down.
    pub(crate) fn as_written(&self, exec: &Exec) -> Exec {
        if self.has_values() { exec.redacted(&self.env.values()) } else { exec.clone() }
    }

    /// How a command ended, as it may be written down.
    pub(super) fn ending_as_written(&self, mut ending: Ending) -> Ending {
        if self.has_values() {
            let hide = |text: &mut String| *text = redact_text(text, self.env.values());
            ending.warnings.iter_mut().for_each(|warning| hide(&mut warning.message));
            ending.error.iter_mut().for_each(|fault| hide(&mut fault.message));
        }
        ending
    }

    /// Keeps in memory what can't be written down.
    pub(super) fn mask(&self, host: &Host, number: u64, exec: &Exec) -> Result<Masked, Fault> {
        let failed = |error: io::Error| super::io_fault("the command can't be kept", &error);
        let fd = memory::file(&minicbor::to_vec(exec).unwrap_or_default()).map_err(failed)?;
        host.link.park(&self.parked(&format!("text:{number}")), &fd).map_err(failed)?;
        Ok(Masked(fd))
    }

    /// The same command for a steward that comes later.
    pub(super) fn unmask(&mut self, number: u64, parked: Option<OwnedFd>) {
        let Some(entry) = self.commands.get_mut(&number) else { return };
        let exec = parked.as_ref().and_then(|fd| memory::read(fd).ok());
        // Without it there is nothing to run: what is written down is something else.
        entry.exec = exec.and_then(|exec| minicbor::decode(&exec).ok()).map(std::rc::Rc::new);
        entry.masked = parked.map(Masked);
    }
}

impl super::env::Env {
    fn place(&self, run: &Path, name: &str) -> PathBuf {
        match self.private.as_ref().filter(|_| is_private(name)) {
            Some(private) => private.join(name),
            None => run.join(name),
        }
    }
}
