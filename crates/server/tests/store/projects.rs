//! Projects: made once, found again.

use crate::rig::*;
use stead_model::project::Project;
use stead_server::store::{Page, StoreError};

on_every_store![a_project_comes_back_and_its_id_is_taken, projects_are_newest_first,];

async fn a_project_comes_back_and_its_id_is_taken(store: Shared) {
    let project = Project::new("app", [1, 2, 3, 4], at(5)).unwrap();
    store.put_project(&project).await.unwrap();
    assert_eq!(store.project(&project.id).await.unwrap(), Some(project.clone()));
    let again = store.put_project(&project).await;
    assert!(matches!(again, Err(StoreError::AlreadyExists { kind: "project", .. })), "{again:?}");
    let other = Project::new("app", [1, 2, 3, 5], at(5)).unwrap();
    assert_eq!(store.project(&other.id).await.unwrap(), None);
}

async fn projects_are_newest_first(store: Shared) {
    for n in 1..=3 {
        store.put_project(&Project::new("p", [0, 0, 0, n], at(n.into())).unwrap()).await.unwrap();
    }
    let listed = store.projects(&Page { limit: 2, after: None }).await.unwrap();
    let ids: Vec<_> = listed.iter().map(|project| project.id.as_str()).collect();
    assert_eq!(ids, ["p-00000003", "p-00000002"]);
    let last = listed.last().unwrap();
    let rest = Page { limit: 2, after: Some((last.created_at, last.id.to_string())) };
    let rest = store.projects(&rest).await.unwrap();
    assert_eq!(rest.len(), 1);
}
