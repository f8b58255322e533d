//! What lasts, and what ends.

use crate::cell::{Cell, inhabitants, owners, program};
use crate::rig::{code, is_alive, wait_for};
use std::path::{Path, PathBuf};
use stead_model::enclosure::Enclosure;
use stead_model::proto::Request;
use stead_steward::client::Client;
use stead_steward::start::{self, StartError, Started};

#[test]
fn files_and_the_shell_are_the_same_in_the_next_instance() {
    for owner in owners() {
        let Some(cell) = Cell::with(|spec| spec.owner = owner) else { return };
        let mut shell = cell.shell();
        shell.out(
            "echo kept >/workspace/file; echo mine >~/own; mkdir -p /workspace/sub; cd sub; v=1; f() { echo f $v; }",
        );
        assert_eq!(std::fs::read_to_string(cell.work().join("file")).unwrap(), "kept\n");
        let first = cell.first();
        cell.stop();
        assert!(!is_alive(first));
        assert_eq!(cell.start().unwrap(), Started::Now);
        let mut shell = cell.shell();
        assert_eq!(shell.out("pwd; f; cat /workspace/file ~/own"), "/workspace/sub\nf 1\nkept\nmine\n");
    }
}

/// They must be the server's to read, copy and delete.
#[test]
fn files_made_inside_belong_outside_to_the_owner_of_the_workspace() {
    use std::os::unix::fs::MetadataExt;
    for owner in owners() {
        let Some(cell) = Cell::with(|spec| spec.owner = owner) else { return };
        cell.shell().out("touch /workspace/file ~/file");
        let wanted = std::fs::metadata(cell.work()).unwrap();
        let made = std::fs::metadata(cell.work().join("file")).unwrap();
        assert_eq!((made.uid(), made.gid()), (wanted.uid(), wanted.gid()), "{owner:?}");
    }
}

#[test]
fn stopping_ends_everything_inside() {
    let Some(cell) = Cell::new() else { return };
    cell.shell().out("(trap '' HUP TERM INT; exec setsid sleep 1000) >/dev/null 2>&1 </dev/null & disown");
    let first = cell.first();
    // Beside the keeper, the steward and the shell.
    wait_for("the daemon", || (inhabitants(first).len() >= 4).then_some(()));
    let all = inhabitants(first);
    cell.stop();
    assert_eq!(all.into_iter().filter(|pid| is_alive(*pid)).collect::<Vec<_>>(), Vec::<i32>::new());
}

#[test]
fn after_the_death_of_its_first_process_it_starts_again_and_recovers() {
    let Some(cell) = Cell::new() else { return };
    for round in 0..3 {
        let mut shell = cell.shell();
        assert_eq!(shell.out("echo ${n:-0}; n=$((n + 1))"), format!("{round}\n"));
        start::end_enclosure(&cell.place()).unwrap();
        assert!(cell.try_client().is_err());
        assert_eq!(cell.start().unwrap(), Started::Now);
    }
    assert_eq!(cell.start().unwrap(), Started::Before);
}

#[test]
fn a_steward_killed_from_inside_comes_back_and_the_shell_lives_on() {
    let Some(cell) = Cell::new() else { return };
    let mut shell = cell.shell();
    let pid = shell.out("v=1; echo $$");
    let steward = shell.client.welcome().pid;
    let exec = shell.exec(format!("echo before; kill -9 {steward}; echo after"));
    let mut seen = Vec::new();
    let info = Client::run(&exec, &mut || cell.try_client(), &mut |told| {
        if let stead_steward::client::Told::Output(chunk) = told {
            seen.extend_from_slice(&chunk.bytes);
        }
    });
    assert_eq!(info.unwrap().ending.unwrap().exit_code, Some(0));
    assert_eq!(String::from_utf8_lossy(&seen), "before\nafter\n");
    shell.client = cell.client();
    assert_ne!(shell.client.welcome().pid, steward);
    assert_eq!(shell.out("echo $$ $v"), format!("{} 1\n", pid.trim()));
}

#[test]
fn a_start_that_fails_says_which_step_did() {
    type Change = fn(&mut Enclosure);
    let cases: [(&str, Change); 4] = [
        ("enter the cgroup of `/nowhere/cgroup.procs`", |spec| {
            spec.cgroup_procs = vec!["/nowhere/cgroup.procs".into()];
        }),
        ("find `/nowhere/work`", |spec| spec.workspace = "/nowhere/work".into()),
        ("`/nowhere/tools`", |spec| spec.read_only = vec!["/nowhere/tools".into()]),
        ("make a place for `/usr/nowhere`", |spec| spec.mount_path = "/usr/nowhere".into()),
    ];
    for (step, change) in cases {
        let Some(cell) = Cell::unstarted(change) else { return };
        match cell.start() {
            Err(StartError::Died { last_words, .. }) => assert!(last_words.contains(step), "{step}: {last_words}"),
            other => panic!("{step}: {other:?}"),
        }
        // What failed once is not in the way of what doesn't.
        let home = cell.dir.path().join("home");
        let good = Enclosure::new(&program(), &cell.place(), &cell.work(), &home);
        let started = start::start_enclosed(&cell.place(), &good, &[], &start::Settings::default());
        assert_eq!(started.unwrap(), Started::Now);
    }
}

/// Whoever is inside can put what it likes into the steward's directory; the host must not follow.
#[test]
fn links_that_were_left_in_its_directory_lead_the_host_nowhere() {
    let (Some(cell), Some(other)) = (Cell::new(), Cell::new()) else { return };
    let victim = other.dir.path().join("victim");
    std::fs::write(&victim, "untouched").unwrap();
    let link = |to: PathBuf, name: &str| format!("rm -f {name}; ln -s '{}' {name};", to.display());
    let mut text = "cd /run/stead/place;".to_owned();
    for name in ["log", "lock", "spec.new", "enclosed.new", "epoch.new"] {
        text.push_str(&link(victim.clone(), name));
    }
    text.push_str(&link(other.place().join("sock"), "sock"));
    let mut shell = cell.shell();
    assert_eq!(code(&shell.run(text)), Some(0));
    assert!(cell.try_client().is_err(), "the host was led to the steward of another");
    start::end_enclosure(&cell.place()).unwrap();
    // Refused or done, but nowhere else.
    let _ = cell.start();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    for name in ["log", "lock"] {
        let _ = std::fs::remove_file(cell.place().join(name));
    }
    assert_eq!(cell.start().unwrap(), Started::Now);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
}

#[test]
fn more_of_the_host_can_be_shown_read_only_where_it_is() {
    let tools = tempfile::Builder::new().prefix("tools-").tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(tools.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(tools.path().join("tool"), "a tool\n").unwrap();
    for owner in owners() {
        let Some(cell) = Cell::with(|spec| {
            spec.owner = owner;
            spec.read_only = vec![tools.path().to_owned(), tools.path().join("tool")];
        }) else {
            return;
        };
        let mut shell = cell.shell();
        let path = tools.path().display();
        assert_eq!(shell.out(&format!("cat {path}/tool")), "a tool\n");
        assert_ne!(code(&shell.run(format!("echo >{path}/other"))), Some(0));
    }
    assert!(!Path::new(&tools.path().join("other")).exists());
}

#[test]
fn asking_it_to_shut_down_is_enough() {
    let Some(cell) = Cell::new() else { return };
    let first = cell.first();
    cell.client().request(&Request::Shutdown).unwrap();
    wait_for("the end of the first process", || (!is_alive(first)).then_some(()));
}

#[test]
fn orphans_are_reaped() {
    let Some(cell) = Cell::new() else { return };
    let mut shell = cell.shell();
    shell.out("for i in 1 2 3 4 5 6 7 8 9; do (setsid true & setsid sleep 0.01 &) >/dev/null 2>&1; done");
    wait_for("the last orphan", || {
        shell.out("ps -eo ppid=,comm= | grep -cE '^ *1 (true|sleep)'; true").starts_with('0').then_some(())
    });
}

/// The next start makes a place for the workspace in a directory that whoever was inside before could write.
#[test]
fn a_link_in_the_way_of_the_workspace_leads_nowhere() {
    let nested = |spec: &mut Enclosure| spec.mount_path = "/home/agent/deep/work".into();
    let Some(cell) = Cell::with(nested) else { return };
    assert_eq!(cell.shell().out("cd ~/deep/work && echo here >file; cat ~/deep/work/file"), "here\n");
    cell.stop();
    let deep = cell.dir.path().join("home/deep");
    std::fs::remove_dir_all(&deep).unwrap();
    std::os::unix::fs::symlink("/old/var/tmp", &deep).unwrap();
    match cell.start() {
        Err(StartError::Died { last_words, .. }) => assert!(last_words.contains("symbolic link"), "{last_words}"),
        other => panic!("{other:?}"),
    }
    assert!(!Path::new("/var/tmp/work").exists());
}
