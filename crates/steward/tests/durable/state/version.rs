//! The version counts commands; `state_changed` tells whether there is anything new in it.

use crate::rig::{Rig, TestShell, code, seen, wait_for};
use rustix::fs::inotify;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use stead_model::proto::{Cancel, FirstSignal, Request, Status};
use stead_model::state::Bytes;

#[track_caller]
fn changed(shell: &mut TestShell, text: &str) -> bool {
    let outcome = shell.run(text);
    let ending = outcome.info.ending.clone().unwrap();
    assert_eq!((code(&outcome), ending.warnings), (Some(0), Vec::new()), "{text}: {:?}", seen(&outcome));
    ending.state_changed
}

#[test]
fn the_version_grows_by_exactly_one_with_each_finished_command() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let first = shell.info().state_version;
    let texts = [
        "true",
        "x=1",
        "x=1",
        "cd /",
        "false",
        "echo 'open",
        "exit 3",
        "f() { :; }",
        "kill -9 $$",
        "nonsense_command",
        "sleep 0 &",
    ];
    for (version, text) in (first + 1..).zip(texts) {
        let info = shell.run(text).info;
        assert_eq!(info.state_version, version, "{text}");
        assert_eq!((shell.info().state_version, shell.stored().version), (version, version), "{text}");
    }
    let before = shell.info().state_version;
    let exec = shell.exec("sleep 1000");
    let command = exec.command.clone();
    shell.submit(exec);
    shell.client.request(&Request::Cancel(Cancel { command: command.clone(), first: FirstSignal::Interrupt })).unwrap();
    let info = shell.end_of(&command).info;
    assert_eq!((info.status, info.state_version), (Status::Cancelled, before + 1));
}

#[test]
fn a_command_that_changes_nothing_says_so_and_one_that_does_says_so_once() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    // From here on `OLDPWD` is there.
    shell.out("cd .");
    let cases = [
        ("true", false),
        ("ls", false),
        ("echo hello", false),
        ("cd /", true),
        ("cd /", true),
        ("cd /", false),
        ("x=1", true),
        ("x=1", false),
        ("x=2", true),
        ("export x", true),
        ("export x", false),
        ("f() { echo f; }", true),
        ("f() { echo f; }", false),
        ("f", false),
        ("alias a=b", true),
        ("alias a=b", false),
        ("set -u", true),
        ("set -u", false),
        ("umask 077", true),
        ("umask 077", false),
        ("unset x", true),
        ("unset x", false),
        ("shopt -s nullglob", true),
        ("(y=1; cd /usr)", false),
        ("for i in 1; do :; done", true),
        ("for i in 1; do :; done", false),
        ("trap 'echo t' USR1", true),
        ("true", false),
        ("set -- a", true),
        ("set -- a", false),
    ];
    for (at, (text, expected)) in cases.into_iter().enumerate() {
        assert_eq!(changed(&mut shell, text), expected, "step {at}: {text}");
    }
}

#[test]
fn the_first_command_of_a_fresh_shell_changes_nothing_if_it_does_nothing() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let fresh = shell.state();
    assert!(!changed(&mut shell, "true"));
    assert_eq!(shell.state(), fresh);
    let (code, stdout, _) = seen(&shell.run("cd -"));
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "a fresh shell has no directory before this one");
}

/// Sees every file that is made or opened in a shell's run directory.
struct Spy {
    events: OwnedFd,
}

impl Spy {
    fn on(run: &Path) -> Self {
        let events = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&events, run, inotify::WatchFlags::CREATE | inotify::WatchFlags::OPEN).unwrap();
        Self { events }
    }

    /// Names that were touched since it was last asked.
    fn names(&self) -> Vec<String> {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.events, &mut buffer);
        let mut names = Vec::new();
        while let Ok(event) = reader.next() {
            names.extend(event.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        names
    }
}

#[test]
fn nothing_is_dumped_when_nothing_but_the_directory_can_have_changed() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.out("true");
    let spy = Spy::on(&rig.path().join("run/1"));
    for text in ["cd /usr", "true", "ls /", "echo a | cat", "cd - >/dev/null", "/bin/false || cd /usr"] {
        shell.run(text);
        let names = spy.names();
        assert!(names.contains(&"c".to_owned()), "{text}: the spy is blind: {names:?}");
        assert!(!names.contains(&"st".to_owned()), "{text}: the state was dumped");
    }
    shell.run("x=1");
    wait_for("the dump after an assignment", || spy.names().contains(&"st".to_owned()).then_some(()));
}

/// The reading of texts must not be fooled: what one of these changed is gone after a kill unless it was captured.
#[test]
fn whatever_way_a_command_changes_the_shell_the_change_is_captured() {
    let gone = "unset\n";
    let cases = [
        ("{unset,LANG}", gone),
        ("{unset,-v,LANG}; true", gone),
        ("test -v 'a[LANG=5]'", "5\n"),
        ("[ -v 'a[LANG=5]' ]", "5\n"),
        ("printf -vLANG new", "new\n"),
        ("printf x >/dev/null; unset LANG", gone),
        ("\\unset LANG", gone),
        ("'unset' LANG", gone),
        ("un''set LANG", gone),
        ("true && unset LANG", gone),
        ("?[n]set LANG", gone),
        ("echo ${LANG:=5}; LANG=5 :; : $((LANG=5))", "5\n"),
        ("cd /; unset LANG", gone),
        ("ls /nowhere 2>&1 || unset LANG", gone),
        ("/bin/true\nunset LANG", gone),
        ("2>/dev/null unset LANG", gone),
    ];
    let mut lost = Vec::new();
    for (text, expected) in cases {
        let rig = Rig::new();
        // For the glob: a name in the directory becomes the command.
        std::fs::write(rig.scratch().join("unset"), "").unwrap();
        let mut shell = rig.shell();
        shell.run(text);
        super::kill_shell(&mut shell);
        let found = shell.out("echo ${LANG-unset}");
        if found != expected {
            lost.push((text, expected, found));
        }
    }
    assert_eq!(lost, Vec::new(), "changes that were acknowledged and not kept: command, expected, found");
}

#[test]
fn the_environment_delta_has_what_was_set_changed_unset_and_taken_back() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    assert_eq!(shell.state().env_delta(), BTreeMap::new());
    shell.run("export NEW='it'\\''s new' EMPTY= PATH=/bin; plain=1; unset HOME; export -n LANG; export TERM=$'a\\nb\\xff'; declare -ax LIST=(1 2)");
    let delta = |pairs: &[(&str, Option<&[u8]>)]| -> BTreeMap<Bytes, Option<Bytes>> {
        pairs.iter().map(|(name, value)| (Bytes::from(name), value.map(Bytes::from))).collect()
    };
    let expected = [
        ("NEW", Some(b"it's new".as_slice())),
        ("EMPTY", Some(b"")),
        ("PATH", Some(b"/bin")),
        ("HOME", None),
        ("LANG", None),
        ("TERM", Some(b"a\nb\xff")),
    ];
    assert_eq!(shell.state().env_delta(), delta(&expected));
    shell.run("export LANG HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=xterm; unset NEW EMPTY LIST");
    assert_eq!(shell.state().env_delta(), delta(&[]));
}
