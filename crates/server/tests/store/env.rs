//! What was asked of a terminal's environment.

use crate::rig::*;
use stead_model::state::Bytes;
use stead_server::store::{AskedEnv, Sealed, SealedSecret, StoreError, TerminalEnv};

on_every_store![
    nothing_was_asked_of_a_new_terminal,
    changes_add_up_and_each_has_its_number,
    secrets_come_back_as_they_were_and_by_name,
    what_was_taken_is_pending_no_more_unless_more_was_asked_since,
    a_name_that_becomes_a_secret_is_no_pending_variable,
    a_terminal_that_is_not_there_is_told_and_nothing_stays,
    it_goes_with_its_terminal,
    changes_at_once_are_all_there,
];

fn vars(all: &[(&str, Option<&str>)]) -> AskedEnv {
    let vars = all.iter().map(|(name, value)| (Bytes::from(name), value.map(Bytes::from))).collect();
    AskedEnv { vars, ..AskedEnv::default() }
}

fn sealed(byte: u8) -> Sealed {
    Sealed { nonce: vec![byte; 24], bytes: vec![byte, 0, 255] }
}

fn secret(name: &str, value: Option<u8>) -> AskedEnv {
    AskedEnv { secrets: [(Bytes::from(name), value.map(sealed))].into(), ..AskedEnv::default() }
}

async fn nothing_was_asked_of_a_new_terminal(store: Shared) {
    make_thread(&*store, "a", 1).await;
    assert_eq!(store.env(&terminal_id("a")).await.unwrap(), TerminalEnv::default());
    assert_eq!(store.env(&terminal_id("nobody")).await.unwrap(), TerminalEnv::default());
}

async fn changes_add_up_and_each_has_its_number(store: Shared) {
    make_thread(&*store, "a", 1).await;
    let id = terminal_id("a");
    let first = store.change_env(&id, &vars(&[("A", Some("1")), ("B", Some("\u{1}"))])).await.unwrap();
    assert_eq!(first.seq, 1);
    let second = store.change_env(&id, &vars(&[("A", None), ("C", Some(""))])).await.unwrap();
    let want = vars(&[("A", None), ("B", Some("\u{1}")), ("C", Some(""))]).vars;
    assert_eq!(second, TerminalEnv { seq: 2, pending: want, secrets: Vec::new() });
    assert_eq!(store.env(&id).await.unwrap(), second);
}

async fn secrets_come_back_as_they_were_and_by_name(store: Shared) {
    make_thread(&*store, "a", 1).await;
    let id = terminal_id("a");
    for (name, value) in [("Z", Some(1)), ("A", Some(2)), ("Z", Some(3)), ("GONE", Some(4)), ("GONE", None)] {
        store.change_env(&id, &secret(name, value)).await.unwrap();
    }
    let kept = |name: &str, revision, value| SealedSecret { name: Bytes::from(name), revision, sealed: sealed(value) };
    assert_eq!(store.env(&id).await.unwrap().secrets, [kept("A", 2, 2), kept("Z", 3, 3)]);
    assert_eq!(store.env(&id).await.unwrap().seq, 5);
}

async fn what_was_taken_is_pending_no_more_unless_more_was_asked_since(store: Shared) {
    make_thread(&*store, "a", 1).await;
    let id = terminal_id("a");
    store.change_env(&id, &vars(&[("A", Some("1"))])).await.unwrap();
    let asked = store.change_env(&id, &secret("S", Some(1))).await.unwrap();
    store.env_taken(&id, 1).await.unwrap();
    assert_eq!(store.env(&id).await.unwrap(), asked);
    store.env_taken(&id, 2).await.unwrap();
    assert_eq!(store.env(&id).await.unwrap(), TerminalEnv { pending: vars(&[]).vars, ..asked });
    assert_eq!(store.change_env(&id, &vars(&[])).await.unwrap().seq, 3, "the numbers go on");
    store.env_taken(&terminal_id("nobody"), 1).await.unwrap();
}

async fn a_name_that_becomes_a_secret_is_no_pending_variable(store: Shared) {
    make_thread(&*store, "a", 1).await;
    let id = terminal_id("a");
    store.change_env(&id, &vars(&[("A", Some("1")), ("B", Some("2"))])).await.unwrap();
    let env = store.change_env(&id, &secret("A", Some(1))).await.unwrap();
    assert_eq!(env.pending, vars(&[("B", Some("2"))]).vars);
    let both = AskedEnv { vars: vars(&[("A", Some("plain"))]).vars, ..secret("A", None) };
    let env = store.change_env(&id, &both).await.unwrap();
    assert_eq!((env.pending, env.secrets), (vars(&[("A", Some("plain")), ("B", Some("2"))]).vars, Vec::new()));
    assert_eq!(store.env(&id).await.unwrap().secrets, []);
}

async fn a_terminal_that_is_not_there_is_told_and_nothing_stays(store: Shared) {
    let asked = AskedEnv { vars: vars(&[("A", None)]).vars, ..secret("S", Some(1)) };
    let refused = store.change_env(&terminal_id("nobody"), &asked).await;
    assert!(matches!(refused, Err(StoreError::NotFound { kind: "terminal", .. })), "{refused:?}");
    assert_eq!(store.env(&terminal_id("nobody")).await.unwrap(), TerminalEnv::default());
}

async fn it_goes_with_its_terminal(store: Shared) {
    let (thread, _, lease) = make_thread(&*store, "a", 1).await;
    let id = terminal_id("a");
    let asked = AskedEnv { vars: vars(&[("A", None)]).vars, ..secret("S", Some(1)) };
    store.change_env(&id, &asked).await.unwrap();
    store.delete_thread(&thread.id).await.unwrap();
    store.delete_lease(&lease.id).await.unwrap();
    make_thread(&*store, "a", 2).await;
    assert_eq!(store.env(&id).await.unwrap(), TerminalEnv::default());
}

async fn changes_at_once_are_all_there(store: Shared) {
    make_thread(&*store, "a", 1).await;
    let id = terminal_id("a");
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let (store, id) = (store.clone(), id.clone());
            tokio::spawn(async move {
                let name = format!("A{number}");
                store.change_env(&id, &vars(&[(name.as_str(), Some("x"))])).await.unwrap().seq
            })
        })
        .collect();
    let mut numbers = Vec::new();
    for task in tasks {
        numbers.push(task.await.unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=20).collect::<Vec<u64>>());
    assert_eq!(store.env(&id).await.unwrap().pending.len(), 20);
}
