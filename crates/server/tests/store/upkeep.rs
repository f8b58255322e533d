//! What keeping and removing needs: changes with what is told of them, in one transaction.

use crate::rig::*;
use std::sync::Arc;
use stead_model::ids::{EventId, SnapshotId, ThreadId};
use stead_model::notice::{Notice, Subject, What};
use stead_model::project::Project;
use stead_model::retention::{Due, Level, Retention};
use stead_model::snapshot::Snapshot;
use stead_server::store::upkeep::Telling;
use stead_server::store::{Page, Store, StoreError};

on_every_store![
    a_change_and_what_is_told_of_it_are_one,
    what_comes_out_of_the_trash_needs_room,
    a_purge_takes_the_snapshots_and_is_told,
    what_is_to_be_told_comes_in_order_and_goes_when_it_was,
    old_notices_are_forgotten_unless_they_are_still_to_be_told,
    what_was_said_of_a_thread_is_void_when_it_is_used,
    snapshots_are_found_newest_first,
    the_last_round_is_remembered,
];

fn made(n: u8) -> Project {
    Project::new("app", [0, 0, 0, n], at(n.into())).unwrap()
}

async fn put(store: &dyn Store, n: u8) -> Project {
    let project = made(n);
    store.create_project(&project, None, 1000).await.unwrap();
    project
}

fn notice(n: u8, subject: Subject, what: What) -> Notice {
    let id = EventId::made_of([n; 8]);
    Notice { id, subject, what, at: at(n.into()), expires_at: at(1000), source: "test".into() }
}

fn of(project: &Project) -> Subject {
    Subject::Project(project.id.clone())
}

fn told(notice: &Notice) -> Telling<'_> {
    Telling { notice, outside: true }
}

fn after(project: &Project, due: Due) -> Project {
    let retention = project.retention.apply(due, at(50));
    Project { retention, version: project.version + 1, ..project.clone() }
}

fn snapshot(n: u8, project: &Project) -> Snapshot {
    Snapshot {
        id: SnapshotId::made_of([n; 8]),
        project: project.id.clone(),
        description: "what for\n\u{fc}".into(),
        digest: format!("{n:064x}"),
        bytes: 1,
        tree_bytes: 2,
        files: 3,
        created_at: at(n.into()),
        expires_at: n.is_multiple_of(2).then(|| at(99)),
    }
}

async fn a_change_and_what_is_told_of_it_are_one(store: Arc<dyn Store>) {
    let store = &*store;
    let project = put(store, 1).await;
    let marked = after(&project, Due::Mark);
    let said = notice(1, of(&project), What::Marked);
    store.keep_project(&project, &marked, Some(told(&said)), 1000).await.unwrap();
    assert_eq!(store.project(&project.id).await.unwrap(), Some(marked.clone()));
    // Not again from what it was, and then nothing is told either.
    let again = notice(2, of(&project), What::Marked);
    let refused = store.keep_project(&project, &marked, Some(told(&again)), 1000).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    // Nor changed if it can't be told: that id is taken.
    let trashed = after(&marked, Due::Trash);
    let refused = store.keep_project(&marked, &trashed, Some(told(&said)), 1000).await;
    assert!(matches!(refused, Err(StoreError::AlreadyExists { kind: "notice", .. })), "{refused:?}");
    let gone = made(9);
    let refused = store.keep_project(&gone, &after(&gone, Due::Mark), Some(told(&again)), 1000).await;
    assert!(matches!(refused, Err(StoreError::NotFound { .. })), "{refused:?}");
    let heard = store.notices(Some(&of(&project)), 0, 10).await.unwrap();
    assert_eq!(heard.iter().map(|told| &told.notice).collect::<Vec<_>>(), [&said]);
    assert_eq!((heard[0].attempts, heard[0].next_at), (0, Some(said.at)));
}

async fn what_comes_out_of_the_trash_needs_room(store: Arc<dyn Store>) {
    let store = &*store;
    let (one, _two) = (put(store, 1).await, put(store, 2).await);
    let trashed = after(&one, Due::Trash);
    store.keep_project(&one, &trashed, None, 0).await.unwrap();
    let mut back = trashed.clone();
    back.retention.restore(at(60));
    back.version += 1;
    let refused = store.keep_project(&trashed, &back, None, 1).await;
    assert!(matches!(refused, Err(StoreError::Limit { most: 1, .. })), "{refused:?}");
    store.keep_project(&trashed, &back, None, 2).await.unwrap();
    assert_eq!(store.project(&one.id).await.unwrap(), Some(back));
}

async fn a_purge_takes_the_snapshots_and_is_told(store: Arc<dyn Store>) {
    let store = &*store;
    let (one, two) = (put(store, 1).await, put(store, 2).await);
    store.put_snapshot(&snapshot(1, &one)).await.unwrap();
    store.put_snapshot(&snapshot(2, &two)).await.unwrap();
    let said = notice(1, of(&one), What::Purged);
    store.purge_project(&one.id, told(&said)).await.unwrap();
    assert_eq!(store.project(&one.id).await.unwrap(), None);
    assert_eq!(store.snapshots(None, &Page::all()).await.unwrap(), [snapshot(2, &two)]);
    assert_eq!(store.notices(Some(&of(&one)), 0, 10).await.unwrap().len(), 1);
}

async fn what_is_to_be_told_comes_in_order_and_goes_when_it_was(store: Arc<dyn Store>) {
    let store = &*store;
    let subject = || Subject::Thread(ThreadId::made_of([7; 8]));
    for (n, what) in What::ALL.into_iter().enumerate() {
        store.tell(told(&notice(u8::try_from(n).unwrap() + 1, subject(), what))).await.unwrap();
    }
    let silent = notice(40, subject(), What::Marked);
    store.tell(Telling { notice: &silent, outside: false }).await.unwrap();
    let all = store.notices(None, 0, 100).await.unwrap();
    assert_eq!(all.len(), 8);
    assert!(all.is_sorted_by_key(|told| told.seq));
    assert_eq!(store.notices(Some(&subject()), all[2].seq, 2).await.unwrap(), all[3..5]);
    assert_eq!(store.untold(at(3), 100).await.unwrap(), all[..3]);
    assert_eq!(store.untold(at(100), 2).await.unwrap(), all[..2]);
    assert_eq!(store.next_untold().await.unwrap(), Some(at(1)));
    store.tried(&all[0].notice.id, 1, Some(at(70))).await.unwrap();
    store.tried(&all[1].notice.id, 5, None).await.unwrap();
    assert_eq!(store.next_untold().await.unwrap(), Some(at(3)));
    let due = store.untold(at(100), 100).await.unwrap();
    assert_eq!(due.iter().map(|told| told.seq).collect::<Vec<_>>(), [3, 4, 5, 6, 7, 1].map(|n| all[n - 1].seq));
    assert_eq!(due.last().map(|told| told.attempts), Some(1));
}

async fn old_notices_are_forgotten_unless_they_are_still_to_be_told(store: Arc<dyn Store>) {
    let store = &*store;
    let project = made(1);
    for n in 1..=4 {
        let said = notice(n, of(&project), What::Marked);
        store.tell(Telling { notice: &said, outside: n == 1 }).await.unwrap();
    }
    assert_eq!(store.forget_notices(at(3)).await.unwrap(), 1);
    let left = store.notices(None, 0, 10).await.unwrap();
    assert_eq!(left.iter().map(|told| told.notice.at).collect::<Vec<_>>(), [at(1), at(3), at(4)]);
}

async fn what_was_said_of_a_thread_is_void_when_it_is_used(store: Arc<dyn Store>) {
    let store = &*store;
    let (thread, ..) = make_thread(store, "a", 5).await;
    assert_eq!(store.kept_thread(&thread.id).await.unwrap(), None);
    let mut kept = Retention::new(30, thread.last_active_at);
    kept.notified = Some(Level::Reminder);
    kept.marked_at = Some(at(6));
    let said = notice(1, Subject::Thread(thread.id.clone()), What::Said(Level::Reminder));
    store.keep_thread(&thread.id, &kept, Some(told(&said))).await.unwrap();
    let found = store.kept_thread(&thread.id).await.unwrap().unwrap();
    assert_eq!((found.notified, found.marked_at, found.trashed_at), (kept.notified, kept.marked_at, None));
    assert_eq!(found.last_accessed_at, thread.last_active_at);
    assert_eq!(store.kept_threads().await.unwrap(), [(thread.id.clone(), found)]);
    store.touch_thread(&thread.id, at(9)).await.unwrap();
    assert_eq!(store.kept_thread(&thread.id).await.unwrap(), None);
    assert_eq!(store.kept_threads().await.unwrap(), []);
    let late = notice(2, Subject::Thread(thread.id.clone()), What::Marked);
    let refused = store.keep_thread(&thread.id, &kept, Some(told(&late))).await;
    assert!(matches!(refused, Err(StoreError::Conflict { kind: "thread", .. })), "{refused:?}");
    let refused = store.keep_thread(&ThreadId::made_of([9; 8]), &kept, Some(told(&late))).await;
    assert!(matches!(refused, Err(StoreError::NotFound { .. })), "{refused:?}");
    assert_eq!(store.notices(None, 0, 10).await.unwrap().len(), 1);
}

async fn snapshots_are_found_newest_first(store: Arc<dyn Store>) {
    let store = &*store;
    let (one, two) = (put(store, 1).await, put(store, 2).await);
    for n in 1..=3 {
        store.put_snapshot(&snapshot(n, if n == 2 { &two } else { &one })).await.unwrap();
    }
    let (first, third) = (snapshot(1, &one), snapshot(3, &one));
    assert_eq!(store.snapshots(Some(&one.id), &Page::all()).await.unwrap(), [third.clone(), first.clone()]);
    let behind = Page { limit: 1, after: Some((third.created_at, third.id.to_string())) };
    assert_eq!(store.snapshots(Some(&one.id), &behind).await.unwrap(), std::slice::from_ref(&first));
    assert_eq!(store.snapshots(None, &Page::all()).await.unwrap().len(), 3);
    assert_eq!(store.snapshot(&first.id).await.unwrap(), Some(first.clone()));
    let again = store.put_snapshot(&first).await;
    assert!(matches!(again, Err(StoreError::AlreadyExists { kind: "snapshot", .. })), "{again:?}");
    let nobodys = store.put_snapshot(&snapshot(4, &made(9))).await;
    assert!(matches!(nobodys, Err(StoreError::NotFound { kind: "project", .. })), "{nobodys:?}");
    store.delete_snapshot(&first.id).await.unwrap();
    store.delete_snapshot(&first.id).await.unwrap();
    assert_eq!(store.snapshot(&first.id).await.unwrap(), None);
}

async fn the_last_round_is_remembered(store: Arc<dyn Store>) {
    let store = &*store;
    assert_eq!(store.last_cleanup().await.unwrap(), None);
    for moment in [5, 9, 3] {
        store.cleaned_up(at(moment)).await.unwrap();
        assert_eq!(store.last_cleanup().await.unwrap(), Some(at(moment)));
    }
}
