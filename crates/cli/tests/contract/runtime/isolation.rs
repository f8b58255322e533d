//! Two shells of one instance share the machine and nothing else.

use super::Ground;
use crate::bench::Shell;
use stead_model::state::Bytes;

async fn two(ground: &Ground) -> (Shell, Shell) {
    (ground.shell("one").await, ground.shell("two").await)
}

pub(crate) async fn environments_are_apart(ground: &Ground) {
    let mut shells = Vec::new();
    for (name, values) in [("one", ["production", "key1", "db1"]), ("two", ["test", "key2", "db2"])] {
        let mut opening = ground.opening(name);
        let names = ["NODE_ENV", "API_KEY", "DB_HOST"].iter().zip(values);
        opening.surroundings.env.extend(names.map(|(name, value)| (name.as_bytes().to_vec(), value.into())));
        shells.push(ground.open(&opening).await);
    }
    let [one, two] = shells.as_slice() else { unreachable!() };
    let ask = "echo \"$NODE_ENV|$API_KEY|$DB_HOST\"";
    assert_eq!((one.out(ask).await, two.out(ask).await), ("production|key1|db1\n".into(), "test|key2|db2\n".into()));
    one.run("export NEW=one-only; API_KEY=changed").await;
    assert_eq!(one.out("echo $NEW $API_KEY").await, "one-only changed\n");
    assert_eq!(two.out("echo \"value:$NEW $API_KEY\"").await, "value: key2\n");
}

pub(crate) async fn directories_are_apart(ground: &Ground) {
    let (one, two) = two(ground).await;
    one.run("mkdir -p app/src test/unit; cd app").await;
    two.run("cd test").await;
    one.run("cd src").await;
    two.run("cd unit").await;
    let inside = |dir: &str| format!("{}/{dir}\n", ground.cwd());
    assert_eq!((one.out("pwd").await, two.out("pwd").await), (inside("app/src"), inside("test/unit")));
}

pub(crate) async fn functions_and_aliases_are_apart(ground: &Ground) {
    let (one, two) = two(ground).await;
    one.run("greet() { echo \"one: $1\"; }; alias hi='greet alias'").await;
    assert_eq!(one.out("greet x").await, "one: x\n");
    assert_eq!((two.run("greet x").await.code(), two.run("hi").await.code()), (Some(127), Some(127)));
    two.run("greet() { echo \"two: $1\"; }").await;
    assert_eq!((one.out("greet x").await, two.out("greet x").await), ("one: x\n".into(), "two: x\n".into()));
    one.run("set -f; umask 077; shopt -s nullglob").await;
    assert_eq!(two.out("shopt -qo noglob || echo off; umask; shopt -q nullglob || echo off").await, "off\n0022\noff\n");
}

pub(crate) async fn processes_are_shared(ground: &Ground) {
    let (one, two) = two(ground).await;
    let pid = one.out("sleep 1000 >/dev/null 2>&1 & echo $!").await;
    let pid = pid.trim_end();
    // Between fork and exec it is still called as its shell is.
    let named = format!("until grep -qx sleep /proc/{pid}/comm; do :; done; cat /proc/{pid}/comm; kill {pid}");
    assert_eq!(two.out(&named).await, "sleep\n");
    let gone = format!("until ! kill -0 {pid} 2>/dev/null || grep -q 'State:.Z' /proc/{pid}/status; do :; done");
    assert_eq!(two.run(gone).await.code(), Some(0));
    if ground.lives() {
        assert_eq!(one.run(format!("wait {pid}")).await.code(), Some(143));
    }
}

pub(crate) async fn files_are_shared(ground: &Ground) {
    let (one, two) = two(ground).await;
    one.run("echo 'by one' >shared").await;
    assert_eq!(two.out("cat shared; echo 'by two' >>shared").await, "by one\n");
    assert_eq!(one.out("cat shared").await, "by one\nby two\n");
}

pub(crate) async fn commands_of_two_shells_run_at_the_same_time(ground: &Ground) {
    let (one, two) = two(ground).await;
    // Each can only end after the other has begun.
    one.run("mkfifo to_one to_two").await;
    let first = tokio::spawn({
        let one = one.clone();
        async move { one.out("echo one begins; echo from one >to_two; cat to_one; echo one ends").await }
    });
    let second = two.out("echo two begins; cat to_two; echo from two >to_one; echo two ends").await;
    assert_eq!(second, "two begins\nfrom one\ntwo ends\n");
    assert_eq!(first.await.unwrap(), "one begins\nfrom two\none ends\n");
}

pub(crate) async fn commands_fired_together_get_their_own_output(ground: &Ground) {
    let shell = ground.shell("main").await;
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let shell = shell.clone();
            tokio::spawn(async move {
                shell.run(format!("echo START-{n}; sleep 0.01; echo END-{n} >&2; echo END-{n}")).await
            })
        })
        .collect();
    for (n, task) in tasks.into_iter().enumerate() {
        let want = (Some(0), format!("START-{n}\nEND-{n}\n"), format!("END-{n}\n"));
        assert_eq!(task.await.unwrap().seen(), want);
    }
}

pub(crate) async fn a_shell_that_exits_is_not_noticed_by_another(ground: &Ground) {
    let (one, two) = two(ground).await;
    two.run("kept=2").await;
    one.run("export MARKER=before").await;
    assert_eq!(one.run("exit 42").await.code(), Some(42));
    assert_eq!(one.run("kill -9 $$").await.code(), Some(137));
    assert_eq!(one.out("echo \"marker:$MARKER\"").await, "marker:before\n");
    assert_eq!(two.out("echo \"marker:$MARKER $kept\"").await, "marker: 2\n");
}

pub(crate) async fn a_shell_by_another_name_knows_nothing(ground: &Ground) {
    let (one, two) = two(ground).await;
    one.run("cd /usr; v=1").await;
    two.runtime.capture().await.unwrap();
    let third = ground.shell("three").await;
    let captured = third.runtime.capture().await.unwrap();
    assert_eq!((captured.version, captured.state.variables.contains_key(b"v".as_slice())), (0, false));
    assert_eq!(third.out("echo ${v-none}; pwd").await, format!("none\n{}\n", ground.cwd()));
    let cwd = third.runtime.capture().await.unwrap().state.cwd;
    assert_eq!(cwd, Bytes::from(ground.cwd().as_bytes()));
}
