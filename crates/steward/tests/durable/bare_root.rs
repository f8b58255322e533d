//! The static steward in the smallest places it must live in: a root directory with busybox alone, and one with bash.

mod root;

use crate::rig::{TestShell, code, fresh_id, open_shell, seen, wait_for};
use root::{Contents, Devices, Root, program};
use std::path::Path;
use stead_model::proto::{Exec, FaultCode, Program, Request, Status};
use stead_model::shell::Dialect;
use stead_steward::client::{Client, Told};

/// What the issue allows it with no shell open.
const LARGEST_RESIDENT: u64 = 4 << 20;

#[test]
fn the_program_needs_no_loader_and_no_library() {
    let elf = std::fs::read(program()).unwrap();
    assert_eq!(elf[..6], *b"\x7fELF\x02\x01", "not a little-endian 64-bit program");
    // elf(5): where the program headers lie, how large each is, how many there are.
    let number = |at: usize, size: usize| {
        elf[at..at + size].iter().rev().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let kinds: Vec<usize> = (0..count).map(|header| number(table + header * size, 4)).collect();
    assert!(kinds.contains(&1), "no part of it is to be loaded: {kinds:?}");
    assert!(!kinds.contains(&3), "it asks for a dynamic loader (PT_INTERP): {kinds:?}");
}

#[test]
fn it_stays_small_as_long_as_it_has_no_shell() {
    let root = Root::new(Contents::Busybox, Devices::Null);
    let mut client = root.client();
    assert_eq!(client.request(&Request::Shells).unwrap(), stead_model::proto::Reply::Shells(Vec::new()));
    for (role, resident) in root.resident() {
        assert!(
            resident > 0 && resident <= LARGEST_RESIDENT,
            "the {role} has {resident} bytes in memory, at most {LARGEST_RESIDENT} are allowed"
        );
    }
}

#[test]
fn it_works_where_there_is_only_busybox() {
    works_in(&Root::new(Contents::Busybox, Devices::Terminals), Dialect::Posix);
}

/// A shell needs a terminal to have its jobs under control; where there can be none it says what is missing.
#[test]
fn where_no_terminal_is_to_be_had_it_says_what_to_mount() {
    for contents in [Contents::Busybox, Contents::Bash] {
        let root = Root::new(contents, Devices::Null);
        let open = open_shell("main", Program::Best, Path::new("/tmp"));
        let refused = root.client().request(&Request::OpenShell(Box::new(open))).unwrap_err();
        assert_eq!(refused.fault(), Some(FaultCode::Unsupported));
        assert!(refused.to_string().contains("devpts"), "{refused}");
    }
}

#[test]
fn it_works_where_bash_was_added() {
    bash_works_in(&Root::new(Contents::Bash, Devices::Terminals));
}

fn bash_works_in(root: &Root) {
    let mut shell = works_in(root, Dialect::Bash);
    shell.out("f() { echo \"f $kept\"; }");
    shell.run("exit 4");
    assert_eq!(shell.out("f"), "f 1\n");
}

#[track_caller]
fn works_in(root: &Root, dialect: Dialect) -> TestShell {
    let mut open = open_shell("main", Program::Best, Path::new("/tmp"));
    open.env.retain(|(name, _)| name.0 != b"LANG");
    let mut shell = TestShell::open(root.client(), open);
    assert_eq!(shell.info().dialect, dialect);
    assert_eq!(shell.out("cd /bin; export handed='it'\\''s'; kept=1"), "");
    let outcome = shell.run("pwd; echo $handed $kept; echo err >&2; (exit 3)");
    assert_eq!(seen(&outcome), (Some(3), "/bin\nit's 1\n".to_owned(), "err\n".to_owned()));
    assert_eq!(
        shell.run("for i in $(seq 1 2000); do echo $i; done").stdout,
        (1..=2000).flat_map(|i| format!("{i}\n").into_bytes()).collect::<Vec<_>>()
    );
    survives_its_death(root, &mut shell);
    shell
}

/// The steward is killed by a command of its own, which runs on, and is heard to its end.
#[track_caller]
fn survives_its_death(root: &Root, shell: &mut TestShell) {
    let (pid, steward, epoch) = (shell.pid(), shell.client.welcome().pid, shell.client.welcome().epoch);
    let exec = Exec::new(
        shell.id.clone(),
        fresh_id(),
        format!("echo before; kill -9 {steward}; echo after; last=seen; (exit 5)"),
    );
    let mut stdout = Vec::new();
    let info = Client::run(&exec, &mut || root.try_client(), &mut |told| {
        if let Told::Output(chunk) = told {
            stdout.extend_from_slice(&chunk.bytes);
        }
    });
    let info = info.unwrap_or_else(|error| panic!("{error}: {error:?}\n{}", root.log()));
    assert_eq!((info.status, info.ending.unwrap().exit_code), (Status::Exited, Some(5)));
    assert_eq!(String::from_utf8_lossy(&stdout), "before\nafter\n");
    shell.client = wait_for("a connection to another steward", || root.try_client().ok());
    assert_ne!((shell.client.welcome().pid, shell.client.welcome().epoch), (steward, epoch));
    assert_eq!((shell.out("echo $kept $last; pwd"), shell.pid()), ("1 seen\n/bin\n".to_owned(), pid));
    let outcome = shell.run("kill -9 $$");
    assert_eq!(code(&outcome), Some(137));
    assert_eq!(shell.out("echo $kept $handed $last; pwd"), "1 it's seen\n/bin\n");
}
