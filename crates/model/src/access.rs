//! Who may do what. A token has a scope; what a request needs is asked of the [`Access`] that its token gave, by pure
//! functions, so that every combination is a line in a test.
//!
//! ```text
//!                 a project's      what has no project    tokens, providers, orphans
//! admin           read, write      read, write            read, write
//! read            read             read                   read, but no tokens
//! projects        read or write    nothing                nothing
//! ```

use crate::clock::Timestamp;
use crate::ids::{ProjectId, TokenId};
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Right {
    Read,
    Write,
}

/// What a token is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything, tokens too.
    Admin,
    /// Looking at everything but tokens.
    Read,
    /// What belongs to these projects, and nothing else.
    Projects { projects: BTreeSet<ProjectId>, right: Right },
}

/// A token as it may be shown: nothing in it opens anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub id: TokenId,
    /// For people.
    pub name: String,
    pub scope: Scope,
    pub created_at: Timestamp,
    /// To the minute.
    pub last_used_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// What a request may do, by the token it came with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub token: TokenId,
    pub scope: Scope,
}

impl Token {
    /// Whether it still opens anything. At the moment of its expiry it is over.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires_at| now < expires_at)
    }
}

impl Access {
    /// Whether there is anything that it may change. What exactly: [`Self::may_change`].
    pub fn may_write(&self) -> bool {
        match &self.scope {
            Scope::Admin => true,
            Scope::Read => false,
            Scope::Projects { right, .. } => *right == Right::Write,
        }
    }

    /// Whether it may look at what belongs to a project, or to none.
    pub fn may_see(&self, project: Option<&ProjectId>) -> bool {
        match &self.scope {
            Scope::Admin | Scope::Read => true,
            Scope::Projects { projects, .. } => project.is_some_and(|project| projects.contains(project)),
        }
    }

    /// Whether it may change what belongs to a project, or to none; and make such.
    pub fn may_change(&self, project: Option<&ProjectId>) -> bool {
        self.may_write() && self.may_see(project)
    }

    /// Whether it may look at what belongs to all: providers, orphans, lists over every project.
    pub fn may_see_all(&self) -> bool {
        self.projects().is_none()
    }

    /// Whether it may make and revoke tokens, make projects, and settle orphans.
    pub fn may_administer(&self) -> bool {
        match &self.scope {
            Scope::Admin => true,
            Scope::Read | Scope::Projects { .. } => false,
        }
    }

    /// The projects that it is bound to; absent if to none.
    pub fn projects(&self) -> Option<&BTreeSet<ProjectId>> {
        match &self.scope {
            Scope::Admin | Scope::Read => None,
            Scope::Projects { projects, .. } => Some(projects),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(name: &str) -> ProjectId {
        ProjectId::parse(name).unwrap()
    }

    fn access(scope: Scope) -> Access {
        Access { token: TokenId::made_of([1; 8]), scope }
    }

    fn bound(projects: &[&str], right: Right) -> Scope {
        Scope::Projects { projects: projects.iter().map(|name| project(name)).collect(), right }
    }

    /// Every scope beside every kind of thing: (see, change) for `a`, `b`, and what has no project.
    #[test]
    fn every_scope_answers_for_every_kind_of_thing() {
        let (no, see, change) = ((false, false), (true, false), (true, true));
        let table = [
            (Scope::Admin, [change, change, change], (true, true, true)),
            (Scope::Read, [see, see, see], (false, true, false)),
            (bound(&[], Right::Read), [no, no, no], (false, false, false)),
            (bound(&[], Right::Write), [no, no, no], (true, false, false)),
            (bound(&["a"], Right::Read), [see, no, no], (false, false, false)),
            (bound(&["a"], Right::Write), [change, no, no], (true, false, false)),
            (bound(&["a", "b"], Right::Read), [see, see, no], (false, false, false)),
            (bound(&["a", "b"], Right::Write), [change, change, no], (true, false, false)),
        ];
        for (scope, things, (write, all, administer)) in table {
            let access = access(scope);
            let of = [Some(project("a")), Some(project("b")), None];
            for (project, (sees, changes)) in of.iter().zip(things) {
                assert_eq!(access.may_see(project.as_ref()), sees, "{access:?} sees {project:?}");
                assert_eq!(access.may_change(project.as_ref()), changes, "{access:?} changes {project:?}");
            }
            let general = (access.may_write(), access.may_see_all(), access.may_administer());
            assert_eq!(general, (write, all, administer), "{access:?}");
        }
    }

    #[test]
    fn whoever_may_change_may_see_and_whoever_administers_may_do_all() {
        for scope in [Scope::Admin, Scope::Read, bound(&["a"], Right::Read), bound(&["a"], Right::Write)] {
            let access = access(scope);
            for project in [None, Some(project("a")), Some(project("b"))] {
                let project = project.as_ref();
                assert!(access.may_see(project) || !access.may_change(project));
                assert!(access.may_change(project) || !access.may_administer());
            }
        }
    }

    #[test]
    fn a_token_is_good_until_it_expires_or_is_revoked() {
        let token = Token {
            id: TokenId::made_of([1; 8]),
            name: "ci".into(),
            scope: Scope::Admin,
            created_at: Timestamp(5),
            last_used_at: None,
            expires_at: None,
            revoked_at: None,
        };
        assert!(token.is_good(Timestamp(u64::MAX)));
        let until = Token { expires_at: Some(Timestamp(9)), ..token.clone() };
        assert!(until.is_good(Timestamp(8)) && !until.is_good(Timestamp(9)) && !until.is_good(Timestamp(10)));
        let revoked = Token { revoked_at: Some(Timestamp(7)), ..token };
        assert!(!revoked.is_good(Timestamp(6)) && !revoked.is_good(Timestamp(8)));
    }
}
