//! Names and settings turned against us. Each may change what the user's commands do; none may change what we see.

use super::Survivor;
use crate::rig::{Rig, fate, seen};
use stead_model::proto::{Ending, Status};

/// After `hostile`, commands still run, in the same shell, with their status, output and variables.
#[track_caller]
fn is_harmless(hostile: &str) {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    assert_eq!(fate(&shell.run(hostile)), Ending::new(Status::Exited, Some(0)), "{hostile}");
    let outcome = shell.run("/bin/echo out; /bin/echo err >&2; kept=7; (exit 3)");
    assert_eq!(seen(&outcome), (Some(3), "out\n".into(), "err\n".into()), "{hostile}");
    let outcome = shell.run("/bin/echo \"$$ $mark $kept\"");
    assert_eq!(seen(&outcome), (Some(0), format!("{} still_here 7\n", survivor.pid), String::new()), "{hostile}");
    assert!(shell.state().variables.contains_key(b"kept".as_slice()), "{hostile}");
}

#[test]
fn a_function_in_place_of_echo_is_the_users_own_affair() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    shell.run("echo() { :; }");
    assert_eq!(shell.out("echo silent"), "");
    shell.run("unset -f echo");
    survivor.check(&mut shell);
}

#[test]
fn functions_in_place_of_builtins_do_not_touch_us() {
    is_harmless(
        "echo() { :; }; printf() { :; }; cd() { :; }; trap() { :; }; declare() { :; }; set() { :; }; eval() { :; }",
    );
}

#[test]
fn a_function_in_place_of_the_dot_does_not_touch_us() {
    is_harmless(
        "function . { :; }; source() { :; }; return() { :; }; command() { :; }; umask() { :; }; alias() { :; }",
    );
}

#[test]
fn aliases_in_place_of_builtins_and_keywords_do_not_touch_us() {
    is_harmless("alias builtin=false echo='false' printf=false .=false cd=false trap=false if=false");
}

#[test]
fn an_alias_in_place_of_a_brace_does_not_touch_us() {
    is_harmless("alias '{'=false '}'=false");
}

#[test]
fn field_separators_do_not_touch_us() {
    is_harmless("IFS=/");
    is_harmless("IFS=\"'0123456789 \"");
}

#[test]
fn options_that_change_expansion_and_assignment_do_not_touch_us() {
    is_harmless("set -f");
    is_harmless("set -k");
    is_harmless("set -f -C -a");
    is_harmless("set -o posix");
    is_harmless("shopt -s extdebug failglob nullglob extglob nocasematch xpg_echo");
    is_harmless("set -u -o pipefail");
}

#[test]
fn variables_that_programs_rely_on_may_go() {
    is_harmless("unset PATH HOME PWD OLDPWD TERM LANG IFS");
    is_harmless("PATH= HOME=");
    is_harmless("PATH=/nowhere; readonly PATH");
}

#[test]
fn prompts_do_not_show() {
    is_harmless("PS1='prompt> ' PS2='more> ' PS0='running ' PROMPT_COMMAND='echo prompted; echo prompted >&2'");
}

#[test]
fn a_prompt_command_runs_without_its_output_in_ours() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("count=0; PROMPT_COMMAND='count=$((count + 1)); echo prompted; (exit 9)'");
    assert_eq!(seen(&shell.run("echo one; (exit 2)")), (Some(2), "one\n".into(), String::new()));
    assert_eq!(shell.out("(( count > 0 )) && echo counted"), "counted\n");
}

#[test]
fn tracing_shows_the_users_commands_and_none_of_ours() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let traced = |stderr: String| -> Vec<String> {
        stderr.lines().map(|line| line.trim_start_matches('+').trim().to_owned()).collect()
    };
    let (code, stdout, stderr) = seen(&shell.run("set -x; echo one"));
    assert_eq!((code, stdout.as_str(), traced(stderr)), (Some(0), "one\n", vec!["echo one".to_owned()]));
    let (code, stdout, stderr) = seen(&shell.run("echo two; v=3"));
    assert_eq!(
        (code, stdout.as_str(), traced(stderr)),
        (Some(0), "two\n", vec!["echo two".to_owned(), "v=3".to_owned()])
    );
    let (_, stdout, stderr) = seen(&shell.run("set +x; echo $v"));
    assert_eq!((stdout.as_str(), traced(stderr)), ("3\n", vec!["set +x".to_owned()]));
    assert_eq!(shell.out("echo quiet"), "quiet\n");
}

#[test]
fn verbose_mode_shows_the_users_lines_and_none_of_ours() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("set -v");
    assert_eq!(seen(&shell.run("echo one\necho two")), (Some(0), "one\ntwo\n".into(), "echo one\necho two\n".into()));
    shell.run("set +v");
    assert_eq!(shell.out("echo quiet"), "quiet\n");
}

#[test]
fn a_trace_sent_to_a_descriptor_of_the_user_goes_there() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("exec 7>trace; BASH_XTRACEFD=7");
    shell.run("set -x");
    assert_eq!(shell.out("echo one"), "one\n");
    shell.run("set +x; unset BASH_XTRACEFD");
    let trace = std::fs::read_to_string(rig.scratch().join("trace")).unwrap();
    assert!(trace.contains("echo one"), "{trace}");
}

#[test]
fn a_disabled_builtin_that_we_do_not_need_stays_disabled() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let survivor = Survivor::mark(&mut shell);
    shell.run("enable -n echo");
    assert_eq!(shell.out("type -t echo"), "file\n");
    survivor.check(&mut shell);
}

#[test]
fn a_mask_of_everything_does_not_keep_the_shell_from_its_own_files() {
    is_harmless("umask 777");
}

#[test]
fn commands_without_job_control_run_too() {
    is_harmless("set +m");
}

#[test]
fn a_changed_locale_does_not_touch_us() {
    is_harmless("LC_ALL=C");
    is_harmless("export LC_ALL=no_such_locale 2>/dev/null");
}
