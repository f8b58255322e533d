//! Tokens: found by their hash, revoked once; and who they let in.

use crate::rig::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stead_model::access::{Right, Scope, Token};
use stead_model::clock::Timestamp;
use stead_model::ids::TokenId;
use stead_model::project::Project;
use stead_server::clock::Clock;
use stead_server::store::{Page, TokenHash};
use stead_server::token::{NewToken, TokenError, Tokens};

on_every_store![
    every_field_of_a_token_comes_back,
    a_taken_id_or_hash_is_refused,
    uses_move_forward_and_a_revocation_is_the_first,
    tokens_are_newest_first,
    a_token_opens_until_it_is_revoked_or_expires,
    the_first_token_opens_everything_and_is_in_no_list,
    a_revocation_counts_at_once_however_often_it_was_used,
    a_use_is_noted_at_most_once_a_minute,
    a_token_that_makes_no_sense_is_not_made,
];

fn token(n: u8, now: u64) -> Token {
    Token {
        id: TokenId::made_of([n; 8]),
        name: format!("number {n}"),
        scope: Scope::Read,
        created_at: at(now),
        last_used_at: None,
        expires_at: None,
        revoked_at: None,
    }
}

async fn every_field_of_a_token_comes_back(store: Shared) {
    let projects = BTreeSet::from([project("a-00000001"), project("b-00000002")]);
    let scopes = [
        Scope::Admin,
        Scope::Read,
        Scope::Projects { projects: projects.clone(), right: Right::Read },
        Scope::Projects { projects, right: Right::Write },
    ];
    for (n, scope) in (1..).zip(scopes) {
        let moments = (Some(at(7)), Some(at(8)), Some(at(9)));
        let whole = Token {
            name: "it's \"x\"".into(),
            scope,
            last_used_at: moments.0,
            expires_at: moments.1,
            revoked_at: moments.2,
            ..token(n, 5)
        };
        let hash = TokenHash([n; 32]);
        store.put_token(&whole, &hash).await.unwrap();
        assert_eq!(store.token(&whole.id).await.unwrap(), Some(whole.clone()));
        assert_eq!(store.token_by_hash(&hash).await.unwrap(), Some((whole, hash)));
    }
    assert_eq!(store.token_by_hash(&TokenHash([99; 32])).await.unwrap(), None);
}

async fn a_taken_id_or_hash_is_refused(store: Shared) {
    let first = token(1, 1);
    store.put_token(&first, &TokenHash([1; 32])).await.unwrap();
    let refused = store.put_token(&token(1, 2), &TokenHash([2; 32])).await;
    assert_refused!(refused, AlreadyExists, "token", first.id.as_str());
    let other = token(2, 2);
    let refused = store.put_token(&other, &TokenHash([1; 32])).await;
    assert_refused!(refused, AlreadyExists, "token", other.id.as_str());
    assert_eq!(store.tokens(&Page::all()).await.unwrap(), [first]);
}

async fn uses_move_forward_and_a_revocation_is_the_first(store: Shared) {
    let one = token(1, 1);
    store.put_token(&one, &TokenHash([1; 32])).await.unwrap();
    for (touched, expected) in [(5, 5), (3, 5), (9, 9)] {
        store.touch_token(&one.id, at(touched)).await.unwrap();
        assert_eq!(store.token(&one.id).await.unwrap().unwrap().last_used_at, Some(at(expected)));
    }
    for moment in [20, 30] {
        store.revoke_token(&one.id, at(moment)).await.unwrap();
        assert_eq!(store.token(&one.id).await.unwrap().unwrap().revoked_at, Some(at(20)));
    }
    let nobody = token(2, 1).id;
    assert_refused!(store.touch_token(&nobody, at(1)).await, NotFound, "token", nobody.as_str());
    assert_refused!(store.revoke_token(&nobody, at(1)).await, NotFound, "token", nobody.as_str());
}

async fn tokens_are_newest_first(store: Shared) {
    for n in 1..=3 {
        store.put_token(&token(n, n.into()), &TokenHash([n; 32])).await.unwrap();
    }
    let listed = store.tokens(&first(2)).await.unwrap();
    assert_eq!(listed, [token(3, 3), token(2, 2)]);
    let rest = Page { limit: 2, after: Some((at(2), listed[1].id.to_string())) };
    assert_eq!(store.tokens(&rest).await.unwrap(), [token(1, 1)]);
}

#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// Tokens over a store, at a time that the test sets.
fn over(store: &Shared) -> (Arc<Tokens>, Arc<Hand>, tempfile::TempDir) {
    let (clock, dir) = (Arc::new(Hand(AtomicU64::new(1_000_000))), tempfile::tempdir().unwrap());
    let tokens = Tokens::open(Arc::clone(store), Arc::clone(&clock) as Arc<dyn Clock>, dir.path()).unwrap();
    (Arc::new(tokens), clock, dir)
}

fn new(scope: Scope) -> NewToken {
    NewToken { name: "ci".into(), scope, expires_at: None }
}

async fn a_token_opens_until_it_is_revoked_or_expires(store: Shared) {
    let (tokens, clock, _dir) = over(&store);
    let project = Project::new("app", [1; 4], at(1)).unwrap();
    store.create_project(&project, None, 10).await.unwrap();
    let scope = Scope::Projects { projects: BTreeSet::from([project.id.clone()]), right: Right::Write };
    let (one, secret) = tokens.create(new(scope.clone())).await.unwrap();
    let access = tokens.check(secret.reveal()).await.unwrap().unwrap();
    assert_eq!((&access.token, &access.scope), (&one.id, &scope));
    assert!(access.may_change(Some(&project.id)) && !access.may_see(None));
    let until = NewToken { expires_at: Some(at(1_000_500)), ..new(Scope::Admin) };
    let (_, short) = tokens.create(until).await.unwrap();
    assert!(tokens.check(short.reveal()).await.unwrap().is_some());
    clock.0.store(1_000_500, Ordering::SeqCst);
    assert_eq!(tokens.check(short.reveal()).await.unwrap(), None, "from the moment on, whatever is remembered");
    let revoked = tokens.revoke(&one.id).await.unwrap();
    assert_eq!(revoked.revoked_at, Some(at(1_000_500)));
    assert_eq!(tokens.check(secret.reveal()).await.unwrap(), None);
    let never = format!("stead_{}", "0".repeat(64));
    for text in ["", "x", &never, &secret.reveal()[1..]] {
        assert_eq!(tokens.check(text).await.unwrap(), None, "{text}");
    }
    let written = format!("{tokens:?} {secret:?} {:?}", tokens.list(&Page::all()).await.unwrap());
    assert!(!written.contains("stead_") && !written.contains(&secret.reveal()[6..]), "{written}");
}

async fn the_first_token_opens_everything_and_is_in_no_list(store: Shared) {
    let (tokens, clock, dir) = over(&store);
    let text = std::fs::read_to_string(dir.path().join("token")).unwrap();
    assert_eq!(tokens.first().reveal(), text.trim_end());
    let access = tokens.check(text.trim_end()).await.unwrap().unwrap();
    assert_eq!((access.token, access.scope), (Tokens::first_id(), Scope::Admin));
    assert_eq!(tokens.list(&Page::all()).await.unwrap(), []);
    let again = Tokens::open(store, clock, dir.path()).unwrap();
    assert!(again.check(text.trim_end()).await.unwrap().is_some(), "the same after a restart");
}

async fn a_revocation_counts_at_once_however_often_it_was_used(store: Shared) {
    let (tokens, _, _dir) = over(&store);
    for _ in 0..20 {
        let (one, secret) = tokens.create(new(Scope::Read)).await.unwrap();
        let users: Vec<_> = (0..4)
            .map(|_| {
                let (tokens, text) = (Arc::clone(&tokens), secret.reveal().to_owned());
                tokio::spawn(async move {
                    while tokens.check(&text).await.unwrap().is_some() {
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        assert!(tokens.check(secret.reveal()).await.unwrap().is_some());
        tokens.revoke(&one.id).await.unwrap();
        assert_eq!(tokens.check(secret.reveal()).await.unwrap(), None);
        for user in users {
            user.await.unwrap();
        }
    }
}

async fn a_use_is_noted_at_most_once_a_minute(store: Shared) {
    let (tokens, clock, _dir) = over(&store);
    let (one, secret) = tokens.create(new(Scope::Read)).await.unwrap();
    // Milliseconds from the first use, and what is noted then.
    for (after, noted) in [(0, 0), (1_000, 0), (30_000, 0), (59_999, 0), (60_000, 60_000), (119_000, 60_000)] {
        clock.0.store(1_000_000 + after, Ordering::SeqCst);
        assert!(tokens.check(secret.reveal()).await.unwrap().is_some());
        let last_used_at = store.token(&one.id).await.unwrap().unwrap().last_used_at;
        assert_eq!(last_used_at, Some(at(1_000_000 + noted)), "after {after} ms");
    }
}

async fn a_token_that_makes_no_sense_is_not_made(store: Shared) {
    let (tokens, _, _dir) = over(&store);
    let to = |projects| Scope::Projects { projects, right: Right::Read };
    let late = NewToken { expires_at: Some(at(1_000_000)), ..new(Scope::Read) };
    let long = NewToken { name: "x".repeat(101), ..new(Scope::Read) };
    let nameless = NewToken { name: " ".into(), ..new(Scope::Read) };
    for refused in [late, long, nameless, new(to(BTreeSet::new()))] {
        let answer = tokens.create(refused).await;
        assert!(matches!(answer, Err(TokenError::Invalid(_))), "{answer:?}");
    }
    let nobody = tokens.create(new(to(BTreeSet::from([project("no-00000001")])))).await;
    assert!(matches!(nobody, Err(TokenError::Store(_))), "{nobody:?}");
    assert_eq!(tokens.list(&Page::all()).await.unwrap(), []);
}
