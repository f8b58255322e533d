//! Words that mean more than their letters.

use std::time::Duration;
use stead_model::ids::ThreadId;

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 =
        digits.parse().map_err(|_| format!("`{text}` is not a time; write `500ms`, `30s`, `5m` or `1h`"))?;
    match text.get(digits.len()..).unwrap_or_default() {
        "ms" => Ok(Duration::from_millis(number)),
        "s" | "" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number * 60)),
        "h" => Ok(Duration::from_secs(number * 3600)),
        unit => Err(format!("`{unit}` is not a unit of time; use `ms`, `s`, `m` or `h`")),
    }
}

/// `NAME=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: String,
}

pub(super) fn variable(text: &str) -> Result<Variable, String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` has no `=`; write `NAME=VALUE`"))?;
    Ok(Variable { name: variable_name(name)?, value: value.to_owned() })
}

pub(super) fn variable_name(name: &str) -> Result<String, String> {
    let fits =
        |(at, byte): (usize, u8)| byte.is_ascii_alphabetic() || byte == b'_' || (at > 0 && byte.is_ascii_digit());
    if !name.is_empty() && name.bytes().enumerate().all(fits) {
        return Ok(name.to_owned());
    }
    Err(format!("`{name}` is no name of a variable: letters, digits and `_`, not beginning with a digit"))
}

/// `[THREAD:]PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) thread: Option<ThreadId>,
    pub(crate) path: String,
}

/// What begins with `/`, `.` or `~` is a path; else what stands before the first colon, or before the first `:/`, is a
/// thread. A thread with colons in its name is best given with `-t`.
pub(super) fn remote(text: &str) -> Result<Remote, String> {
    let only_path = Remote { thread: None, path: text.to_owned() };
    if text.starts_with(['/', '.', '~']) {
        return Ok(only_path);
    }
    let at = text.find(":/").or_else(|| text.find(':'));
    let Some((thread, path)) = at.and_then(|at| Some((text.get(..at)?, text.get(at + 1..)?))) else {
        return Ok(only_path);
    };
    let thread =
        ThreadId::parse(thread).map_err(|error| format!("{error}; a path with a colon is written `./{text}`"))?;
    Ok(Remote { thread: Some(thread), path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit_and_refused_without_sense() {
        for (text, want) in [("500ms", 500), ("30s", 30_000), ("7", 7000), ("5m", 300_000), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(want)), "{text}");
        }
        for text in ["", "s", "5x", "-1s", "1.5s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn variables_have_a_name_and_any_value() {
        assert_eq!(variable("A_1=b=c").unwrap(), Variable { name: "A_1".to_owned(), value: "b=c".to_owned() });
        assert_eq!(variable("A=").unwrap().value, "");
        for text in ["A", "=b", "1A=b", "A-B=c", ""] {
            assert!(variable(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_place_has_a_thread_or_has_none() {
        for (text, thread, path) in [
            ("src/a", None, "src/a"),
            ("build:src/a", Some("build"), "src/a"),
            ("build:/etc/x:y", Some("build"), "/etc/x:y"),
            ("user:42:/tmp", Some("user:42"), "/tmp"),
            ("./a:b", None, "./a:b"),
            ("/a:b", None, "/a:b"),
            ("build:", Some("build"), ""),
        ] {
            let got = remote(text).unwrap();
            assert_eq!((got.thread.as_ref().map(ThreadId::as_str), got.path.as_str()), (thread, path), "{text}");
        }
        assert!(remote("a b:c").is_err());
    }
}
