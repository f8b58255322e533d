//! The law: whatever is committed through the store is what the pure model says.

use crate::rig::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use stead_model::state::ShellState;
use stead_model::terminal::{KEPT_STATES, Snapshot, Terminal};
use stead_server::store::{MemoryStore, StoreError};

#[derive(Debug, Clone)]
enum Step {
    /// A runtime of some generation (so many before the present one) finishes a command (so far ahead).
    Commit {
        behind: u64,
        ahead: u64,
        dir: u8,
    },
    Open,
    Restore {
        dir: u8,
    },
    /// Somebody writes from what they read before the last change.
    Stale {
        dir: u8,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..2u64, 0..4u64, 0..4u8).prop_map(|(behind, ahead, dir)| Step::Commit { behind, ahead, dir }),
        1 => Just(Step::Open),
        1 => (0..4u8).prop_map(|dir| Step::Restore { dir }),
        1 => (0..4u8).prop_map(|dir| Step::Stale { dir }),
    ];
    vec(step, 0..160)
}

fn dir(n: u8) -> ShellState {
    in_dir(&format!("/{n}"))
}

async fn replay(store: Shared, steps: Vec<Step>) {
    let (_, mut model, _) = make_thread(&*store, "a", 0).await;
    let mut before = None;
    let mut contents = BTreeMap::from([(0, model.state.clone())]);
    for (n, step) in steps.iter().enumerate() {
        let now = at(n as u64 + 1);
        let stored = store.terminal(&model.id).await.unwrap().unwrap();
        assert_eq!(stored, model, "before step {n}: {step:?}");
        let after = match step {
            Step::Commit { behind, ahead, dir: to } => {
                let generation = model.generation.saturating_sub(*behind);
                let snapshot = Snapshot { generation, version: model.version + ahead, state: dir(*to) };
                let expected = model.commit(&snapshot, now);
                let of_stored = stored.commit(&snapshot, now);
                assert_eq!(of_stored, expected, "what is stale of the model is stale of what is stored");
                let Ok(after) = expected else { continue };
                after
            }
            Step::Open => model.open(now),
            Step::Restore { dir: to } => model.restore(dir(*to), now),
            Step::Stale { dir: to } => {
                let Some(before): Option<Terminal> = before.clone() else { continue };
                let refused = store.replace_terminal(&before, &before.restore(dir(*to), now)).await;
                assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
                continue;
            }
        };
        store.replace_terminal(&model, &after).await.unwrap();
        contents.insert(after.content_version, after.state.clone());
        before = Some(std::mem::replace(&mut model, after));
    }
    assert_eq!(store.terminal(&model.id).await.unwrap(), Some(model.clone()));
    let most = usize::try_from(KEPT_STATES).unwrap();
    let kept: Vec<_> = contents.iter().rev().take(most).map(|(v, s)| (*v, s.clone())).collect();
    let states = store.states(&model.id).await.unwrap();
    assert_eq!(states.into_iter().map(|state| (state.version, state.state)).collect::<Vec<_>>(), kept);
    for version in 0..=model.version + 1 {
        let expected = kept.iter().find(|(kept, _)| *kept <= version).cloned();
        let found = store.state_at(&model.id, version).await.unwrap().map(|state| (state.version, state.state));
        assert_eq!(found, expected, "the content at {version}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_commits_through_the_store_are_those_of_the_model(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let file = File::new();
            replay(file.open().await, steps.clone()).await;
            file.check().await;
            replay(std::sync::Arc::new(MemoryStore::default()), steps).await;
        });
    }
}
