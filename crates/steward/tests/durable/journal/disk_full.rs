//! A full disk: the command waits, nothing is lost, nothing is made up.

use super::{info, is_pattern, printing};
use crate::rig::{Gate, Rig, Runs, TestShell, code, seen, wait_for};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use stead_model::proto::{Cancel, Event, Exec, FaultCode, FirstSignal, MAX_QUEUE, Reply, Request, Status};
use stead_steward::client::{Client, ClientError, Told};

/// A disk of four megabytes.
pub(super) struct SmallDisk {
    mount: tempfile::TempDir,
}

impl SmallDisk {
    pub(super) fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test mounts a file system: run it as root");
        let mount = tempfile::Builder::new().prefix("disk-").tempdir().unwrap();
        let status =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(mount.path()).status().unwrap();
        assert!(status.success(), "can't mount a tmpfs");
        Self { mount }
    }

    pub(super) fn path(&self) -> &std::path::Path {
        self.mount.path()
    }

    fn rig(&self) -> Rig {
        Rig::at(tempfile::Builder::new().prefix("steward-").tempdir_in(self.mount.path()).unwrap(), &[])
    }

    fn free(&self) -> u64 {
        let stat = rustix::fs::statvfs(self.mount.path()).unwrap();
        stat.f_bavail * stat.f_frsize
    }

    /// Fills it up, but for some bytes.
    pub(super) fn fill(&self, but: u64) -> Filler {
        let path = self.mount.path().join("filler");
        let mut file = File::create(&path).unwrap();
        while self.free() > but {
            let size = (self.free() - but).clamp(1, 64 << 10);
            if file.write_all(&vec![b'x'; usize::try_from(size).unwrap()]).is_err() {
                break;
            }
        }
        Filler { path }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that is just ending may still hold it.
        let _ = Command::new("umount").arg("--lazy").arg(self.mount.path()).status();
    }
}

pub(super) struct Filler {
    path: PathBuf,
}

impl Filler {
    pub(super) fn remove(self) {
        std::fs::remove_file(self.path).unwrap();
    }
}

const SIZE: u64 = 3_000_000;

#[test]
fn a_full_disk_stalls_the_output_and_room_lets_it_go_on_byte_by_byte() {
    let disk = SmallDisk::new();
    let rig = disk.rig();
    let mut shell = rig.shell();
    shell.out("kept=1");
    let mut filler = Some(disk.fill(1 << 20));
    let exec = Exec { follow: Some(1 << 30), ..shell.exec(format!("{}; echo err >&2; (exit 7)", printing(SIZE))) };
    let command = exec.command.clone();
    let (mut other, mut stalls, mut stdout, mut stderr) = (rig.client(), Vec::new(), Vec::new(), Vec::new());
    let last = shell.client.follow(&Request::Exec(Box::new(exec)), &mut |told| match told {
        Told::Event(Event::Stalled(stalled)) => {
            stalls.push(stalled);
            if let Some(filler) = filler.take() {
                let info = info(&mut other, &command);
                assert!(info.stalled && info.ending.is_none() && info.stdout_bytes < SIZE, "{info:?}");
                filler.remove();
            }
        }
        Told::Output(chunk) if chunk.stream == stead_model::frame::Stream::Stdout => {
            stdout.extend_from_slice(&chunk.bytes);
        }
        Told::Output(chunk) => stderr.extend_from_slice(&chunk.bytes),
        Told::Event(_) => {}
    });
    let last = last.unwrap();
    assert_eq!((stalls.first(), last.stalled, last.ending.unwrap().exit_code), (Some(&true), false, Some(7)));
    assert_eq!((stdout.len() as u64, stderr.as_slice()), (SIZE, b"err\n".as_slice()));
    is_pattern(&stdout, 0);
    assert_eq!(shell.out("echo $kept"), "1\n");
}

#[test]
fn a_steward_that_dies_over_a_full_disk_loses_nothing() {
    let disk = SmallDisk::new();
    let rig = disk.rig();
    let mut shell = rig.shell();
    let filler = disk.fill(1 << 20);
    let exec = shell.exec(format!("{}; (exit 7)", printing(SIZE)));
    let command = exec.command.clone();
    shell.submit(exec);
    wait_for("it to stall", || info(&mut shell.client, &command).stalled.then_some(()));
    let steward = rig.steward_pid();
    crate::rig::kill(steward);
    wait_for("it to be dead", || (!crate::rig::is_alive(steward)).then_some(()));
    // Room first: whether a steward can start on a full disk is another question.
    filler.remove();
    wait_for("another steward", || (rig.steward_pid() != steward).then_some(()));
    shell.client = rig.client();
    let outcome = shell.end_of(&command);
    assert_eq!((code(&outcome), outcome.stdout.len() as u64), (Some(7), SIZE));
    is_pattern(&outcome.stdout, 0);
}

#[test]
fn a_steward_that_dies_over_a_full_disk_is_there_again_before_there_is_room() {
    let disk = SmallDisk::new();
    let rig = disk.rig();
    let mut shell = rig.shell();
    shell.out("kept=1");
    let filler = disk.fill(0);
    crate::rig::kill(rig.steward_pid());
    // Once, and with a deadline: the rig's own way to connect would try for ever.
    let stream = stead_steward::dir::Dir::open(&rig.path()).unwrap().connect().unwrap();
    stream.set_read_timeout(Some(crate::rig::PATIENCE / 4)).unwrap();
    let greeted = Client::over(Box::new(stream.try_clone().unwrap()), Box::new(stream), "test");
    filler.remove();
    assert!(greeted.is_ok(), "no steward answers as long as the disk is full: {greeted:?}");
    shell.client = rig.client();
    assert_eq!(shell.out("echo $kept"), "1\n");
}

/// Refused, or right; it may wait for room, which it then gets.
#[track_caller]
fn is_refused_or_right(
    shell: &mut TestShell,
    filler: &mut Option<Filler>,
    text: &str,
    expected: &(Option<i32>, String, String),
) {
    let exec = shell.exec(text);
    let command = exec.command.clone();
    match shell.client.request(&Request::Exec(Box::new(exec))) {
        Err(ClientError::Fault(fault)) => {
            assert_eq!(fault.code, FaultCode::NoSpace, "{text}: {fault:?}");
            let unknown = shell.client.request(&Request::Command(command));
            assert_eq!(unknown.unwrap_err().fault(), Some(FaultCode::NotFound), "{text}: refused and yet remembered");
        }
        Ok(Reply::Command(_)) => {
            wait_for("it to end or to wait for room", || {
                Some(info(&mut shell.client, &command)).filter(|info| info.stalled || info.status.is_final())
            });
            if info(&mut shell.client, &command).stalled
                && let Some(filler) = filler.take()
            {
                filler.remove();
            }
            let outcome = shell.end_of(&command);
            let failed = outcome.info.ending.as_ref().and_then(|ending| ending.error.as_ref()).map(|fault| fault.code);
            if failed.is_some() {
                assert_eq!((failed, outcome.stdout.as_slice()), (Some(FaultCode::NoSpace), b"".as_slice()), "{text}");
            } else {
                assert_eq!(seen(&outcome), *expected, "{text}");
            }
        }
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn commands_on_a_completely_full_disk_are_refused_or_right_and_never_wrong() {
    let disk = SmallDisk::new();
    let rig = disk.rig();
    let mut shell = rig.shell();
    shell.out("kept=1; f() { echo f $kept; }");
    let mut filler = Some(disk.fill(0));
    for round in 0..20 {
        filler.get_or_insert_with(|| disk.fill(0));
        let expected = (Some(3), format!("out {round}\n"), "err\n".to_owned());
        is_refused_or_right(&mut shell, &mut filler, &format!("echo out {round}; echo err >&2; (exit 3)"), &expected);
        let expected = (Some(0), "f 1\n".to_owned(), String::new());
        is_refused_or_right(&mut shell, &mut filler, "f", &expected);
    }
    if let Some(filler) = filler.take() {
        filler.remove();
    }
    assert_eq!(shell.out("f; echo works"), "f 1\nworks\n");
}

#[test]
fn a_state_that_could_not_be_stored_is_not_acknowledged() {
    let disk = SmallDisk::new();
    let rig = disk.rig();
    let mut shell = rig.shell();
    shell.out("x=old");
    let filler = disk.fill(0);
    let exec = shell.exec("x=$(printf %0100000d 1)");
    let command = exec.command.clone();
    let accepted = shell.client.request(&Request::Exec(Box::new(exec)));
    let acknowledged = accepted.is_ok() && {
        let ended = wait_for("it to end or to wait for room", || {
            Some(info(&mut shell.client, &command)).filter(|info| info.stalled || info.status.is_final())
        });
        ended.ending.is_some_and(|ending| ending.state_changed && ending.error.is_none())
    };
    filler.remove();
    if accepted.is_ok() {
        shell.end_of(&command);
    }
    super::super::state::kill_shell(&mut shell);
    let length = shell.out("echo ${#x}");
    assert!(
        length == "100000\n" || !acknowledged && length == "3\n",
        "acknowledged {acknowledged}, and after a kill it has {length}"
    );
}

#[test]
fn a_shell_that_dies_over_a_full_disk_is_told_of_as_it_died_when_there_is_room() {
    let disk = SmallDisk::new();
    let rig = disk.rig();
    let mut shell = rig.shell();
    shell.out("kept=1");
    let pid = shell.pid();
    let filler = disk.fill(0);
    // All of it fits the pipe, so the shell gets to its end while the disk takes nothing.
    let exec = shell.exec("for ((i = 0; i < 1000; i++)); do echo line $i; done; kill -9 $$");
    let command = exec.command.clone();
    let mut other = rig.client();
    other.request(&Request::Exec(Box::new(exec))).unwrap();
    wait_for("the shell to be dead and its output to wait", || {
        (!crate::rig::is_alive(pid) && info(&mut other, &command).stalled).then_some(())
    });
    filler.remove();
    let mut stdout = Vec::new();
    let last = other.follow_from(&command, 0, false, &mut |told| {
        if let Told::Output(chunk) = told {
            stdout.extend_from_slice(&chunk.bytes);
        }
    });
    let ending = last.unwrap().ending.unwrap();
    assert_eq!((ending.exit_code, ending.signal, ending.shell_exited), (Some(137), Some(9), true));
    let want = (0..1000).fold(String::new(), |text, i| text + &format!("line {i}\n"));
    assert_eq!(String::from_utf8(stdout).unwrap(), want);
    assert_eq!(shell.out("echo $kept"), "1\n");
}

#[test]
fn queued_commands_that_are_cancelled_over_a_full_disk_never_run_whoever_dies() {
    let disk = SmallDisk::new();
    let rig = disk.rig();
    let mut shell = rig.shell();
    // The record of an end names both directories, so that few of them use up all that is set aside for ends.
    for name in ["a", "b"] {
        let deep = rig.scratch().join(vec![name.repeat(200); 15].join("/"));
        std::fs::create_dir_all(&deep).unwrap();
        shell.out(&format!("cd '{}'", deep.display()));
    }
    let (runs, mut gate) = (Runs::new(&rig), Gate::new(&rig, "gate"));
    let holder = shell.exec(gate.wait());
    shell.submit(holder.clone());
    let queued: Vec<_> = (0..MAX_QUEUE).map(|_| shell.exec(runs.counted("true"))).collect();
    for exec in &queued {
        shell.submit(exec.clone());
    }
    let filler = disk.fill(0);
    let (mut noted, mut acknowledged, mut refused) = (0, Vec::new(), Vec::new());
    for exec in queued {
        let cancel = Cancel { command: exec.command.clone(), first: FirstSignal::Interrupt };
        if let Ok(Reply::Command(info)) = shell.client.request(&Request::Cancel(cancel)) {
            noted += usize::from(info.status == Status::Cancelled);
            acknowledged.push(exec.command);
        } else {
            refused.push(exec.command);
        }
    }
    assert!(noted < acknowledged.len(), "there was room for all {noted} ends");
    let steward = rig.steward_pid();
    crate::rig::kill(steward);
    wait_for("it to be dead", || (!crate::rig::is_alive(steward)).then_some(()));
    filler.remove();
    wait_for("another steward", || (rig.steward_pid() != steward).then_some(()));
    shell.client = rig.client();
    gate.release();
    assert_eq!(code(&shell.end_of(&holder.command)), Some(0));
    for command in acknowledged {
        assert_eq!(shell.end_of(&command).info.status, Status::Cancelled);
    }
    for command in &refused {
        assert_eq!(shell.end_of(command).info.status, Status::Exited);
    }
    assert_eq!(runs.count(), refused.len(), "those whose cancellation was refused, and no other");
}
