//! Projects: made while there is room, found again, changed by one at a time, counted.

use crate::rig::*;
use stead_model::command::Command;
use stead_model::ids::{ProjectId, TokenId};
use stead_model::project::{Cloning, Config, Filter, Project, RepoUrl, Schemes, Statistics, Status};
use stead_model::proto::{Ending, Fault, FaultCode, Status as CommandStatus};
use stead_model::retention::{Level, Retention};
use stead_model::session::{CloseReason, Input, Session};
use stead_server::store::{Page, Sealed, Store, StoreError};
use tokio::task::JoinSet;

on_every_store![
    every_field_of_a_project_comes_back,
    an_id_is_taken_once,
    of_many_callers_as_many_win_as_there_is_room_for,
    those_in_the_trash_leave_room,
    a_list_is_newest_first_and_takes_what_fits,
    a_page_is_full_though_little_fits,
    a_swap_needs_the_version_that_is_there_and_leaves_statistics,
    credentials_go_when_the_repository_is_no_longer_wanted,
    commands_and_sessions_are_counted_once,
    what_was_counted_stays_when_a_thread_goes,
    sessions_of_a_project_are_found_also_without_their_thread,
    deleting_twice_is_fine,
];

fn made(prefix: &str, n: u8, now: u64) -> Project {
    Project::new(prefix, [0, 0, 0, n], at(now)).unwrap()
}

async fn put(store: &dyn Store, project: &Project) {
    store.create_project(project, None, 1000).await.unwrap();
}

fn whole() -> Project {
    let (repo_url, _) = RepoUrl::parse("https://h/r.git", Schemes::default()).unwrap();
    let mut project = made("app", 1, 5);
    project.description = "what it is for\n\u{fc}".into();
    project.tags = ["b", "a"].map(str::to_owned).into();
    project.config = Config {
        provider: Some(provider("local")),
        image: Some("debian".into()),
        env: [("A".to_owned(), "1\n'".to_owned())].into(),
        repo_url: Some(repo_url),
        cleanup_after_days: Some(3),
        ..Config::default()
    };
    project.retention = Retention {
        last_accessed_at: at(7),
        expires_at: at(u64::from(u32::MAX) * 1000),
        keep_days: 3,
        pinned: true,
        notified: Some(Level::Reminder),
        marked_at: Some(at(8)),
        trashed_at: None,
    };
    project.clone = Cloning::Failed { at: at(9), error: "no such host".into() };
    project
}

async fn every_field_of_a_project_comes_back(store: Shared) {
    let project = whole();
    put(&*store, &project).await;
    assert_eq!(store.project(&project.id).await.unwrap(), Some(project.clone()));
    for (n, clone) in [Cloning::Nothing, Cloning::Wanted, Cloning::Done(at(4))].into_iter().enumerate() {
        let next = Project { clone, ..made("app", 10 + u8::try_from(n).unwrap(), 5) };
        put(&*store, &next).await;
        assert_eq!(store.project(&next.id).await.unwrap(), Some(next));
    }
    for (n, level) in [Level::Warning, Level::Final].into_iter().enumerate() {
        let mut next = made("app", 20 + u8::try_from(n).unwrap(), 5);
        next.retention.notified = Some(level);
        put(&*store, &next).await;
        assert_eq!(store.project(&next.id).await.unwrap(), Some(next));
    }
}

async fn an_id_is_taken_once(store: Shared) {
    let project = made("app", 1, 5);
    put(&*store, &project).await;
    assert_refused!(store.create_project(&project, None, 1000).await, AlreadyExists, "project", project.id.as_str());
    assert_eq!(store.project(&made("app", 2, 5).id).await.unwrap(), None);
}

async fn of_many_callers_as_many_win_as_there_is_room_for(store: Shared) {
    let mut callers = JoinSet::new();
    for n in 0..40 {
        let store = store.clone();
        callers.spawn(async move { store.create_project(&made("p", n, 1), None, 7).await });
    }
    let results = callers.join_all().await;
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(matches!(error, StoreError::Limit { kind: "project", most: 7 }), "{error:?}");
    }
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 7);
    assert_eq!(store.projects(&Filter::kept(), &Page::all()).await.unwrap().len(), 7);
}

async fn those_in_the_trash_leave_room(store: Shared) {
    let before = made("p", 1, 1);
    store.create_project(&before, None, 1).await.unwrap();
    assert!(store.create_project(&made("p", 2, 1), None, 1).await.is_err());
    let mut after = Project { version: 1, ..before.clone() };
    after.retention.trashed_at = Some(at(2));
    store.replace_project(&before, &after).await.unwrap();
    store.create_project(&made("p", 2, 1), None, 1).await.unwrap();
    let trashed = Filter { status: Some(Status::Trashed), ..Filter::default() };
    assert_eq!(ids(&store.projects(&trashed, &Page::all()).await.unwrap()), ["p-00000001"]);
    assert_eq!(ids(&store.projects(&Filter::kept(), &Page::all()).await.unwrap()), ["p-00000002"]);
}

fn ids(projects: &[Project]) -> Vec<&str> {
    projects.iter().map(|project| project.id.as_str()).collect()
}

async fn a_list_is_newest_first_and_takes_what_fits(store: Shared) {
    for (n, prefix, tags) in [(1, "web", vec!["a"]), (2, "web-api", vec!["a", "b"]), (3, "api", vec!["b"])] {
        let tags = tags.into_iter().map(str::to_owned).collect();
        put(&*store, &Project { tags, ..made(prefix, n, n.into()) }).await;
    }
    let listed = |filter: Filter, page: Page| {
        let store = store.clone();
        async move { ids(&store.projects(&filter, &page).await.unwrap()).join(" ") }
    };
    assert_eq!(listed(Filter::kept(), Page::all()).await, "api-00000003 web-api-00000002 web-00000001");
    assert_eq!(listed(Filter::kept(), first(2)).await, "api-00000003 web-api-00000002");
    let rest = Page { limit: 2, after: Some((at(2), "web-api-00000002".into())) };
    assert_eq!(listed(Filter::kept(), rest).await, "web-00000001");
    let prefix = Filter { prefix: Some("web".into()), ..Filter::default() };
    assert_eq!(listed(prefix, Page::all()).await, "web-api-00000002 web-00000001");
    let both = Filter { tags: ["a", "b"].map(str::to_owned).into(), ..Filter::default() };
    assert_eq!(listed(both, Page::all()).await, "web-api-00000002");
    let among = Filter { among: Some([ProjectId::parse("api-00000003").unwrap()].into()), ..Filter::default() };
    assert_eq!(listed(among, Page::all()).await, "api-00000003");
}

async fn a_page_is_full_though_little_fits(store: Shared) {
    for n in 0..=250_u32 {
        let prefix = if n % 100 == 0 { "rare" } else { "many" };
        let project = Project::new(prefix, n.to_be_bytes(), at(n.into())).unwrap();
        put(&*store, &project).await;
    }
    let filter = Filter { prefix: Some("rare".into()), ..Filter::default() };
    let found = store.projects(&filter, &first(2)).await.unwrap();
    assert_eq!(ids(&found), ["rare-000000c8", "rare-00000064"]);
    let last = found.last().unwrap();
    let rest = Page { limit: 2, after: Some((last.created_at, last.id.to_string())) };
    assert_eq!(ids(&store.projects(&filter, &rest).await.unwrap()), ["rare-00000000"]);
}

async fn a_swap_needs_the_version_that_is_there_and_leaves_statistics(store: Shared) {
    let before = made("app", 1, 5);
    put(&*store, &before).await;
    store.measured_project(&before.id, 77).await.unwrap();
    store.project_failed(&before.id, at(3), "no room").await.unwrap();
    let after = Project { version: 1, ..whole() };
    store.replace_project(&before, &after).await.unwrap();
    let statistics =
        Statistics { disk_bytes: Some(77), last_error: Some((at(3), "no room".into())), ..Statistics::default() };
    assert_eq!(store.project(&before.id).await.unwrap(), Some(Project { statistics, ..after.clone() }));
    assert_refused!(store.replace_project(&before, &after).await, Conflict, "project", before.id.as_str());
    let absent = made("app", 9, 5);
    assert_refused!(store.replace_project(&absent, &absent).await, NotFound, "project", absent.id.as_str());
    assert_refused!(store.measured_project(&absent.id, 1).await, NotFound, "project", absent.id.as_str());
    assert_refused!(store.project_failed(&absent.id, at(1), "").await, NotFound, "project", absent.id.as_str());
}

async fn credentials_go_when_the_repository_is_no_longer_wanted(store: Shared) {
    let before = Project { clone: Cloning::Wanted, ..made("app", 1, 5) };
    let sealed = Sealed { nonce: vec![1, 2], bytes: vec![3] };
    store.create_project(&before, Some(&sealed), 10).await.unwrap();
    assert_eq!(store.clone_credentials(&before.id).await.unwrap(), Some(sealed.clone()));
    let still = Project { version: 1, description: "x".into(), ..before.clone() };
    store.replace_project(&before, &still).await.unwrap();
    assert_eq!(store.clone_credentials(&before.id).await.unwrap(), Some(sealed));
    let done = Project { version: 2, clone: Cloning::Done(at(9)), ..still.clone() };
    store.replace_project(&still, &done).await.unwrap();
    assert_eq!(store.clone_credentials(&before.id).await.unwrap(), None);
}

async fn thread_in(store: &dyn Store, project: &Project, name: &str) {
    let mut thread = thread(name, 1);
    thread.project = Some(project.id.clone());
    store.create_thread(&thread, &terminal(name, 1), Some(&lease(name, 1))).await.unwrap();
}

fn ended(name: &str, of: &str, code: i32) -> Command {
    let ending = Ending {
        status: CommandStatus::Exited,
        exit_code: Some(code),
        signal: None,
        shell_exited: false,
        shell_replaced: false,
        warnings: Vec::new(),
        streams_open: false,
        state_changed: false,
        error: None,
        oom_killed: None,
    };
    let begun = Command { started_at: Some(at(100)), status: CommandStatus::Running, ..command(name, of, 50) };
    Command { stdout_bytes: 7, stderr_bytes: 3, ..begun.end(ending, at(1600)).unwrap() }
}

async fn statistics(store: &dyn Store, project: &Project) -> Statistics {
    store.project(&project.id).await.unwrap().unwrap().statistics
}

async fn commands_and_sessions_are_counted_once(store: Shared) {
    let project = made("app", 1, 5);
    put(&*store, &project).await;
    thread_in(&*store, &project, "t").await;
    make_thread(&*store, "alone", 1).await;
    let begun = Command { status: CommandStatus::Running, ..command("a", "t", 50) };
    store.put_command(&begun).await.unwrap();
    assert_eq!(statistics(&*store, &project).await, Statistics::default(), "nothing has ended");
    let (done, bad, elsewhere) = (ended("a", "t", 0), ended("b", "t", 3), ended("c", "alone", 1));
    for _ in 0..2 {
        store.save_commands(&[done.clone(), bad.clone(), elsewhere.clone()]).await.unwrap();
    }
    let late = Command { stdout_bytes: 17, ..done };
    store.save_commands(&[late]).await.unwrap();
    let fault = Fault::new(FaultCode::NoSpace, "the disk is full");
    let mut failed = Command { id: command_id("d"), ..ended("d", "t", 0) };
    failed.status = CommandStatus::Failed;
    failed.ending.as_mut().unwrap().status = CommandStatus::Failed;
    failed.ending.as_mut().unwrap().error = Some(fault);
    failed.started_at = None;
    store.save_commands(&[failed]).await.unwrap();
    let session = Session { project: Some(project.id.clone()), ..session("s", "t", 10) };
    store.open_session(&session).await.unwrap();
    let expected = Statistics {
        sessions: 1,
        commands: 3,
        failed_commands: 2,
        run_time: std::time::Duration::from_secs(3),
        output_bytes: 40,
        disk_bytes: None,
        last_error: Some((at(1600), "the disk is full".into())),
    };
    assert_eq!(statistics(&*store, &project).await, expected);
}

async fn what_was_counted_stays_when_a_thread_goes(store: Shared) {
    let project = made("app", 1, 5);
    put(&*store, &project).await;
    thread_in(&*store, &project, "t").await;
    store.save_commands(&[ended("a", "t", 0)]).await.unwrap();
    store.delete_thread(&thread_id("t")).await.unwrap();
    store.save_commands(&[ended("a", "t", 0)]).await.unwrap();
    assert_eq!(statistics(&*store, &project).await.commands, 1);
}

async fn sessions_of_a_project_are_found_also_without_their_thread(store: Shared) {
    let project = made("app", 1, 5);
    put(&*store, &project).await;
    thread_in(&*store, &project, "t").await;
    let opened_by = Some(TokenId::parse("tok-1").unwrap());
    let first = Session { project: Some(project.id.clone()), opened_by, ..session("1", "t", 10) };
    store.open_session(&first).await.unwrap();
    let closed = first.apply(Input::Close(CloseReason::Closed), at(20)).unwrap();
    store.replace_session(&first, &closed).await.unwrap();
    let second = Session { project: Some(project.id.clone()), ..session("2", "t", 30) };
    store.open_session(&second).await.unwrap();
    store.open_session(&session("3", "alone", 40)).await.unwrap();
    store.delete_thread(&thread_id("t")).await.unwrap();
    assert_eq!(
        store.sessions_of_project(&project.id, &Page::all()).await.unwrap(),
        [second.clone(), closed],
        "newest first"
    );
    assert_eq!(store.live_sessions_of_project(&project.id).await.unwrap(), [second]);
}

async fn deleting_twice_is_fine(store: Shared) {
    let project = made("app", 1, 5);
    put(&*store, &project).await;
    for _ in 0..2 {
        store.delete_project(&project.id).await.unwrap();
        assert_eq!(store.project(&project.id).await.unwrap(), None);
    }
    put(&*store, &project).await;
}
