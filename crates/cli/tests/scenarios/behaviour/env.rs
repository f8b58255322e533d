//! Variables by the environment call: in force for the next command, whatever became of whom in between.

use crate::rig::{Rig, out, run, thread};
use crate::scene::*;
use stead_model::state::Bytes;
use stead_model::terminal::DEFAULT_NAME;
use stead_server::lease::Force;
use stead_server::stead::{EnvChange, Execute, Secret};

on_each_provider! {
    variables_are_there_for_the_next_command_and_shown_at_once,
    a_running_command_is_not_disturbed_and_a_queued_one_has_them,
    they_are_there_when_the_first_instance_is_made,
    nothing_is_woken_and_they_are_there_after_it_is,
    they_outlive_the_loss_of_the_instance,
    one_bad_name_and_nothing_changes,
    two_hundred_changes_are_as_good_as_the_last,
    a_named_terminal_has_its_own,
    what_is_asked_for_after_a_restart_is_there_too,
}

in_containers! {
    they_are_there_when_the_first_instance_is_made,
    nothing_is_woken_and_they_are_there_after_it_is,
    they_outlive_the_loss_of_the_instance,
    what_is_asked_for_after_a_restart_is_there_too,
}

mod stewards {
    use super::*;
    on_each_steward! { what_runs_on_after_the_server_died_is_told_by_the_next }
}

pub(crate) fn vars(all: &[(&str, Option<&str>)]) -> EnvChange {
    let vars = all.iter().map(|(name, value)| (Bytes::from(name), value.map(Bytes::from))).collect();
    EnvChange { vars, ..EnvChange::default() }
}

pub(crate) async fn set(
    rig: &Rig,
    name: &str,
    change: EnvChange,
) -> std::collections::BTreeMap<String, Option<String>> {
    let terminal = rig.stead.set_env(&thread(name), DEFAULT_NAME, change).await.unwrap();
    let view = stead_server::stead::TerminalView::new(&terminal.state, terminal.version);
    view.env_delta
}

async fn variables_are_there_for_the_next_command_and_shown_at_once(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "export OLD=old GONE=there; cd /usr").await;
    let shown = set(&rig, "t", vars(&[("A", Some("x 'y' $z\n")), ("GONE", None)])).await;
    assert_eq!(shown.get("A"), Some(&Some("x 'y' $z\n".to_owned())));
    assert_eq!(shown.get("GONE").and_then(Option::as_ref), None);
    assert_eq!(view(&rig, "t").await.env_delta, shown);
    assert_eq!(out(&sandbox, "sh -c 'echo \"$A|$OLD|${GONE-gone}\"'; pwd").await, "x 'y' $z\n|old|gone\n/usr\n");
    run(&sandbox, "export A=mine").await;
    assert_eq!(out(&sandbox, "echo $A").await, "mine\n", "a command that changes it later wins");
    assert_eq!(view(&rig, "t").await.env_delta.get("A"), Some(&Some("mine".to_owned())));
}

async fn a_running_command_is_not_disturbed_and_a_queued_one_has_them(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let text = format!("export A=mine B=mine; : >begun; {}; echo $A", gate("go"));
    let running = start(&sandbox, Execute::new(text));
    wait_for_file(&sandbox, "begun").await;
    let queued = start(&sandbox, Execute::new("echo $A $B"));
    let shown = set(&rig, "t", vars(&[("A", Some("asked"))])).await;
    assert_eq!(shown.get("A"), Some(&Some("asked".to_owned())));
    open_gate(&sandbox, "go").await;
    assert_eq!(running.await.unwrap().unwrap().stdout, b"mine\n");
    assert_eq!(queued.await.unwrap().unwrap().stdout, b"asked mine\n");
}

async fn they_are_there_when_the_first_instance_is_made(rig: Rig, provider: &str) {
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    let shown = set(&rig, "t", vars(&[("A", Some("early")), ("HOME", None)])).await;
    assert_eq!((shown.get("A"), shown.get("HOME")), (Some(&Some("early".to_owned())), Some(&None)));
    assert_eq!(truth(&rig, provider).await, [], "nothing is made for it");
    assert_eq!(out(&rig.sandbox("t").await, "echo $A ${HOME-gone}").await, "early gone\n");
    let nobody = rig.stead.set_env(&thread("nobody"), DEFAULT_NAME, vars(&[])).await;
    assert_eq!(nobody.unwrap_err().code(), "not_found");
    let no_terminal = rig.stead.set_env(&thread("t"), "nobody", vars(&[("A", None)])).await;
    assert_eq!(no_terminal.unwrap_err().code(), "not_found");
}

async fn nothing_is_woken_and_they_are_there_after_it_is(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "export A=old K=kept; cd /usr").await;
    rig.stead.pause(&thread("t"), Force::No).await.unwrap();
    let before = truth(&rig, provider).await;
    set(&rig, "t", vars(&[("A", Some("asleep")), ("B", Some("b"))])).await;
    let shown = set(&rig, "t", vars(&[("B", Some("c"))])).await;
    assert_eq!(shown, env(&[("A", "asleep"), ("B", "c"), ("K", "kept")]));
    assert_eq!(truth(&rig, provider).await, before, "and it still sleeps");
    assert_eq!(out(&sandbox, "echo $A $B $K; pwd").await, "asleep c kept\n/usr\n");
    rig.stead.pause(&thread("t"), Force::No).await.unwrap();
    set(&rig, "t", vars(&[("A", Some("again"))])).await;
    rig.stead.resume(&thread("t")).await.unwrap();
    assert_eq!(out(&sandbox, "echo $A").await, "again\n");
}

async fn they_outlive_the_loss_of_the_instance(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "export A=old K=kept").await;
    set(&rig, "t", vars(&[("A", Some("live"))])).await;
    if provider == "fake" {
        rig.stead.destroy(&thread("t"), Force::No).await.unwrap();
    } else {
        kill_instance(&sandbox).await;
    }
    assert_eq!(out(&sandbox, "echo $A $K").await, "live kept\n");
    rig.stead.destroy(&thread("t"), Force::No).await.unwrap();
    set(&rig, "t", vars(&[("A", Some("between"))])).await;
    assert_eq!(out(&sandbox, "echo $A $K").await, "between kept\n");
}

async fn one_bad_name_and_nothing_changes(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "export A=1; readonly R=r").await;
    let before = terminal(&rig, "t").await;
    let long = "x".repeat(200_000);
    let cases = [
        ("9BAD", "v", "invalid_env_name"),
        ("", "v", "invalid_env_name"),
        ("BASHOPTS", "v", "invalid_env_name"),
        ("EUID", "v", "invalid_env_name"),
        ("N", "a\0b", "invalid_request"),
        ("L", long.as_str(), "too_large"),
        ("R", "v", "conflict"),
    ];
    for (name, value, code) in cases {
        let change = vars(&[("A", Some("2")), (name, Some(value))]);
        let refused = rig.stead.set_env(&thread("t"), DEFAULT_NAME, change).await.unwrap_err();
        assert_eq!(refused.code(), code, "{name}");
        let mut change = vars(&[("A", Some("2"))]);
        change.secrets.insert(Bytes::from(name), Some(Secret::new(value)));
        let refused = rig.stead.set_env(&thread("t"), DEFAULT_NAME, change).await.unwrap_err();
        assert_eq!(refused.code(), code, "{name} as a secret");
        assert!(!refused.to_string().contains(value) || value.len() < 4, "{refused}");
    }
    assert_eq!(terminal(&rig, "t").await, before);
    assert_eq!(out(&sandbox, "echo $A").await, "1\n");
}

async fn two_hundred_changes_are_as_good_as_the_last(rig: Rig, _: &str) {
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    for number in 1..=100 {
        set(&rig, "t", vars(&[("A", Some(&number.to_string())), (&format!("N{}", number % 7), Some("n"))])).await;
    }
    let sandbox = rig.sandbox("t").await;
    assert_eq!(out(&sandbox, "echo $A $N6").await, "100 n\n");
    for number in 101..=200 {
        set(&rig, "t", vars(&[("A", Some(&number.to_string()))])).await;
    }
    assert_eq!(out(&sandbox, "echo $A $N0").await, "200 n\n");
}

async fn a_named_terminal_has_its_own(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    rig.stead.create_terminal(&thread("t"), "build", None, &[]).await.unwrap();
    rig.stead.set_env(&thread("t"), "build", vars(&[("A", Some("build"))])).await.unwrap();
    set(&rig, "t", vars(&[("A", Some("default"))])).await;
    assert_eq!(out(&named(&rig, "t", "build").await, "echo $A").await, "build\n");
    assert_eq!(out(&sandbox, "echo $A").await, "default\n");
}

async fn what_is_asked_for_after_a_restart_is_there_too(mut rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "export A=old K=kept; cd /usr").await;
    terminal(&rig, "t").await;
    rig.restart().await;
    set(&rig, "t", vars(&[("A", Some("one"))])).await;
    rig.restart().await;
    set(&rig, "t", vars(&[("B", Some("two"))])).await;
    rig.restart().await;
    assert_eq!(out(&rig.sandbox("t").await, "echo $A $B $K; pwd").await, "one two kept\n/usr\n");
}

async fn what_runs_on_after_the_server_died_is_told_by_the_next(mut rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let running = start(&sandbox, execute("one", &format!("export A=mine; : >begun; {}", gate("go"))));
    wait_for_file(&sandbox, "begun").await;
    let queued = start(&sandbox, execute("two", "echo $A >telling; mv telling told"));
    crate::rig::wait_for("the second to be queued", || async { command_row(&rig, "two").await }).await;
    rig.restart().await;
    set(&rig, "t", vars(&[("A", Some("asked"))])).await;
    open_gate(&sandbox, "go").await;
    drop((running, queued));
    let sandbox = rig.sandbox("t").await;
    assert_eq!(wait_for_file(&sandbox, "told").await.trim(), "asked");
}
