//! How much of everything.

use crate::cell::{Cell, inhabitants, owners, skipped};
use crate::rig::{code, is_alive, wait_for};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use stead_steward::start;

/// Makes processes until it can't, and says how many.
const FORK: &str = "perl -e 'while (@p < 500) { $p = fork; defined $p or last; $p or sleep 1000; push @p, $p } \
                    kill 9, @p; print scalar @p'";

#[test]
fn processes_stop_at_their_limit() {
    let Some(cell) = Cell::with(|spec| spec.max_processes = Some(64)) else { return };
    let mut shell = cell.shell();
    let made: u32 = shell.out(FORK).parse().unwrap();
    assert!((10..64).contains(&made), "{made} were made");
    assert_eq!(shell.out("echo alive"), "alive\n");
}

#[test]
fn a_fork_bomb_is_contained_and_ends_with_its_enclosure() {
    let Some(cell) = Cell::with(|spec| spec.max_processes = Some(100)) else { return };
    let Some(other) = Cell::new() else { return };
    let mut shell = cell.shell();
    let exec = shell.exec("b() { b | b & }; b; wait");
    shell.submit(exec);
    let first = cell.first();
    let count = || inhabitants(first).len();
    wait_for("the bomb", || (count() >= 60).then_some(()));
    assert!(count() <= 100);
    assert_eq!(other.shell().out("echo fine"), "fine\n");
    let all = inhabitants(first);
    start::end_enclosure(&cell.place()).unwrap();
    assert!(!is_alive(first) && !all.into_iter().any(is_alive));
}

#[test]
fn memory_stops_at_its_limit() {
    for owner in owners() {
        let Some(cell) = Cell::with(|spec| {
            spec.owner = owner;
            spec.max_memory = Some(1 << 30);
        }) else {
            return;
        };
        let mut shell = cell.shell();
        assert_ne!(code(&shell.run("perl -e '$x = \"a\" x (2 << 30); print length $x'")), Some(0));
        assert_eq!(shell.out("perl -e '$x = \"a\" x (64 << 20); print length $x'"), (64 << 20).to_string());
    }
}

#[test]
fn open_files_stop_at_their_limit() {
    let Some(cell) = Cell::with(|spec| spec.max_files = Some(512)) else { return };
    assert_eq!(cell.shell().out("ulimit -n; ulimit -Hn"), "512\n512\n");
}

#[test]
fn temporary_files_stop_at_their_limit_and_are_not_the_hosts() {
    for owner in owners() {
        let Some(cell) = Cell::with(|spec| {
            spec.owner = owner;
            spec.tmp_bytes = 8 << 20;
        }) else {
            return;
        };
        let mut shell = cell.shell();
        let name = format!("filled-{}", std::process::id());
        let outcome = shell.run(format!("head -c 64M /dev/zero >/tmp/{name}"));
        assert!(String::from_utf8_lossy(&outcome.stderr).contains("No space left"), "{outcome:?}");
        let size: u64 = shell.out(&format!("stat -c %s /tmp/{name}")).trim().parse().unwrap();
        assert!(size <= 8 << 20, "{size}");
        for other in ["/var/tmp", "/dev/shm", "/run", "/var/lib"] {
            assert_ne!(code(&shell.run(format!("head -c 1M /dev/zero >{other}/more"))), Some(0), "{other}");
        }
        assert!(!std::env::temp_dir().join(&name).exists());
        assert_eq!(shell.out(&format!("rm /tmp/{name}; echo $?")), "0\n");
    }
}

/// What the kernel does not limit for root, a cgroup does.
#[test]
fn it_enters_the_cgroup_that_it_is_given() {
    let name = format!("stead-test-{}", std::process::id());
    let made = ["/sys/fs/cgroup", "/sys/fs/cgroup/pids"].iter().map(|top| Path::new(top).join(&name)).find(|group| {
        // In what is not a cgroup, files would be made.
        let limit =
            || File::options().write(true).open(group.join("pids.max")).and_then(|mut file| file.write_all(b"40"));
        let fits = std::fs::create_dir(group).is_ok() && limit().is_ok();
        if !fits {
            let _ = std::fs::remove_dir(group);
        }
        fits
    });
    let Some(group) = made else {
        skipped("no cgroup with a limit of processes can be made here");
        return;
    };
    for owner in owners() {
        let Some(cell) = Cell::with(|spec| {
            spec.owner = owner;
            spec.cgroup_procs = vec![group.join("cgroup.procs")];
        }) else {
            break;
        };
        let made: u32 = cell.shell().out(FORK).parse().unwrap();
        assert!((10..40).contains(&made), "{owner:?}: {made} were made");
        let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap();
        assert!(members.lines().any(|pid| pid == cell.first().to_string()), "{members}");
    }
    wait_for("an empty cgroup", || std::fs::remove_dir(&group).ok());
}
