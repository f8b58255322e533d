//! What a shell said before it exited and its steward had not acted on when it was killed: the command ran, and is not
//! run again.

use super::disk_full::SmallDisk;
use crate::rig::{Gate, Rig, Runs, TestShell, fate, is_alive, kill, steward_of, wait_for};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use stead_model::ids::CommandId;
use stead_model::proto::{Ending, Status};
use stead_term::proc::signal;

/// The file or the FIFO of this kind that the only shell has now.
fn of_shell(rig: &Rig, kind: &str) -> PathBuf {
    let shells = std::fs::read_dir(rig.path().join("run")).unwrap().flatten().map(|entry| entry.path());
    let files = shells.filter(|path| path.is_dir()).flat_map(|dir| std::fs::read_dir(dir).unwrap().flatten());
    let mut found: Vec<_> = files.map(|entry| entry.path()).filter(|path| path.file_stem().unwrap() == kind).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Takes what is in a FIFO.
fn take(fifo: &Path) -> Vec<u8> {
    let mut reader = File::from(rustix::fs::open(fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap());
    let mut bytes = vec![0; 64 << 10];
    let read = reader.read(&mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

/// Lets a command exit its shell while the steward does not run, kills the steward, and changes what it has left before
/// the next one looks at it. The gate that is given lets it through a second time, should it run again.
fn exit_and_kill(rig: &Rig, shell: &mut TestShell, change: impl FnOnce()) -> (CommandId, Gate) {
    let mut gate = Gate::new(rig, "gate");
    let exec = shell.exec(Runs::new(rig).counted(&format!("{}; exit 3", gate.wait())));
    let command = exec.command.clone();
    shell.submit(exec);
    wait_for("it to run", || (Runs::new(rig).count() == 1).then_some(()));
    let (pid, keeper, steward) = (shell.pid(), rig.keeper_pid(), rig.steward_pid());
    [keeper, steward].into_iter().for_each(crate::rig::stop);
    gate.release();
    gate.release();
    wait_for("the shell to exit", || (!is_alive(pid)).then_some(()));
    kill(steward);
    wait_for("the steward to be dead", || (!is_alive(steward)).then_some(()));
    change();
    signal(keeper, Signal::CONT);
    wait_for("another steward", || steward_of(keeper).filter(|next| *next != steward));
    (command, gate)
}

fn exited() -> Ending {
    Ending { shell_exited: true, ..Ending::new(Status::Exited, Some(3)) }
}

#[test]
fn a_command_that_exited_its_shell_is_not_run_again_after_the_reply_log_was_emptied() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    // Each report names the directory, so that few make the log long enough.
    let deep = rig.scratch().join(vec!["d".repeat(200); 15].join("/"));
    std::fs::create_dir_all(&deep).unwrap();
    shell.out(&format!("cd '{}'; A=1", deep.display()));
    let log = of_shell(&rig, "replies");
    wait_for("the log to be emptied", || {
        shell.out("A=$((A+1))");
        (std::fs::metadata(&log).unwrap().len() == 0).then_some(())
    });
    let (command, _gate) = exit_and_kill(&rig, &mut shell, || {
        // As if the steward had been killed just after it moved the report.
        let report = take(&of_shell(&rig, "rep"));
        assert!(!report.is_empty() && std::fs::metadata(&log).unwrap().len() == 0);
        File::options().append(true).open(&log).unwrap().write_all(&report).unwrap();
    });
    shell.client = rig.client();
    let outcome = shell.end_of(&command);
    assert_eq!((Runs::new(&rig).count(), fate(&outcome)), (1, exited()));
    assert_eq!(shell.out("pwd"), format!("{}\n", deep.display()));
}

/// A file that is on another disk.
struct Bound {
    at: PathBuf,
}

impl Bound {
    fn over(at: &Path, disk: &SmallDisk) -> Self {
        let there = disk.path().join("bound");
        File::create(&there).unwrap();
        let status = Command::new("mount").arg("--bind").args([&there, at]).status().unwrap();
        assert!(status.success(), "can't mount a file");
        Self { at: at.to_owned() }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // It is gone already where the steward has removed the file.
        let _ = Command::new("umount").args(["--lazy", "--quiet"]).arg(&self.at).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_command_that_exited_a_fresh_shell_is_not_run_again_when_its_report_has_no_room() {
    let disk = SmallDisk::new();
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.pid();
    let mut full = None;
    let (command, _gate) = exit_and_kill(&rig, &mut shell, || {
        // As if the steward had never read anything from this shell, and what it says had no place.
        let (log, fifo) = (of_shell(&rig, "replies"), of_shell(&rig, "rep"));
        let mut said = std::fs::read(&log).unwrap();
        assert!(!said.is_empty());
        said.extend(take(&fifo));
        let bound = Bound::over(&log, &disk);
        let flags = OFlags::RDWR | OFlags::NONBLOCK;
        File::from(rustix::fs::open(&fifo, flags, Mode::empty()).unwrap()).write_all(&said).unwrap();
        full = Some((disk.fill(0), bound));
    });
    shell.client = rig.client();
    assert_eq!(shell.command(&command).status, Status::Running);
    let (filler, _bound) = full.unwrap();
    filler.remove();
    let outcome = shell.end_of(&command);
    assert_eq!((Runs::new(&rig).count(), fate(&outcome)), (1, exited()));
}
