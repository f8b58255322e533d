//! Secrets by the environment call: in the shell, encrypted in the store, and nowhere else.

use super::env::vars;
use crate::rig::{Rig, out, run, thread};
use crate::scene::*;
use std::path::Path;
use stead_model::state::Bytes;
use stead_model::terminal::DEFAULT_NAME;
use stead_server::lease::Force;
use stead_server::stead::{EnvChange, Execute, Secret};

on_each_provider! {
    a_secret_is_in_the_shell_shown_masked_and_on_no_disk,
    a_command_that_names_the_value_is_remembered_without_it,
    a_secret_set_before_asleep_or_while_busy_is_there_for_the_next_command,
    a_row_that_was_altered_or_put_in_anothers_place_is_told,
    a_secret_changes_goes_and_becomes_a_variable,
    a_copy_of_a_terminal_has_its_secrets,
}

in_containers! {
    a_secret_is_in_the_shell_shown_masked_and_on_no_disk,
    a_secret_set_before_asleep_or_while_busy_is_there_for_the_next_command,
}

const VALUE: &str = "s3cr3t-Va1ue";
const LENGTH: &str = "printf %s \"${TOKEN-}\" | wc -c";

fn secret(name: &str, value: Option<&str>) -> EnvChange {
    let secrets = [(Bytes::from(name), value.map(Secret::new))];
    EnvChange { secrets: secrets.into(), ..EnvChange::default() }
}

async fn set(rig: &Rig, name: &str, change: EnvChange) -> Option<Option<String>> {
    super::env::set(rig, name, change).await.get("TOKEN").cloned()
}

/// Every file below a directory that has the value in it, as it is.
fn found_in(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
        if kind.is_dir() {
            found.extend(found_in(&path));
        } else if kind.is_file() {
            let bytes = std::fs::read(&path).unwrap_or_default();
            if bytes.windows(VALUE.len()).any(|window| window == VALUE.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[track_caller]
fn nowhere(rig: &Rig, when: &str) {
    assert_eq!(found_in(rig.path()), [""; 0], "{when}");
}

async fn has_it(sandbox: &stead_server::stead::Sandbox) -> bool {
    out(sandbox, LENGTH).await.trim() == VALUE.len().to_string()
}

async fn a_secret_is_in_the_shell_shown_masked_and_on_no_disk(mut rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    run(&sandbox, "export A=a").await;
    assert_eq!(set(&rig, "t", secret("TOKEN", Some(VALUE))).await, Some(Some("***".to_owned())));
    assert!(has_it(&sandbox).await);
    nowhere(&rig, "used");
    run(&sandbox, "export TOKEN B=b AUTH=\"Bearer $TOKEN\"; f() { echo f; }").await;
    let shown = view(&rig, "t").await.env_delta;
    assert_eq!(shown, env(&[("A", "a"), ("B", "b"), ("TOKEN", "***")]));
    nowhere(&rig, "captured");
    assert_eq!(run(&sandbox, "exit 3").await.exit_code(), Some(3));
    assert!(has_it(&sandbox).await);
    nowhere(&rig, "in another process");
    rig.stead.pause(&thread("t"), Force::No).await.unwrap();
    nowhere(&rig, "asleep");
    assert!(has_it(&sandbox).await);
    rig.restart().await;
    let sandbox = rig.sandbox("t").await;
    assert!(has_it(&sandbox).await);
    nowhere(&rig, "with another server");
    if provider == "fake" {
        rig.stead.destroy(&thread("t"), Force::No).await.unwrap();
    } else {
        kill_instance(&sandbox).await;
    }
    assert!(has_it(&sandbox).await);
    assert_eq!(out(&sandbox, "echo $A $B; f").await, "a b\nf\n");
    nowhere(&rig, "in another instance");
    for kept in rig.stead.states(sandbox.terminal()).await.unwrap() {
        assert!(!kept.state.variables.contains_key(b"TOKEN".as_slice()));
    }
    let key = rig.path().join("secret.key").metadata().unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&key.permissions()) & 0o777, 0o600);
    assert_eq!(count(&rig, "SELECT count(*) FROM terminal_secrets").await, 1);
    rig.stead.delete_thread(&thread("t")).await.unwrap();
    assert_eq!(count(&rig, "SELECT count(*) FROM terminal_secrets").await, 0);
    nowhere(&rig, "deleted");
}

async fn a_command_that_names_the_value_is_remembered_without_it(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    set(&rig, "t", secret("TOKEN", Some(VALUE))).await;
    let text = format!("[ \"$TOKEN\" = '{VALUE}' ] && echo same >same");
    let ran = sandbox.run(execute("c", &text)).await.unwrap();
    assert_eq!(ran.exit_code(), Some(0));
    assert_eq!(ran.command.text.0, b"[ \"$TOKEN\" = '***' ] && echo same >same");
    assert_eq!(command_row(&rig, "c").await.unwrap().text, ran.command.text);
    assert_eq!(sandbox.run(execute("c", &text)).await.unwrap().command.id, ran.command.id, "the same again");
    let failed = Execute { cwd: Some(format!("/no/{VALUE}").into_bytes()), ..Execute::new("true") };
    let told = match sandbox.run(failed).await {
        Ok(ran) => format!("{ran:?}"),
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(!told.contains(VALUE), "{told}");
    rig.stead.terminal(&thread("t"), DEFAULT_NAME).await.unwrap();
    nowhere(&rig, "named in a command");
}

async fn a_secret_set_before_asleep_or_while_busy_is_there_for_the_next_command(rig: Rig, provider: &str) {
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    set(&rig, "t", secret("TOKEN", Some(VALUE))).await;
    assert_eq!(truth(&rig, provider).await, []);
    let sandbox = rig.sandbox("t").await;
    assert!(has_it(&sandbox).await);
    rig.stead.pause(&thread("t"), Force::No).await.unwrap();
    set(&rig, "t", secret("TOKEN", Some("another-1"))).await;
    assert_eq!(out(&sandbox, LENGTH).await.trim(), "9");
    let running = start(&sandbox, Execute::new(format!(": >begun; {}; export N=${{#TOKEN}}", gate("go"))));
    wait_for_file(&sandbox, "begun").await;
    let queued = start(&sandbox, Execute::new("echo $N ${#TOKEN}"));
    set(&rig, "t", secret("TOKEN", Some(VALUE))).await;
    open_gate(&sandbox, "go").await;
    running.await.unwrap().unwrap();
    assert_eq!(queued.await.unwrap().unwrap().stdout, b"9 12\n");
    nowhere(&rig, "after all that");
}

async fn a_row_that_was_altered_or_put_in_anothers_place_is_told(mut rig: Rig, _: &str) {
    for name in ["t", "other"] {
        rig.stead.create_thread(new_thread(name)).await.unwrap();
        let value = format!("{VALUE} of {name}");
        set(&rig, name, secret("TOKEN", Some(&value))).await;
    }
    let other = terminal(&rig, "other").await.id;
    let mine = terminal(&rig, "t").await.id;
    let swap = format!(
        "UPDATE terminal_secrets SET (nonce, sealed) = (SELECT nonce, sealed FROM terminal_secrets WHERE terminal_id = \
         '{other}') WHERE terminal_id = '{mine}'"
    );
    sql(&rig, swap).await;
    rig.restart().await;
    let refused = rig.stead.get_sandbox(stead_server::stead::Where::thread(thread("t"))).await.unwrap_err();
    assert!(matches!(&refused, stead_server::Error::Vault(_)), "{refused:?}");
    assert!(refused.to_string().contains("secret `TOKEN`") && !refused.to_string().contains(VALUE), "{refused}");
    assert_eq!(refused.code(), "unavailable");
    assert_eq!(out(&rig.sandbox("other").await, LENGTH).await.trim(), (VALUE.len() + 9).to_string());
    // Set again, it is as good as new.
    set(&rig, "t", secret("TOKEN", Some(VALUE))).await;
    assert!(has_it(&rig.sandbox("t").await).await);
}

async fn a_secret_changes_goes_and_becomes_a_variable(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    set(&rig, "t", secret("TOKEN", Some("first-value"))).await;
    assert_eq!(out(&sandbox, LENGTH).await.trim(), "11");
    set(&rig, "t", secret("TOKEN", Some(VALUE))).await;
    assert!(has_it(&sandbox).await);
    run(&sandbox, "unset TOKEN").await;
    assert_eq!(view(&rig, "t").await.env_delta.get("TOKEN"), Some(&None), "unset by a command");
    run(&sandbox, "exit 0").await;
    assert_eq!(out(&sandbox, "echo ${TOKEN-gone}").await, "gone\n");
    set(&rig, "t", secret("TOKEN", Some(VALUE))).await;
    assert!(has_it(&sandbox).await, "until it is set again");
    assert_eq!(set(&rig, "t", secret("TOKEN", None)).await.flatten(), None);
    assert_eq!(out(&sandbox, "echo ${TOKEN-gone}").await, "gone\n");
    set(&rig, "t", secret("TOKEN", Some(VALUE))).await;
    assert_eq!(set(&rig, "t", vars(&[("TOKEN", Some("plain"))])).await, Some(Some("plain".to_owned())));
    assert_eq!(out(&sandbox, "echo $TOKEN").await, "plain\n");
    nowhere(&rig, "after all that");
}

async fn a_copy_of_a_terminal_has_its_secrets(rig: Rig, _: &str) {
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    rig.stead.create_thread(new_thread("copy")).await.unwrap();
    let mut change = secret("TOKEN", Some(VALUE));
    change.vars = vars(&[("A", Some("a"))]).vars;
    set(&rig, "t", change).await;
    let (from, to) = (terminal(&rig, "t").await.id, terminal(&rig, "copy").await.id);
    rig.stead.copy_secrets(&from, &to).await.unwrap();
    let copy = rig.sandbox("copy").await;
    assert!(has_it(&copy).await);
    assert_eq!(out(&copy, "echo $A").await, "a\n");
    assert_eq!(view(&rig, "copy").await.env_delta, env(&[("A", "a"), ("TOKEN", "***")]));
    nowhere(&rig, "copied");
}
