//! Conditional requests (RFC 9110, 13).

use super::super::problem::{Answer, Problem};
use crate::files::Condition;
use axum::http::{HeaderMap, HeaderName, header};
use jiff::fmt::rfc2822::DateTimePrinter;
use stead_model::clock::Timestamp;

/// What a reader is to get.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fresh {
    Send,
    /// It has that one.
    Has,
    /// It wants another one.
    Other,
}

pub(super) fn freshness(headers: &HeaderMap, etag: &str) -> Answer<Fresh> {
    match tags(headers, &header::IF_MATCH)? {
        Some(Tags::These(these)) if !these.iter().any(|tag| tag.is_strongly(etag)) => return Ok(Fresh::Other),
        None | Some(Tags::Any | Tags::These(_)) => {}
    }
    match tags(headers, &header::IF_NONE_MATCH)? {
        Some(Tags::Any) => Ok(Fresh::Has),
        Some(Tags::These(these)) if these.iter().any(|tag| tag.opaque == etag) => Ok(Fresh::Has),
        None | Some(Tags::These(_)) => Ok(Fresh::Send),
    }
}

/// What must be so for a change.
pub(in super::super) fn change_if(headers: &HeaderMap) -> Answer<Condition> {
    let strong = |these: Vec<Tag>| these.into_iter().filter(|tag| !tag.weak).map(|tag| tag.opaque).collect();
    match (tags(headers, &header::IF_MATCH)?, tags(headers, &header::IF_NONE_MATCH)?) {
        (None, None) => Ok(Condition::Any),
        (Some(Tags::Any), None) => Ok(Condition::Present),
        (Some(Tags::These(these)), None) => Ok(Condition::Is(strong(these))),
        (None, Some(Tags::Any)) => Ok(Condition::Absent),
        (None, Some(Tags::These(these))) => Ok(Condition::IsNot(these.into_iter().map(|tag| tag.opaque).collect())),
        (Some(_), Some(_)) => Err(Problem::invalid("`If-Match` and `If-None-Match` at once are not taken")),
    }
}

/// Whether a range may be honoured: the client has a part of this very file.
pub(super) fn keeps_range(headers: &HeaderMap, etag: &str, modified: &str) -> bool {
    let Some(value) = headers.get(header::IF_RANGE) else { return true };
    value.to_str().is_ok_and(|value| value == etag || (!value.contains('"') && value == modified))
}

enum Tags {
    Any,
    These(Vec<Tag>),
}

#[derive(Debug, PartialEq, Eq)]
struct Tag {
    weak: bool,
    /// With its quotes.
    opaque: String,
}

impl Tag {
    fn is_strongly(&self, etag: &str) -> bool {
        !self.weak && self.opaque == etag
    }
}

fn tags(headers: &HeaderMap, name: &HeaderName) -> Answer<Option<Tags>> {
    let wrong = || Problem::invalid(format!("`{name}` is `*` or a list of entity tags in quotes"));
    let mut these = Vec::new();
    for value in headers.get_all(name) {
        let mut rest = value.to_str().map_err(|_| wrong())?.trim();
        if rest == "*" {
            return Ok(Some(Tags::Any));
        }
        while !rest.is_empty() {
            let (weak, quoted) = rest.strip_prefix("W/").map_or((false, rest), |quoted| (true, quoted));
            let inner = quoted.strip_prefix('"').ok_or_else(wrong)?;
            let (opaque, after) = inner.split_once('"').ok_or_else(wrong)?;
            these.push(Tag { weak, opaque: format!("\"{opaque}\"") });
            rest = after.trim_start();
            rest = match rest.strip_prefix(',') {
                Some(more) => more.trim_start(),
                None if rest.is_empty() => rest,
                None => return Err(wrong()),
            };
        }
    }
    let is_sent = headers.contains_key(name);
    if is_sent && these.is_empty() {
        return Err(wrong());
    }
    Ok(is_sent.then_some(Tags::These(these)))
}

/// A moment as headers have it, to the second.
pub(super) fn http_date(moment: Timestamp) -> String {
    let millis = i64::try_from(moment.0).unwrap_or(i64::MAX);
    let moment = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    DateTimePrinter::new().timestamp_to_rfc9110_string(&moment).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_reader_gets_what_it_does_not_have() {
        let (matching, none) = (header::IF_MATCH, header::IF_NONE_MATCH);
        let cases = [
            (vec![], Fresh::Send),
            (vec![(matching.clone(), "*")], Fresh::Send),
            (vec![(matching.clone(), "\"b\", \"a\"")], Fresh::Send),
            (vec![(matching.clone(), "\"b\"")], Fresh::Other),
            (vec![(matching.clone(), "W/\"a\"")], Fresh::Other),
            (vec![(none.clone(), "\"a\"")], Fresh::Has),
            (vec![(none.clone(), "W/\"a\"")], Fresh::Has),
            (vec![(none.clone(), "\"b\",\"c\"")], Fresh::Send),
            (vec![(none.clone(), "*")], Fresh::Has),
            (vec![(matching.clone(), "\"a\""), (none.clone(), "\"a\"")], Fresh::Has),
        ];
        for (pairs, fresh) in cases {
            assert_eq!(freshness(&headers(&pairs), "\"a\"").unwrap(), fresh, "{pairs:?}");
        }
        for wrong in ["a", "\"a", "\"a\" \"b\"", "", "*, \"a\""] {
            assert!(freshness(&headers(&[(none.clone(), wrong)]), "\"a\"").is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_change_is_bound_to_what_the_headers_say() {
        let (matching, none) = (header::IF_MATCH, header::IF_NONE_MATCH);
        let is = |tags: &[&str]| Condition::Is(tags.iter().map(|tag| (*tag).to_owned()).collect());
        let cases = [
            (vec![], Condition::Any),
            (vec![(none.clone(), "*")], Condition::Absent),
            (vec![(matching.clone(), "*")], Condition::Present),
            (vec![(matching.clone(), "\"a\", W/\"b\",\"c,d\"")], is(&["\"a\"", "\"c,d\""])),
            (vec![(none.clone(), "\"a\"")], Condition::IsNot(vec!["\"a\"".to_owned()])),
        ];
        for (pairs, condition) in cases {
            assert_eq!(change_if(&headers(&pairs)).unwrap(), condition, "{pairs:?}");
        }
        assert!(change_if(&headers(&[(matching, "*"), (none, "*")])).is_err());
    }

    #[test]
    fn a_range_is_kept_only_of_the_same_file() {
        let date = http_date(Timestamp(784_111_777_000));
        assert_eq!(date, "Sun, 06 Nov 1994 08:49:37 GMT");
        let cases = [
            ("\"a\"", true),
            ("\"b\"", false),
            ("W/\"a\"", false),
            ("Sun, 06 Nov 1994 08:49:37 GMT", true),
            ("x", false),
        ];
        for (value, kept) in cases {
            assert_eq!(keeps_range(&headers(&[(header::IF_RANGE, value)]), "\"a\"", &date), kept, "{value}");
        }
        assert!(keeps_range(&HeaderMap::new(), "\"a\"", &date));
    }
}
