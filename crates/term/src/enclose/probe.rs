//! Whether this machine can enclose anything at all: by trying.

use super::{Failed, Identity, Outside, inside, namespaces};
use crate::scarce;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;
use stead_model::enclosure::{Enclosure, Network};

/// Why it can't: the step that failed, and what probably has to be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{step}{}", hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default())]
pub struct Reason {
    /// What could not be done, and the kernel's word for it.
    pub step: String,
    /// What is known to forbid it.
    pub hint: Option<String>,
    /// Whether it lacked something that others give back.
    pub passes: bool,
}

/// Of a machine that has no process or open file to spare at the moment nothing is said before it was asked as often as
/// this, so far apart: whoever asks may settle for less for as long as it lives.
const TRIES: u32 = 20;
const APART: Duration = Duration::from_millis(100);

/// Goes all the way in a process of its own, but for the program to be executed.
pub fn probe() -> Result<(), Reason> {
    let mut tries = 1;
    let said = loop {
        match attempt() {
            Ok(said) if tries < TRIES && said.starts_with(NOT_NOW) => {}
            Err(error) if tries < TRIES && scarce::is_passing(&error) => {}
            other => break other,
        }
        tries += 1;
        crate::poll::nap(APART);
    };
    let said = said.map_err(|error| {
        let passes = scarce::is_passing(&error);
        Reason { step: format!("can't try it: {error}"), hint: None, passes }
    })?;
    let passes = said.starts_with(NOT_NOW);
    let said = said.strip_prefix(NOT_NOW).unwrap_or(&said);
    match said.strip_prefix("failed: ") {
        None if said == "done" => Ok(()),
        // What is used up is not forbidden.
        Some(step) if passes => Err(Reason { step: step.to_owned(), hint: None, passes }),
        Some(step) => Err(Reason { step: step.to_owned(), hint: hint(step), passes }),
        None => Err(Reason { step: "the process that tried it died".to_owned(), hint: hint(""), passes }),
    }
}

/// Before what failed for want of something that others give back.
const NOT_NOW: &str = "not now: ";

fn told(failed: &Failed) -> String {
    let when = if scarce::is_passing(&failed.source) { NOT_NOW } else { "" };
    format!("{when}failed: {}", chain(failed))
}

fn attempt() -> io::Result<String> {
    let (mut report, write) = io::pipe()?;
    // SAFETY: the child goes on with the one thread that called; the C library keeps its own locks usable over a fork,
    // and nothing else that another thread may hold is used. It ends without running anything of ours at its end.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(report);
            let said = match try_it(&write) {
                Ok(()) => String::new(),
                Err(failed) => told(&failed),
            };
            let _ = (&write).write_all(said.as_bytes());
            // SAFETY: ends this copy.
            unsafe { libc::_exit(0) }
        }
        child => {
            drop(write);
            let mut said = String::new();
            let read = report.read_to_string(&mut said);
            if let Some(child) = rustix::process::Pid::from_raw(child) {
                let _ = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
            }
            read.map(|_| said)
        }
    }
}

/// Says `done` from the inside, or returns why there is none.
fn try_it(mut write: &io::PipeWriter) -> Result<(), Failed> {
    let nowhere = Path::new("/");
    let spec =
        Enclosure { network: Network::None, tmp_bytes: 1 << 20, ..Enclosure::new(nowhere, nowhere, nowhere, nowhere) };
    let (uid, gid) = (spec.user.uid, spec.user.gid);
    let outside =
        Outside { identity: Identity::Same { uid, gid }, system: Vec::new(), binds: Vec::new(), name_servers: None };
    let (mut released, release) = io::pipe().map_err(Failed::at("make a pipe"))?;
    let Some(pid) = namespaces(spec.network).map_err(Failed::at("make namespaces"))? else {
        drop(release);
        if released.read(&mut [0]).is_ok_and(|read| read == 1) {
            let said = match inside(&spec, outside, None) {
                Ok(()) => "done".to_owned(),
                Err(failed) => told(&failed),
            };
            let _ = write.write_all(said.as_bytes());
        }
        // SAFETY: ends this copy.
        unsafe { libc::_exit(0) }
    };
    drop(released);
    let mapped = outside.identity.map(pid);
    if mapped.is_ok() {
        let _ = (&release).write_all(b"1");
    }
    drop(release);
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
    }
    mapped
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

/// What is known to forbid a step.
fn hint(step: &str) -> Option<String> {
    let setting = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).map(|text| text.trim().to_owned()).ok();
    let ordinary = !rustix::process::geteuid().is_root();
    if setting("user/max_user_namespaces").as_deref() == Some("0") {
        return Some("user.max_user_namespaces=0 forbids user namespaces".to_owned());
    }
    if ordinary && setting("kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return Some("kernel.unprivileged_userns_clone=0 forbids them to ordinary users".to_owned());
    }
    if ordinary && setting("kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return Some("kernel.apparmor_restrict_unprivileged_userns=1 takes their rights away".to_owned());
    }
    if step.contains("mount `/proc`") {
        return Some("this seems to be a container whose own /proc is covered in parts".to_owned());
    }
    if step.contains("make namespaces") {
        return Some("this seems to be a container whose filter of system calls forbids namespaces".to_owned());
    }
    step.contains("change the root directory").then(|| "the root file system is the initial one in memory".to_owned())
}
