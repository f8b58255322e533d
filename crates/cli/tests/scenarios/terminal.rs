//! `test_terminal`: the state as a value. Rows and versions are the store's scenarios.

use crate::rig::{Rig, run};
use crate::scene::*;
use stead_model::state::ShellState;
use stead_server::stead::{NewThread, TerminalView};

#[test]
fn create_default() {
    let state = TerminalView::new(&ShellState { cwd: "/root".into(), ..ShellState::default() }, 0);
    assert_eq!((state.cwd.as_str(), state.version), ("/root", 0));
    assert!(state.env_delta.is_empty() && state.functions.is_empty() && state.aliases.is_empty());
}

/// Asked for with variables, which the first command then has.
#[tokio::test]
async fn create_with_env() {
    let rig = Rig::new("local").await;
    let env_asked = vec![("FOO".to_owned(), b"it's".to_vec()), ("BAR".to_owned(), b"two\nlines".to_vec())];
    let new = NewThread { env: env_asked, cwd: Some(b"/tmp".to_vec()), ..new_thread("t") };
    rig.stead.create_thread(new).await.unwrap();
    assert_eq!(view(&rig, "t").await.env_delta, env(&[("FOO", "it's"), ("BAR", "two\nlines")]));
    let ran = run(&rig.sandbox("t").await, "pwd; echo \"$FOO $BAR\"").await;
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "/tmp\nit's two\nlines\n");
}

fn sample() -> TerminalView {
    TerminalView {
        cwd: "/home/user".to_owned(),
        env_delta: [("SET".to_owned(), Some("1".to_owned())), ("GONE".to_owned(), None)].into(),
        functions: vec!["f".to_owned()],
        aliases: [("ll".to_owned(), "ls -l".to_owned())].into(),
        options: [("extglob".to_owned(), true)].into(),
        umask: Some("0022".to_owned()),
        version: 5,
    }
}

#[test]
fn to_json() {
    let json = serde_json::to_value(sample()).unwrap();
    let expected = serde_json::json!({
        "cwd": "/home/user", "env_delta": {"SET": "1", "GONE": null}, "functions": ["f"], "aliases": {"ll": "ls -l"},
        "options": {"extglob": true}, "umask": "0022", "version": 5,
    });
    assert_eq!(json, expected);
}

#[test]
fn from_json() {
    let text = serde_json::to_string(&sample()).unwrap();
    assert_eq!(serde_json::from_str::<TerminalView>(&text).unwrap(), sample());
}

#[test]
fn from_json_missing_fields() {
    let state: TerminalView = serde_json::from_str(r#"{"cwd": "/x"}"#).unwrap();
    assert_eq!((state.cwd.as_str(), state.version, state.env_delta.len()), ("/x", 0, 0));
    assert!(serde_json::from_str::<TerminalView>(r#"{"version": 1}"#).is_err(), "the directory is not optional");
}
