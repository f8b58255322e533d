//! What a shell is like from one command to the next, and from one shell to another.

use super::{Ground, refusal};
use crate::bench::exec;
use std::fs;
use stead_model::proto::{Exec, FaultCode, Status};
use stead_model::state::{Bytes, ShellState};

/// What to do, what to ask then, what the answer is.
const KEPT: [(&str, &str, &str); 22] = [
    ("cd /usr/bin; cd /usr", "pwd; echo $OLDPWD; readlink /proc/self/cwd", "/usr\n/usr/bin\n/usr\n"),
    ("export E='a b  c'", "printenv E", "a b  c\n"),
    ("export L=$'two\\nlines\\t\\'q\\' \"d\" $x `y` \\\\'", "printf %s \"$L\" | od -An -c | tr -d ' \\n'", ""),
    ("plain=1; plain=2", "echo $plain; env | grep -c ^plain || :", "2\n0\n"),
    ("a=(x 'y z' [5]=five)", "echo ${#a[@]} \"${a[1]}\" ${a[5]} ${!a[@]}", "3 y z five 0 1 5\n"),
    ("declare -A m=([k]=v ['a b']=c)", "echo ${m[k]} \"${m[a b]}\"", "v c\n"),
    ("declare -i n=3", "n+=4; echo $n", "7\n"),
    ("readonly R=fixed", "(R=x) 2>/dev/null || echo $R", "fixed\n"),
    ("f() { echo \"f $1\"; }", "f x", "f x\n"),
    ("g() { cat <<END\n}\nEND\n}", "g", "}\n"),
    ("h() { echo exported; }; export -f h", "bash -c h", "exported\n"),
    ("alias hi='echo hello'", "hi you", "hello you\n"),
    ("shopt -s nullglob extglob", "shopt nullglob extglob | tr -s ' \\t' ' '", "nullglob on\nextglob on\n"),
    ("set -o pipefail; set -f", "set -o | grep -E 'pipefail|noglob' | tr -s ' \\t' ' '", "noglob on\npipefail on\n"),
    ("umask 027", "umask; touch made-$$; stat -c %a made-$$; rm made-$$", "0027\n640\n"),
    ("trap 'echo got' USR1", "kill -USR1 $BASHPID; :", "got\n"),
    ("trap '' PIPE", "trap -p PIPE", "trap -- '' SIGPIPE\n"),
    ("set -- one 'two three'", "echo $#; echo \"$2\"", "2\ntwo three\n"),
    ("pushd /etc >/dev/null; pushd /usr >/dev/null", "dirs -p | head -2", "/usr\n/etc\n"),
    ("IFS=:", "v=a:b; echo $v", "a b\n"),
    ("export EMPTY=", "printenv EMPTY", "\n"),
    ("bytes=$'\\xff\\xfe'", "printf %s \"$bytes\" | od -An -tx1 | tr -d ' '", "fffe\n"),
];

pub(crate) async fn what_a_command_sets_is_there_for_the_next(ground: &Ground) {
    for (n, (set, ask, want)) in KEPT.iter().enumerate() {
        let shell = ground.shell(&format!("kept{n}")).await;
        // By what bash itself says where it is easier than to write it down.
        let want = if want.is_empty() { shell.out(&format!("{set}; {ask}")).await } else { (*want).to_owned() };
        let shell = ground.shell(&format!("also{n}")).await;
        assert_eq!(shell.run(*set).await.seen(), (Some(0), String::new(), String::new()), "{set}");
        assert_eq!(shell.run("true").await.code(), Some(0));
        assert_eq!(shell.run(*ask).await.seen(), (Some(0), want, String::new()), "after {set}");
    }
}

pub(crate) async fn what_a_command_unsets_is_gone_for_the_next(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("export A=1 B=2; p=3; f() { :; }; g() { :; }; alias x=y; shopt -s nullglob; trap 'echo' USR1").await;
    shell.run("unset A p; export -n B; unset -f f; unalias x; shopt -u nullglob; trap - USR1; unset LANG").await;
    let ask = "echo ${A-none} ${p-none} ${LANG-none} $B; env | grep -c ^B= ; declare -F f; declare -F g; alias; trap -p USR1; shopt -q nullglob || echo off";
    assert_eq!(shell.run(ask).await.seen().1, "none none none 2\n0\ng\noff\n");
}

pub(crate) async fn the_status_of_a_command_is_there_for_the_next(ground: &Ground) {
    let shell = ground.shell("main").await;
    for code in [0, 1, 7, 126, 127, 255] {
        assert_eq!(shell.run(format!("(exit {code})")).await.code(), Some(code));
        assert_eq!(shell.out("echo $?").await, format!("{code}\n"));
    }
    assert_eq!(shell.run("kill -TERM $BASHPID | :; (kill -9 $BASHPID)").await.code(), Some(137));
    assert_eq!(shell.out("echo $?").await, "137\n");
}

pub(crate) async fn the_version_grows_by_one_with_each_command(ground: &Ground) {
    let shell = ground.shell("main").await;
    assert_eq!(shell.runtime.capture().await.unwrap().version, 0);
    for (n, text) in ["cd /", "true", "cd /tmp", "false", "exit 3", "syntax (", "v=1"].into_iter().enumerate() {
        let info = shell.run(text).await.info;
        let version = n as u64 + 1;
        assert_eq!((info.state_version, shell.runtime.capture().await.unwrap().version), (version, version), "{text}");
    }
    assert_eq!(&shell.runtime.capture().await.unwrap().state.cwd[..], b"/tmp");
}

pub(crate) async fn a_change_of_state_is_told_and_its_absence_too(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("true").await;
    for (text, changes) in [
        ("true", false),
        ("echo x", false),
        ("false", false),
        ("v=1", true),
        ("v=1", false),
        ("cd /usr", true),
        ("cd .; cd /usr", true),
        ("cd /usr", false),
        ("f() { :; }", true),
        ("f", false),
        ("(v=2; cd /)", false),
        ("alias a=b", true),
        ("umask 077", true),
        ("set -f", true),
        ("unset v", true),
        ("v=2 true", false),
    ] {
        assert_eq!(shell.run(text).await.ending().state_changed, changes, "{text}");
    }
}

/// Everything at once.
const LIVED_IN: &str = "cd /usr; cd /etc; export E=$'a\\nb' E2=x; p='plain value'; a=(1 2); declare -A m=([k]=v); unset LANG; \
    f() { echo f; }; g() { cat <<X\n'$1'\nX\n}; export -f g; alias l='ls -l'; shopt -s nullglob; set -o pipefail; \
    umask 027; trap 'echo usr' USR1; set -- x 'y z'; pushd /tmp >/dev/null; enable -n test";

pub(crate) async fn a_captured_state_opens_an_equal_shell(ground: &Ground) {
    let first = ground.shell("first").await;
    assert_eq!(first.run(LIVED_IN).await.seen(), (Some(0), String::new(), String::new()));
    let captured = first.runtime.capture().await.unwrap();
    assert_ne!(captured.state, ShellState::default());
    let second = ground.with("second", &captured.state, captured.version).await;
    assert_eq!(second.runtime.capture().await.unwrap(), captured);
    assert!(!second.run("true").await.ending().state_changed);
    let again = second.runtime.capture().await.unwrap();
    assert_eq!((again.version, again.state), (captured.version + 1, captured.state));
    assert_eq!(
        second.out("pwd; echo \"$E|$p|${a[1]}|${m[k]}|$2\"; f; umask").await,
        "/tmp\na\nb|plain value|2|v|y z\nf\n0027\n"
    );
}

async fn across(from: crate::bench::Make, to: crate::bench::Make) {
    let (Some(from), Some(to)) = (Ground::new(from).await, Ground::new(to).await) else { return };
    let first = from.shell("first").await;
    first.run(LIVED_IN).await;
    let captured = first.runtime.capture().await.unwrap();
    let second = to.with("second", &captured.state, captured.version).await;
    second.run("true").await;
    let again = second.runtime.capture().await.unwrap();
    assert_eq!(again.version, captured.version + 1);
    let (one, other) = (captured.state, again.state);
    assert_eq!((&one.cwd, &one.oldpwd, &one.dirs, &one.args), (&other.cwd, &other.oldpwd, &other.dirs, &other.args));
    let own = |state: &ShellState| {
        let mut delta = state.env_delta();
        // Each has a home of its own.
        delta.remove(b"HOME".as_slice());
        delta
    };
    assert_eq!(own(&one), own(&other));
    assert_eq!((one.functions, one.aliases, one.umask), (other.functions, other.aliases, other.umask));
    assert_eq!((one.traps, one.disabled), (other.traps, other.disabled));
    assert_eq!(second.out("echo \"$E|$p|${a[1]}|${m[k]}|$2\"; f; l -d /").await.lines().next(), Some("a"));
}

#[tokio::test]
async fn what_was_captured_from_a_living_shell_opens_a_wrapped_one() {
    across(crate::bench::local, crate::bench::fake).await;
}

#[tokio::test]
async fn what_was_captured_from_a_wrapped_shell_opens_a_living_one() {
    across(crate::bench::fake, crate::bench::local).await;
}

pub(crate) async fn another_state_can_be_set(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("cd /usr; v=old; export GONE=1; f() { echo old; }").await;
    let donor = ground.shell("donor").await;
    donor.run("cd /etc; v=new; g() { echo new; }").await;
    let state = donor.runtime.capture().await.unwrap().state;
    shell.runtime.set_state(&state, 10).await.unwrap();
    assert_eq!(shell.runtime.capture().await.unwrap().version, 10);
    assert_eq!(shell.run("pwd; echo $v ${GONE-none}; g; f").await.seen().1, "/etc\nnew none\nnew\n");
    let after = shell.runtime.capture().await.unwrap();
    assert_eq!((after.version, &after.state.cwd[..]), (11, b"/etc".as_slice()));
    shell.runtime.set_state(&ShellState { cwd: "/tmp".into(), ..ShellState::default() }, 20).await.unwrap();
    assert_eq!(shell.out("pwd; echo ${v-none}").await, "/tmp\nnone\n");
}

pub(crate) async fn a_state_is_not_set_backwards_or_under_a_command(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("cd /usr").await;
    let state = ShellState { cwd: "/etc".into(), ..ShellState::default() };
    assert_eq!(refusal(shell.runtime.set_state(&state, 1).await), FaultCode::Conflict);
    assert_eq!(refusal(shell.runtime.set_state(&state, 0).await), FaultCode::Conflict);
    let mut gate = super::queue::Gate::new(ground);
    let running = gate.running(&shell).await;
    assert_eq!(refusal(shell.runtime.set_state(&state, 100).await), FaultCode::Busy);
    gate.release();
    running.await.unwrap();
    assert_eq!(shell.out("pwd").await, "/usr\n");
}

pub(crate) async fn a_directory_that_is_gone_is_told_and_its_parent_taken(ground: &Ground) {
    fs::create_dir(ground.outside("there")).unwrap();
    let gone = format!("{}/there/deep/er", ground.cwd());
    let state = ShellState { cwd: Bytes::from(gone.as_bytes()), ..ShellState::default() };
    let shell = ground.with("main", &state, 5).await;
    let outcome = shell.run("pwd").await;
    assert_eq!(outcome.seen().1, format!("{}/there\n", ground.cwd()));
    let codes: Vec<_> = outcome.ending().warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert_eq!(codes, ["cwd_missing"]);
    assert_eq!(shell.run("pwd").await.ending().warnings, Vec::new(), "it is told once");
    assert_eq!(shell.runtime.capture().await.unwrap().version, 7);
}

pub(crate) async fn a_directory_for_one_command_does_not_stick(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("cd /var; cd /usr").await;
    for text in ["pwd; kept=1", "pwd; kept=1; cd /tmp", "pwd; kept=1; exit 3"] {
        let outcome = shell.run_exec(Exec { cwd: Some("/etc".into()), ..exec(text) }).await;
        assert_eq!(outcome.stdout, b"/etc\n", "{text}");
        assert_eq!(&outcome.info.cwd[..], b"/usr");
        assert_eq!(shell.out("pwd; echo $OLDPWD $kept; unset kept").await, "/usr\n/var 1\n", "{text}");
    }
    fs::create_dir(ground.outside("sub dir")).unwrap();
    shell.run(format!("cd {}", ground.cwd())).await;
    let outcome = shell.run_exec(Exec { cwd: Some("sub dir".into()), ..exec("pwd") }).await;
    assert_eq!(outcome.seen().1, format!("{}/sub dir\n", ground.cwd()));
}

pub(crate) async fn variables_for_one_command_do_not_stick(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("export HAD=before; plain=mine").await;
    let value = "quo'te \"double\" $x\nline\\";
    let env = vec![("HAD".into(), "during".into()), ("NEW".into(), value.into()), ("plain".into(), "lent".into())];
    for text in ["printenv HAD plain; printf %s \"$NEW\"", "printenv HAD plain; printf %s \"$NEW\"; HAD=set; exit 0"] {
        let outcome = shell.run_exec(Exec { env: env.clone(), ..exec(text) }).await;
        assert_eq!(outcome.seen(), (Some(0), format!("during\nlent\n{value}"), String::new()));
        assert_eq!(
            shell.out("echo $HAD $plain ${NEW-none}; env | grep -c ^plain= || :").await,
            "before mine none\n0\n"
        );
    }
    let outcome = shell.run_exec(Exec { env, ..exec("kept=1; f() { echo f; }") }).await;
    assert!(outcome.ending().state_changed);
    assert_eq!(shell.out("echo $kept; f").await, "1\nf\n");
}

pub(crate) async fn a_missing_directory_for_one_command_fails_it(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("cd /usr; v=before").await;
    let version = shell.runtime.capture().await.unwrap().version;
    fs::write(ground.outside("file"), "").unwrap();
    let file = format!("{}/file", ground.cwd());
    for cwd in ["/nowhere/at/all", file.as_str()] {
        let text = format!("v=after; touch {}/ran", ground.cwd());
        let outcome = shell.run_exec(Exec { cwd: Some(cwd.into()), ..exec(text) }).await;
        let ending = outcome.ending();
        let seen = (ending.status, ending.exit_code, ending.error.as_ref().map(|fault| fault.code));
        assert_eq!(seen, (Status::Failed, None, Some(FaultCode::NoDirectory)), "{cwd}");
        assert_eq!((outcome.stdout, outcome.stderr), (Vec::new(), Vec::new()));
        assert!(!ground.outside("ran").exists());
    }
    assert_eq!(shell.runtime.capture().await.unwrap().version, version, "nothing ran");
    assert_eq!(shell.out("pwd; echo $v").await, "/usr\nbefore\n");
}

pub(crate) async fn names_that_are_none_are_refused(ground: &Ground) {
    let shell = ground.shell("main").await;
    for name in ["", "A B", "1A", "A=B", "x;touch ran;x", "x\ntouch ran\nx", "a[0]"] {
        let exec = Exec { env: vec![(name.into(), "1".into())], ..exec("touch ran") };
        assert_eq!(refusal(shell.try_exec(exec).await), FaultCode::Invalid, "{name:?}");
    }
    assert_eq!(refusal(shell.try_exec(Exec { cwd: Some("".into()), ..exec("touch ran") }).await), FaultCode::Invalid);
    let nul = Exec { env: vec![("A".into(), "x\0y".into())], ..exec("touch ran") };
    assert_eq!(refusal(shell.try_exec(nul).await), FaultCode::Invalid);
    assert!(!ground.outside("ran").exists());
}
