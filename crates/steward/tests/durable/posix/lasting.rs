//! What stays between commands, and what stays when the shell itself does not.

use super::{Bench, in_both};
use crate::rig::{code, seen};
use stead_model::shell::Dialect;
use stead_model::state::Bytes;

in_both! {
    it_is_the_shell_that_was_asked_for_and_says_what_it_cannot_keep
    directories_variables_aliases_masks_options_and_functions_persist_between_commands
    the_exit_status_is_there_for_the_next_command
    a_killed_shell_comes_back_with_all_but_its_functions
    values_of_any_bytes_come_back_exactly
    an_exit_is_recovered_from_with_what_it_left
    traps_come_back
    a_variable_that_was_unset_or_taken_from_the_environment_stays_so
    nothing_changes_when_nothing_is_done
    a_state_can_be_taken_to_another_shell
}

fn it_is_the_shell_that_was_asked_for_and_says_what_it_cannot_keep(bench: &mut Bench) {
    let info = bench.shell.info();
    assert_eq!((info.dialect, info.captures_functions), (Dialect::Posix, false));
    let name = bench.shell.out("readlink /proc/$$/exe");
    assert!(name.ends_with("dash\n") || name.contains("busybox"), "{name}");
    assert_eq!(bench.shell.out("echo ${BASH_VERSION-none} $$"), format!("none {}\n", bench.shell.pid()));
}

const MAKE: &str = "cd /usr; plain='a  b'; export handed=\"it's\"; alias greet='echo hello'; umask 027; set -o noglob; set -u; f() { echo \"f $1\"; }";
const LOOK: &str =
    "pwd; echo \"$plain\"; printenv handed; greet; umask; echo *; set -o | grep nounset | tr -s ' \\t' ' '";
const SEEN: &str = "/usr\na  b\nit's\nhello\n0027\n*\nnounset on\n";

fn directories_variables_aliases_masks_options_and_functions_persist_between_commands(bench: &mut Bench) {
    let pid = bench.shell.pid();
    assert_eq!(bench.shell.out(MAKE), "");
    assert_eq!(bench.shell.out(LOOK), SEEN);
    assert_eq!(bench.shell.out("f x"), "f x\n");
    assert_eq!(bench.shell.out("plain=other; cd /; umask 022; set +f"), "");
    assert_eq!(bench.shell.out("echo $plain $PWD; umask"), "other /\n0022\n");
    assert_eq!(bench.shell.pid(), pid);
}

fn the_exit_status_is_there_for_the_next_command(bench: &mut Bench) {
    for status in [0, 1, 3, 42, 127, 255] {
        assert_eq!(code(&bench.shell.run(format!("(exit {status})"))), Some(status));
        assert_eq!(bench.shell.out("echo $?"), format!("{status}\n"));
    }
    bench.shell.run("no_such_program_anywhere");
    assert_eq!(bench.shell.out("echo $?"), "127\n");
}

fn a_killed_shell_comes_back_with_all_but_its_functions(bench: &mut Bench) {
    bench.shell.out(MAKE);
    bench.kill_shell();
    assert_eq!(bench.shell.out(LOOK), SEEN);
    let (status, stdout, stderr) = seen(&bench.shell.run("f x"));
    assert_eq!((status, stdout.as_str()), (Some(127), ""), "functions can't be captured in such a shell: {stderr}");
}

fn values_of_any_bytes_come_back_exactly(bench: &mut Bench) {
    // Two bytes are busybox's own marks and are kept out of this test; what it does with them is its affair.
    let bytes: Vec<u8> = (1..=255).filter(|byte| !(0x80..=0x8f).contains(byte)).collect();
    let quoted = stead_model::word::quote(&bytes);
    let set = [
        b"plain=".as_slice(),
        &quoted,
        b"; export out=",
        &quoted,
        b"; tricky='export FAKE=1\nalias x=y'; ends='line\n\n'",
    ]
    .concat();
    assert_eq!(code(&bench.shell.run(set)), Some(0));
    let before = bench.shell.state();
    assert_eq!(before.env_delta().get(b"out".as_slice()), Some(&Some(Bytes(bytes.clone()))));
    assert!(!before.variables.contains_key(b"FAKE".as_slice()), "text in a value was taken for a declaration");
    bench.kill_shell();
    assert!(bench.shell.run("printf %s \"$plain\"").stdout == bytes, "a plain variable differs");
    assert!(
        bench.shell.run("printenv out").stdout == [bytes.as_slice(), b"\n"].concat(),
        "an exported variable differs"
    );
    assert_eq!(bench.shell.out("printf %s \"$tricky|$ends|${FAKE-no}\""), "export FAKE=1\nalias x=y|line\n\n|no");
    assert_eq!(bench.shell.state(), before);
}

fn an_exit_is_recovered_from_with_what_it_left(bench: &mut Bench) {
    let pid = bench.shell.pid();
    let outcome = bench.shell.run("cd /usr; kept='a b'; alias k='echo alias'; umask 077; exit 7");
    let ending = outcome.info.ending.unwrap();
    assert_eq!((ending.exit_code, ending.shell_exited, ending.signal), (Some(7), true, None));
    assert_eq!(bench.shell.out("echo $kept; pwd; k; umask"), "a b\n/usr\nalias\n0077\n");
    assert_ne!(bench.shell.pid(), pid);
}

fn traps_come_back(bench: &mut Bench) {
    bench.shell.out("trap 'echo usr \"$x\"' USR1; trap '' USR2; x='it'\\''s'");
    bench.kill_shell();
    assert_eq!(bench.shell.out("kill -USR1 $$; kill -USR2 $$; echo alive"), "usr it's\nalive\n");
}

fn a_variable_that_was_unset_or_taken_from_the_environment_stays_so(bench: &mut Bench) {
    bench.shell.out("unset HOME; t=$TERM; unset TERM; TERM=$t; unset t; export NEW=1");
    let delta = bench.shell.state().env_delta();
    let expected = [("HOME", None), ("NEW", Some(Bytes::from("1"))), ("TERM", None)]
        .map(|(name, value)| (Bytes::from(name), value));
    assert_eq!(delta, expected.into());
    bench.kill_shell();
    assert_eq!(
        bench.shell.out("echo ${HOME-none} $TERM; printenv TERM || echo unexported"),
        "none xterm\nunexported\n"
    );
    assert_eq!(bench.shell.state().env_delta(), delta);
}

fn nothing_changes_when_nothing_is_done(bench: &mut Bench) {
    bench.shell.out("x=1; cd .");
    for (text, changed) in [
        ("true", false),
        ("x=1", false),
        ("{ :; }", false),
        ("x=2", true),
        ("cd /", true),
        ("echo $x >/dev/null", false),
        ("(y=1)", false),
    ] {
        let info = bench.shell.run(text).info;
        let ending = info.ending.unwrap();
        assert_eq!((ending.state_changed, ending.warnings), (changed, Vec::new()), "{text}");
    }
}

fn a_state_can_be_taken_to_another_shell(bench: &mut Bench) {
    bench.shell.out(MAKE);
    let stored = bench.shell.stored();
    let mut open = crate::rig::open_shell("other", bench.program.clone(), &bench.rig.scratch());
    open.state = Some(stored.state.clone());
    let mut other = crate::rig::TestShell::open(bench.rig.client(), open);
    assert_eq!(other.out(LOOK), SEEN);
    other.out("{ :; }");
    assert_eq!(other.state(), minicbor::decode(&stored.state).unwrap());
}
