//! Terminals and their states.

use crate::rig::*;
use stead_model::ids::InstanceId;
use stead_model::state::{Bytes, ShellState};
use stead_model::terminal::{KEPT_STATES, Terminal};
use stead_server::store::{KeptState, Page};

on_every_store![
    every_field_of_a_terminal_comes_back,
    a_taken_id_or_name_is_refused,
    a_terminal_without_its_thread_or_lease_is_refused,
    a_swap_needs_the_generation_and_version_that_are_there,
    a_swap_of_what_is_gone_is_not_found,
    opening_a_terminal_is_a_swap_of_its_generation,
    a_version_that_changed_nothing_keeps_no_state,
    the_content_that_a_version_had_can_be_asked_for,
    the_last_hundred_states_stay,
    a_terminal_can_move_to_another_lease_but_not_to_none,
    deleting_a_terminal_takes_its_states,
    a_terminal_made_again_under_its_id_has_no_old_states,
    lists_are_newest_first,
];

/// A second terminal of a thread.
fn named(name: &str, of: &str, now: u64) -> Terminal {
    Terminal { id: terminal_id(&format!("{of}-{name}")), name: name.into(), ..terminal(of, now) }
}

async fn every_field_of_a_terminal_comes_back(store: Shared) {
    make_thread(&*store, "a", 1).await;
    let mut state =
        ShellState { cwd: Bytes(b"/\xff\0x".to_vec()), umask: Some("0077".into()), ..ShellState::default() };
    state.variables.insert(Bytes::from("A"), Bytes::from("declare -x A=$'\\xff'"));
    state.functions.text = Bytes(vec![b'x'; 300_000]);
    state.traps.insert("EXIT".into(), Bytes::from("echo bye"));
    let whole = Terminal {
        state,
        version: 12,
        content_version: 9,
        generation: 4,
        homes: ["inst-1", "inst-2"].map(|id| InstanceId::parse(id).unwrap()).into(),
        updated_at: at(77),
        ..named("whole", "a", 5)
    };
    store.put_terminal(&whole).await.unwrap();
    assert_eq!(store.terminal(&whole.id).await.unwrap(), Some(whole.clone()));
    let kept = KeptState { version: 9, state: whole.state.clone(), at: at(77) };
    assert_eq!(store.states(&whole.id).await.unwrap(), [kept]);
}

async fn a_taken_id_or_name_is_refused(store: Shared) {
    let (_, first, _) = make_thread(&*store, "a", 1).await;
    make_thread(&*store, "b", 1).await;
    let same_id = Terminal { name: "other".into(), ..first.clone() };
    assert_refused!(store.put_terminal(&same_id).await, AlreadyExists, "terminal", "term-a");
    let same_name = Terminal { id: terminal_id("other"), ..first.clone() };
    assert_refused!(store.put_terminal(&same_name).await, AlreadyExists, "terminal", "default");
    assert_eq!(store.terminal(&first.id).await.unwrap(), Some(first));
    store.put_terminal(&named("build", "a", 2)).await.unwrap();
    store.put_terminal(&named("build", "b", 2)).await.unwrap();
    let before = named("build", "a", 2);
    let renamed = Terminal { name: "default".into(), version: 1, ..before.clone() };
    assert_refused!(store.replace_terminal(&before, &renamed).await, AlreadyExists, "terminal", "default");
    assert_eq!(store.terminal(&before.id).await.unwrap(), Some(before));
}

async fn a_terminal_without_its_thread_or_lease_is_refused(store: Shared) {
    assert_refused!(store.put_terminal(&terminal("a", 1)).await, NotFound, "thread", "thr-a");
    make_thread(&*store, "a", 1).await;
    let nowhere = Terminal { lease: lease_id("none"), ..named("x", "a", 1) };
    assert_refused!(store.put_terminal(&nowhere).await, NotFound, "lease", "lease-none");
    assert_eq!(store.terminal(&nowhere.id).await.unwrap(), None);
}

async fn a_swap_needs_the_generation_and_version_that_are_there(store: Shared) {
    let (_, zero, _) = make_thread(&*store, "a", 1).await;
    let one = next(&zero, in_dir("/one"), 2);
    store.replace_terminal(&zero, &one).await.unwrap();
    assert_refused!(store.replace_terminal(&zero, &one).await, Conflict, "terminal", "term-a");
    let other_runtime = one.open(at(3));
    let of_old_runtime = next(&one, in_dir("/late"), 4);
    store.replace_terminal(&one, &other_runtime).await.unwrap();
    assert_refused!(store.replace_terminal(&one, &of_old_runtime).await, Conflict, "terminal", "term-a");
    assert_eq!(store.terminal(&zero.id).await.unwrap(), Some(other_runtime));
    assert_eq!(store.states(&zero.id).await.unwrap().len(), 2, "what was refused is not kept either");
}

async fn a_swap_of_what_is_gone_is_not_found(store: Shared) {
    let (_, zero, _) = make_thread(&*store, "a", 1).await;
    store.delete_terminal(&zero.id).await.unwrap();
    let one = next(&zero, in_dir("/one"), 2);
    assert_refused!(store.replace_terminal(&zero, &one).await, NotFound, "terminal", "term-a");
    assert_eq!(store.states(&zero.id).await.unwrap(), []);
}

async fn opening_a_terminal_is_a_swap_of_its_generation(store: Shared) {
    let (_, zero, _) = make_thread(&*store, "a", 1).await;
    let opened = zero.open(at(2));
    store.replace_terminal(&zero, &opened).await.unwrap();
    assert_eq!(store.terminal(&zero.id).await.unwrap(), Some(opened.clone()));
    assert_refused!(store.replace_terminal(&zero, &opened).await, Conflict, "terminal", "term-a");
}

async fn a_version_that_changed_nothing_keeps_no_state(store: Shared) {
    let (_, zero, _) = make_thread(&*store, "a", 1).await;
    let one = next(&zero, in_dir("/one"), 2);
    let two = next(&one, in_dir("/one"), 3);
    store.replace_terminal(&zero, &one).await.unwrap();
    store.replace_terminal(&one, &two).await.unwrap();
    assert_eq!(store.terminal(&zero.id).await.unwrap(), Some(two));
    let kept = [
        KeptState { version: 1, state: in_dir("/one"), at: at(2) },
        KeptState { version: 0, state: ShellState::default(), at: at(1) },
    ];
    assert_eq!(store.states(&zero.id).await.unwrap(), kept);
}

async fn the_content_that_a_version_had_can_be_asked_for(store: Shared) {
    let (_, mut now, _) = make_thread(&*store, "a", 1).await;
    for (n, dir) in ["/one", "/one", "/three", "/three", "/five"].into_iter().enumerate() {
        let after = next(&now, in_dir(dir), 10 + n as u64);
        store.replace_terminal(&now, &after).await.unwrap();
        now = after;
    }
    let cases = [(0, 0, ""), (1, 1, "/one"), (2, 1, "/one"), (3, 3, "/three"), (4, 3, "/three"), (5, 5, "/five")];
    for (version, kept, dir) in cases.into_iter().chain([(6, 5, "/five"), (u64::MAX, 5, "/five")]) {
        let state = store.state_at(&now.id, version).await.unwrap().unwrap();
        assert_eq!((state.version, state.state), (kept, in_dir(dir)), "at version {version}");
    }
    assert_eq!(store.state_at(&terminal_id("no"), 3).await.unwrap(), None);
}

async fn the_last_hundred_states_stay(store: Shared) {
    let (_, mut now, _) = make_thread(&*store, "a", 1).await;
    make_thread(&*store, "b", 1).await;
    for n in 1..=KEPT_STATES + 7 {
        let after = next(&now, in_dir(&format!("/{n}")), n);
        store.replace_terminal(&now, &after).await.unwrap();
        now = after;
    }
    let versions: Vec<_> = store.states(&now.id).await.unwrap().into_iter().map(|state| state.version).collect();
    assert_eq!(versions, (8..=KEPT_STATES + 7).rev().collect::<Vec<_>>());
    assert_eq!(store.state_at(&now.id, 7).await.unwrap(), None, "what is forgotten is not guessed");
    assert_eq!(store.state_at(&now.id, 8).await.unwrap().unwrap().state, in_dir("/8"));
    assert_eq!(store.states(&terminal_id("b")).await.unwrap().len(), 1, "those of others are not counted");
}

async fn a_terminal_can_move_to_another_lease_but_not_to_none(store: Shared) {
    let (_, zero, _) = make_thread(&*store, "a", 1).await;
    store.put_lease(&lease("b", 1)).await.unwrap();
    let moved = Terminal { lease: lease_id("b"), version: 1, ..zero.clone() };
    store.replace_terminal(&zero, &moved).await.unwrap();
    assert_eq!(store.terminals_of_lease(&lease_id("b")).await.unwrap(), std::slice::from_ref(&moved));
    let nowhere = Terminal { lease: lease_id("none"), version: 2, ..moved.clone() };
    assert_refused!(store.replace_terminal(&moved, &nowhere).await, NotFound, "lease", "lease-none");
    assert_eq!(store.terminal(&zero.id).await.unwrap(), Some(moved));
}

async fn deleting_a_terminal_takes_its_states(store: Shared) {
    let (thread, terminal, _) = make_thread(&*store, "a", 1).await;
    store.delete_terminal(&terminal.id).await.unwrap();
    assert_eq!(store.terminal(&terminal.id).await.unwrap(), None);
    assert_eq!(store.terminal_named(&thread.id, "default").await.unwrap(), None);
    assert_eq!(store.states(&terminal.id).await.unwrap(), []);
    assert_eq!(store.thread(&thread.id).await.unwrap(), Some(thread));
    store.delete_terminal(&terminal.id).await.unwrap();
}

async fn a_terminal_made_again_under_its_id_has_no_old_states(store: Shared) {
    let (_, zero, _) = make_thread(&*store, "a", 1).await;
    store.replace_terminal(&zero, &next(&zero, in_dir("/old"), 2)).await.unwrap();
    store.delete_terminal(&zero.id).await.unwrap();
    store.put_terminal(&zero).await.unwrap();
    assert_eq!(store.terminal(&zero.id).await.unwrap(), Some(zero.clone()));
    assert_eq!(store.state_at(&zero.id, 9).await.unwrap().unwrap().state, ShellState::default());
}

async fn lists_are_newest_first(store: Shared) {
    make_thread(&*store, "a", 1).await;
    make_thread(&*store, "b", 4).await;
    for (name, now) in [("x", 3), ("y", 2), ("z", 5)] {
        store.put_terminal(&named(name, "a", now)).await.unwrap();
    }
    let ids = |terminals: Vec<Terminal>| terminals.into_iter().map(|t| t.id.to_string()).collect::<Vec<_>>();
    let all = ["term-a-z", "term-b", "term-a-x", "term-a-y", "term-a"];
    assert_eq!(ids(store.terminals(&Page::all()).await.unwrap()), all);
    let rest = Page { limit: 2, after: Some((at(4), "term-b".into())) };
    assert_eq!(ids(store.terminals(&rest).await.unwrap()), all[2..4]);
    let of_a = ["term-a-z", "term-a-x", "term-a-y", "term-a"];
    assert_eq!(ids(store.terminals_of_thread(&thread_id("a")).await.unwrap()), of_a);
    assert_eq!(ids(store.terminals_of_lease(&lease_id("a")).await.unwrap()), of_a);
}
