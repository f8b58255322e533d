//! A table of routes as it is written, in a file, a variable or a project:
//! `{"/workspace/": {"type": "filesystem", "root": "repo"}, "/notes/": "store"}`.

use serde::Deserialize;
use serde_json::Value;
use stead_model::route::{Entry, InvalidRoute, Routes};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "type")]
    kind: String,
    root: Option<String>,
    /// Paths are always confined to the root; a table that asks for less can't be honoured.
    virtual_mode: Option<bool>,
}

pub fn table(written: impl IntoIterator<Item = (String, Value)>) -> Result<Routes, InvalidRoute> {
    let entries: Result<Vec<_>, _> = written.into_iter().map(entry).collect();
    Routes::new(entries?)
}

fn entry((prefix, value): (String, Value)) -> Result<Entry, InvalidRoute> {
    if let Value::String(kind) = value {
        return Ok(Entry { prefix, kind, root: None });
    }
    let wrong = |message: String| InvalidRoute { prefix: prefix.clone(), message };
    if !value.is_object() {
        return Err(wrong("it leads to a backend: its name, or an object with a `type`".to_owned()));
    }
    let read: Written = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    if read.virtual_mode == Some(false) {
        return Err(wrong("`virtual_mode` can't be switched off: paths never leave the root".to_owned()));
    }
    Ok(Entry { prefix, kind: read.kind, root: read.root })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<Routes, String> {
        let Value::Object(entries) = value else { unreachable!("tests write objects") };
        table(entries).map_err(|error| error.to_string())
    }

    #[test]
    fn a_backend_is_a_name_or_an_object() {
        let seed = json!({
            "/workspace/": { "type": "filesystem", "root": "repo", "virtual_mode": true },
            "/memories/hot/": { "type": "store" }, "/memories/persistent/": "filesystem", "/tmp/": "state",
        });
        assert_eq!(read(seed).unwrap(), Routes::default());
    }

    #[test]
    fn what_is_wrong_names_its_entry() {
        for (value, named) in [
            (json!({ "/a": 5 }), "`/a`"),
            (json!({ "/a": { "type": "store", "ttl": 1 } }), "`ttl`"),
            (json!({ "/a": {} }), "`type`"),
            (json!({ "/a": { "type": "filesystem", "virtual_mode": false } }), "`virtual_mode`"),
            (json!({ "/a": "s3" }), "`s3`"),
        ] {
            let error = read(value).unwrap_err();
            assert!(error.contains(named) && error.contains("route `/a`"), "{error}");
        }
    }
}
