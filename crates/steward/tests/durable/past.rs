//! A directory whose steward is gone, read from outside: what it tells, and that nobody inside can make us read or write
//! elsewhere.

use crate::rig::{Rig, kill, wait_for};
use std::os::unix::fs::symlink;
use stead_model::proto::{Request, Status};
use stead_steward::past::{self, PastError};

/// Ends a steward and its keeper as a dying machine would.
fn die(rig: &Rig) {
    let pids = [rig.keeper_pid(), rig.steward_pid()];
    for pid in pids {
        stead_term::proc::signal(pid, rustix::process::Signal::STOP);
    }
    for pid in pids {
        kill(pid);
    }
    wait_for("the lock to be let go", || past::is_alive(&rig.path()).is_ok_and(|alive| !alive).then_some(()));
}

#[test]
fn what_ran_is_told_with_its_end_its_bytes_and_the_last_state() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let done = shell.run("cd /usr; x=1; echo out; echo error >&2; (exit 3)").info;
    let running = shell.exec("echo begun; sleep 1000");
    shell.client.request(&Request::Exec(Box::new(running.clone()))).unwrap();
    wait_for("its first line", || {
        let shells = rig.client().request(&Request::Command(running.command.clone())).unwrap();
        matches!(shells, stead_model::proto::Reply::Command(info) if info.stdout_bytes == 6).then_some(())
    });
    assert!(past::is_alive(&rig.path()).unwrap());
    assert!(matches!(past::read(&rig.path()), Err(PastError::Alive)));
    die(&rig);
    let shells = past::read(&rig.path()).unwrap();
    let [shell] = shells.as_slice() else { panic!("{shells:?}") };
    let state = shell.state.as_ref().unwrap();
    assert_eq!((shell.version, &*state.cwd), (1, b"/usr".as_slice()));
    assert!(state.variables.contains_key(b"x".as_slice()));
    let told: Vec<_> =
        shell.commands.iter().map(|info| (info.command.clone(), info.status, info.stdout_bytes)).collect();
    assert_eq!(told, [(done.command, Status::Exited, 4), (running.command, Status::Running, 6)]);
    assert_eq!(shell.commands[0].ending.as_ref().unwrap().exit_code, Some(3));
}

#[test]
fn a_directory_without_a_steward_tells_nothing() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!past::is_alive(dir.path()).unwrap());
    assert!(past::read(dir.path()).unwrap().is_empty());
}

#[test]
fn links_that_lead_elsewhere_are_not_followed() {
    let elsewhere = Rig::new();
    elsewhere.shell().run("secret=elsewhere");
    die(&elsewhere);
    let before = std::fs::read(elsewhere.path().join("journal/1/000001.log")).unwrap();
    for link in ["journal", "journal/1", "journal/1/000001.log"] {
        let rig = Rig::new();
        rig.shell().run("true");
        die(&rig);
        let place = rig.path().join(link);
        if place.is_dir() {
            std::fs::remove_dir_all(&place).unwrap();
        } else {
            std::fs::remove_file(&place).unwrap();
        }
        symlink(elsewhere.path().join(link), &place).unwrap();
        assert!(past::read(&rig.path()).is_err(), "`{link}` was read through a link");
    }
    let rig = Rig::new();
    rig.shell().run("true");
    die(&rig);
    std::fs::remove_file(rig.path().join("lock")).unwrap();
    symlink(elsewhere.path().join("lock"), rig.path().join("lock")).unwrap();
    assert!(past::is_alive(&rig.path()).is_err());
    assert_eq!(std::fs::read(elsewhere.path().join("journal/1/000001.log")).unwrap(), before);
}

#[test]
fn a_torn_or_scribbled_log_tells_what_is_whole_and_is_left_as_it_is() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("echo one");
    die(&rig);
    let log = rig.path().join("journal/1/000001.log");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes.extend_from_slice(b"\x00\x00\x01\x00 not a record");
    std::fs::write(&log, &bytes).unwrap();
    let shells = past::read(&rig.path()).unwrap();
    assert_eq!(shells[0].commands.len(), 1);
    assert_eq!(std::fs::read(&log).unwrap(), bytes);
    std::fs::remove_file(&log).unwrap();
    stead_term::fifo::make(&log).unwrap();
    assert!(past::read(&rig.path()).is_err(), "a FIFO is no log");
}

/// A steward killed between moving bytes to the disk and noting them leaves more in the file than in the log.
#[test]
fn bytes_that_no_record_tells_of_are_counted_and_read() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let running = shell.exec("echo begun; sleep 1000");
    shell.client.request(&Request::Exec(Box::new(running.clone()))).unwrap();
    wait_for("its first line", || {
        let told = rig.client().request(&Request::Command(running.command.clone())).unwrap();
        matches!(told, stead_model::proto::Reply::Command(info) if info.stdout_bytes == 6).then_some(())
    });
    let id = shell.id.clone();
    die(&rig);
    let file = rig.path().join("journal/1/1.out");
    std::fs::write(&file, b"begun\nunnoted\n").unwrap();
    let [told] = past::read(&rig.path()).unwrap().try_into().unwrap_or_else(|shells| panic!("{shells:?}"));
    assert_eq!(told.commands[0].stdout_bytes, 14);
    let mut command = past::command(&rig.path(), &id, &running.command).unwrap().unwrap();
    command.add_what_was_left();
    assert_eq!((command.info.stdout_bytes, command.info.last_seq), (14, 3));
    let stdout = command.open(stead_model::frame::Stream::Stdout).unwrap();
    let past::PastEvent::Output(last) = command.events.last().unwrap() else { panic!("{:?}", command.events) };
    assert_eq!(past::PastCommand::bytes(&stdout, last).unwrap(), b"unnoted\n");
}

#[test]
fn room_is_made_where_nobody_lives_and_stays_made() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let old = shell.run("echo old").info;
    let young = shell.run("echo young").info;
    assert!(matches!(past::make_room(&rig.path(), u64::MAX), Err(PastError::Alive)));
    let id = shell.id.clone();
    die(&rig);
    past::make_room(&rig.path(), young.accepted_at).unwrap();
    let look = |command| past::command(&rig.path(), &id, command).unwrap().unwrap();
    assert!(look(&old.command).info.evicted && !look(&young.command).info.evicted);
    assert!(!rig.path().join("journal/1/1.out").exists() && rig.path().join("journal/1/2.out").exists());
    // Doing it again changes nothing.
    let log = std::fs::read(rig.path().join("journal/1/000001.log")).unwrap();
    past::make_room(&rig.path(), young.accepted_at).unwrap();
    assert_eq!(std::fs::read(rig.path().join("journal/1/000001.log")).unwrap(), log);
}

#[test]
fn whoever_changes_what_was_left_is_not_taken_for_a_steward() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("echo kept");
    die(&rig);
    let path = rig.path();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                assert!(!past::is_alive(&path).unwrap());
                assert_eq!(past::read(&path).unwrap().len(), 1);
            }
        });
        let change = || {
            for _ in 0..300 {
                for done in [past::collect_output(&path), past::make_room(&path, 0), past::repair(&path, &[]).map(drop)]
                {
                    assert!(matches!(done, Ok(()) | Err(PastError::Busy)), "{done:?}");
                }
            }
        };
        let changing = [scope.spawn(change), scope.spawn(change)].map(std::thread::ScopedJoinHandle::join);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        looking.join().unwrap();
        changing.into_iter().for_each(Result::unwrap);
    });
}
