//! Names that callers choose. A name is checked once, where it enters; everything behind takes the checked type.

use minicbor::{Decode, Decoder, Encode, Encoder};

/// The longest name we take: it becomes a key in memory and in records, never a path.
pub const MAX_LEN: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a valid {what}: 1-128 of `A-Z a-z 0-9 . _ : -`, starting with a letter or digit")]
pub struct InvalidId {
    what: &'static str,
    given: String,
}

fn check(what: &'static str, text: &str) -> Result<(), InvalidId> {
    let ok = (1..=MAX_LEN).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b))
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if ok {
        return Ok(());
    }
    let given = text.chars().take(40).filter(|c| !c.is_control()).collect();
    Err(InvalidId { what, given })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                check($what, text)?;
                Ok(Self(text.to_owned()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }

        impl<C> Encode<C> for $name {
            fn encode<W: minicbor::encode::Write>(
                &self,
                e: &mut Encoder<W>,
                _: &mut C,
            ) -> Result<(), minicbor::encode::Error<W::Error>> {
                e.str(&self.0)?.ok()
            }
        }

        impl<'b, C> Decode<'b, C> for $name {
            fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
                Self::parse(d.str()?).map_err(minicbor::decode::Error::message)
            }
        }
    };
}

id!(
    /// A shell of a steward, named by whoever opened it.
    ShellId,
    "shell id"
);
id!(
    /// One execution. The same id is run at most once, however often it is sent.
    CommandId,
    "command id"
);

id!(
    /// One conversation of an agent.
    ThreadId,
    "thread id"
);
id!(
    /// A durable shell state of a thread.
    TerminalId,
    "terminal id"
);
id!(
    /// A durable handle on compute.
    LeaseId,
    "lease id"
);
id!(
    /// One run of a provider's compute.
    InstanceId,
    "instance id"
);
id!(
    /// A policy window on a terminal.
    SessionId,
    "session id"
);
id!(
    /// A named workspace.
    ProjectId,
    "project id"
);
id!(
    /// What makes an event of a lease be written once.
    EventId,
    "event id"
);
id!(
    /// The files of a project at one moment.
    SnapshotId,
    "snapshot id"
);
id!(
    /// What lets somebody in.
    TokenId,
    "token id"
);
id!(
    /// A terminal agent in a workspace.
    AgentId,
    "agent session id"
);
id!(
    /// One message to an agent and what came of it.
    RunId,
    "run id"
);
id!(
    /// The name under which a provider is configured.
    ProviderName,
    "provider name"
);

macro_rules! made {
    ($($name:ident = $prefix:literal),* $(,)?) => {$(
        impl $name {
            /// One that we make, from bytes that nobody can guess.
            pub fn made_of(entropy: Entropy) -> Self {
                Self(format!("{}{}", $prefix, hex(entropy)))
            }
        }
    )*};
}

/// Eight bytes: 16 hexadecimal digits.
pub type Entropy = [u8; 8];

made!(
    ThreadId = "thr-",
    TerminalId = "term-",
    LeaseId = "lease-",
    InstanceId = "inst-",
    SessionId = "sess-",
    CommandId = "cmd-",
    EventId = "evt-",
    SnapshotId = "snap-",
    TokenId = "tok-",
    AgentId = "agent-",
    RunId = "run-",
);

fn hex(entropy: Entropy) -> String {
    format!("{:016x}", u64::from_be_bytes(entropy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_we_make_have_their_prefix_and_sixteen_digits() {
        assert_eq!(LeaseId::made_of([0, 1, 2, 3, 0xff, 5, 6, 7]).as_str(), "lease-00010203ff050607");
        assert_eq!(ThreadId::parse(ThreadId::made_of([9; 8]).as_str()), Ok(ThreadId::made_of([9; 8])));
    }

    #[test]
    fn names_that_a_caller_may_choose_are_accepted_and_others_refused() {
        for good in ["a", "9", "term-0123456789ab", "A.b_c:d-e", &"x".repeat(128)] {
            assert_eq!(ShellId::parse(good).map(|id| id.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "-a", ".a", "a/b", "a b", "a\n", "ä", &"x".repeat(129)] {
            assert!(CommandId::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
