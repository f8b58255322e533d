//! Terminal agents: found by their whole key, changed all or nothing, read from any place on.

use crate::rig::*;
use serde_json::json;
use stead_agent::event::Rule;
use stead_agent::{Event, Policy, SessionKey};
use stead_model::ids::{AgentId, RunId};
use stead_server::store::{
    AgentChange, AgentEvent, AgentProcess, AgentRun, AgentSession, Ending, RunLease, RunStatus, StoreError,
};

on_every_store![
    every_field_of_a_session_comes_back,
    a_taken_key_is_refused_and_one_that_begins_alike_is_not,
    a_change_is_all_or_nothing,
    runs_are_in_order_and_events_from_a_place_on,
    what_is_deleted_takes_its_runs_along,
];

fn session(n: u8, workspace: &str) -> AgentSession {
    AgentSession {
        id: AgentId::made_of([n; 8]),
        key: SessionKey::new("codex", workspace, None),
        project: None,
        thread: thread_id(&format!("agent-{n}")),
        conversation: 0,
        resume: None,
        process: None,
        run: None,
        policy: Policy::default(),
        version: 1,
        created_at: at(u64::from(n)),
        last_used_at: at(u64::from(n)),
    }
}

fn thread_id(text: &str) -> stead_model::ids::ThreadId {
    stead_model::ids::ThreadId::parse(text).unwrap()
}

fn run(n: u8, session: &AgentSession, now: u64) -> AgentRun {
    AgentRun {
        id: RunId::made_of([n; 8]),
        session: session.id.clone(),
        conversation: session.conversation,
        message: "hello\n\"there\"".to_owned(),
        policy: Some(Policy::all(Rule::Deny)),
        status: RunStatus::Queued,
        last_seq: 0,
        created_at: at(now),
        started_at: None,
        ended_at: None,
    }
}

fn event(run: &AgentRun, seq: u64) -> AgentEvent {
    AgentEvent { run: run.id.clone(), seq, at: at(seq), event: Event::Delta { text: format!("piece {seq}") } }
}

async fn every_field_of_a_session_comes_back(store: Shared) {
    let process = AgentProcess {
        command: "agent-1.1".into(),
        machine: json!({"acp": {"state": "ready"}}),
        seen: 3,
        read: 400,
        sent: 20,
        unsent: "{}\n".into(),
        resumed: Some(true),
        turns: 2,
        ending: Some(Ending::Asked),
    };
    let whole = AgentSession {
        project: Some(project("a-00000001")),
        policy: Policy { default: Rule::Allow, tools: [("delete".to_owned(), Rule::Deny)].into() },
        conversation: 4,
        resume: Some("thread-1".into()),
        process: Some(process),
        run: Some(RunLease { run: RunId::made_of([9; 8]), until: at(99) }),
        ..session(1, "/ws/p1")
    };
    store.put_agent_session(&whole).await.unwrap();
    assert_eq!(store.agent_session(&whole.id).await.unwrap(), Some(whole.clone()));
    assert_eq!(store.agent_session_by_key(&whole.key).await.unwrap(), Some(whole.clone()));
    assert_eq!(store.live_agent_sessions().await.unwrap(), [whole]);
}

async fn a_taken_key_is_refused_and_one_that_begins_alike_is_not(store: Shared) {
    store.put_agent_session(&session(1, "/ws/p1")).await.unwrap();
    let again = store.put_agent_session(&session(2, "/ws/p1")).await;
    assert!(matches!(again, Err(StoreError::AlreadyExists { kind: "agent session", .. })), "{again:?}");
    store.put_agent_session(&session(3, "/ws/p10")).await.unwrap();
    let mut other = session(4, "/ws/p1");
    other.key.model = "m".into();
    store.put_agent_session(&other).await.unwrap();
    let of = |workspace: &'static str| {
        let store = store.clone();
        async move {
            let all = store.agent_sessions_of_workspace(workspace).await.unwrap();
            all.into_iter().map(|session| session.key.to_string()).collect::<Vec<_>>()
        }
    };
    assert_eq!(of("/ws/p1").await, ["codex:/ws/p1:default", "codex:/ws/p1:m"]);
    assert_eq!(of("/ws/p10").await, ["codex:/ws/p10:default"]);
    assert_eq!(of("/ws").await, Vec::<String>::new());
    let page = stead_server::store::Page::all();
    assert_eq!(store.agent_sessions(&page).await.unwrap().len(), 3);
    assert!(store.live_agent_sessions().await.unwrap().is_empty());
}

async fn a_change_is_all_or_nothing(store: Shared) {
    let (one, other) = (session(1, "/a"), session(2, "/b"));
    for session in [&one, &other] {
        store.put_agent_session(session).await.unwrap();
    }
    let next = |session: &AgentSession| AgentSession { version: session.version + 1, ..session.clone() };
    let stale = AgentSession { version: 7, ..other.clone() };
    let first = run(1, &one, 5);
    let change = AgentChange {
        sessions: vec![(one.clone(), next(&one)), (stale, next(&other))],
        runs: vec![first.clone()],
        events: vec![event(&first, 1)],
        ..AgentChange::default()
    };
    let refused = store.change_agents(&change).await;
    assert!(matches!(refused, Err(StoreError::Conflict { kind: "agent session", .. })), "{refused:?}");
    assert_eq!(store.agent_session(&one.id).await.unwrap(), Some(one.clone()));
    assert_eq!(store.agent_run(&first.id).await.unwrap(), None);

    let change = AgentChange { sessions: vec![(one.clone(), next(&one)), (other.clone(), next(&other))], ..change };
    store.change_agents(&change).await.unwrap();
    assert_eq!(store.agent_session(&other.id).await.unwrap(), Some(next(&other)));
    let again = AgentChange { sessions: vec![], ..change };
    assert!(store.change_agents(&again).await.is_err(), "the same event twice");
}

async fn runs_are_in_order_and_events_from_a_place_on(store: Shared) {
    let one = session(1, "/a");
    store.put_agent_session(&one).await.unwrap();
    let runs = [run(3, &one, 5), run(1, &one, 6), run(2, &one, 7)];
    for run in &runs {
        store.put_agent_run(run).await.unwrap();
    }
    let taken = store.put_agent_run(&runs[0]).await;
    assert!(matches!(taken, Err(StoreError::AlreadyExists { kind: "run", .. })), "{taken:?}");
    let done = AgentRun { status: RunStatus::Done, last_seq: 3, ended_at: Some(at(9)), ..runs[0].clone() };
    let events = (1..=3).map(|seq| event(&done, seq)).collect();
    store.change_agents(&AgentChange { runs: vec![done.clone()], events, ..AgentChange::default() }).await.unwrap();
    assert_eq!(store.open_agent_runs(&one.id).await.unwrap(), runs[1..]);
    assert_eq!(store.agent_runs(&one.id, 0).await.unwrap(), [done.clone(), runs[1].clone(), runs[2].clone()]);
    assert_eq!(store.agent_runs(&one.id, 1).await.unwrap(), []);
    assert_eq!(store.agent_events(&done.id, 1, 1).await.unwrap(), [event(&done, 2)]);
    assert_eq!(store.agent_events(&done.id, 3, 9).await.unwrap(), []);
}

async fn what_is_deleted_takes_its_runs_along(store: Shared) {
    let one = session(1, "/a");
    store.put_agent_session(&one).await.unwrap();
    let first = run(1, &one, 5);
    let change = AgentChange { runs: vec![first.clone()], events: vec![event(&first, 1)], ..AgentChange::default() };
    store.change_agents(&change).await.unwrap();
    store.delete_agent_session(&one.id).await.unwrap();
    assert_eq!(store.agent_run(&first.id).await.unwrap(), None);
    assert_eq!(store.agent_events(&first.id, 0, 9).await.unwrap(), []);
    store.delete_agent_session(&one.id).await.unwrap();
}
