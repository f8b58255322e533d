//! Files of a sandbox: `/files`, and what the daemon can do with paths.

use super::envd::Asked;
use super::wire::{Answer, Call, Refusal, fault, refuse};
use super::world::World;
use axum::Json;
use axum::response::IntoResponse;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

pub(super) fn download(world: &World, call: &Call, asked: &Asked<'_>) -> Answer {
    let Some(path) = path_in_query(world, call, asked)? else { return Err(world.strange(call, "no path")) };
    match std::fs::read(asked.awake.machine.outside(&path)) {
        Ok(bytes) => Ok(([("Content-Type", "application/octet-stream")], bytes).into_response()),
        Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => {
            Err(refuse(400, &format!("path '{path}' is a directory")))
        }
        Err(_) => Err(refuse(404, &format!("path '{path}' does not exist"))),
    }
}

/// A form with one part or more, or the bytes themselves. It writes in place.
pub(super) fn upload(world: &World, call: &Call, asked: &Asked<'_>) -> Answer {
    let path = path_in_query(world, call, asked)?;
    let content_type = world.header(call, "content-type")?;
    let files = match (content_type.strip_prefix("multipart/form-data; boundary="), content_type, path) {
        (Some(boundary), _, path) => {
            let parts = parts(&call.body, boundary).ok_or_else(|| world.strange(call, "not a form"))?;
            match (path, parts.as_slice()) {
                (Some(path), [(_, bytes)]) => vec![(path, bytes.clone())],
                (Some(_), _) => return Err(world.strange(call, "one path for several parts")),
                (None, _) => parts.into_iter().map(|(name, bytes)| (asked.path(&name), bytes)).collect(),
            }
        }
        (None, "application/octet-stream", Some(path)) => vec![(path, call.body.clone())],
        (None, ..) => return Err(world.strange(call, format_args!("content type `{content_type}`"))),
    };
    let mut written = Vec::new();
    for (path, bytes) in files {
        let outside = asked.awake.machine.outside(&path);
        if outside.is_dir() {
            return Err(refuse(400, &format!("path is a directory: {path}")));
        }
        std::fs::create_dir_all(outside.parent().unwrap()).map_err(|error| refuse(400, &error.to_string()))?;
        std::fs::write(&outside, bytes).map_err(|error| refuse(500, &error.to_string()))?;
        written.push(json!({ "path": path, "name": name(&path), "type": "file" }));
    }
    Ok(Json(written).into_response())
}

pub(super) fn answer(world: &World, call: &Call, asked: &Asked<'_>, method: &str) -> Answer {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct At {
        path: String,
    }
    let outside = |path: &str| asked.awake.machine.outside(path);
    let missing = |path: &str| fault("not_found", &format!("path not found: {path}"));
    match method {
        "Stat" => {
            let At { path } = world.json(call)?;
            let path = asked.path(&path);
            let entry = entry(&outside(&path), &path).ok_or_else(|| missing(&path))?;
            Ok(Json(json!({ "entry": entry })).into_response())
        }
        "MakeDir" => {
            let At { path } = world.json(call)?;
            let path = asked.path(&path);
            match std::fs::metadata(outside(&path)) {
                Ok(found) if found.is_dir() => return Err(fault("already_exists", "directory already exists")),
                Ok(_) => return Err(fault("invalid_argument", "path is a file")),
                Err(_) => std::fs::create_dir_all(outside(&path)).map_err(|e| fault("internal", &e.to_string()))?,
            }
            Ok(Json(json!({ "entry": entry(&outside(&path), &path) })).into_response())
        }
        "Move" => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Move {
                source: String,
                destination: String,
            }
            let Move { source, destination } = world.json(call)?;
            let (source, destination) = (asked.path(&source), asked.path(&destination));
            let (from, to) = (outside(&source), outside(&destination));
            if !from.exists() {
                return Err(missing(&source));
            }
            std::fs::create_dir_all(to.parent().unwrap()).map_err(|error| fault("internal", &error.to_string()))?;
            std::fs::rename(&from, &to).map_err(|error| fault("internal", &error.to_string()))?;
            Ok(Json(json!({ "entry": entry(&to, &destination) })).into_response())
        }
        "Remove" => {
            let At { path } = world.json(call)?;
            let outside = outside(&asked.path(&path));
            let _ = if outside.is_dir() { std::fs::remove_dir_all(outside) } else { std::fs::remove_file(outside) };
            Ok(Json(json!({})).into_response())
        }
        "ListDir" => {
            #[derive(Deserialize)]
            #[serde(deny_unknown_fields)]
            struct ListDir {
                path: String,
                depth: Option<u32>,
            }
            let ListDir { path, depth } = world.json(call)?;
            let path = asked.path(&path);
            if outside(&path).is_file() {
                return Err(fault("invalid_argument", "path is not a directory"));
            }
            let mut entries = Vec::new();
            list(&outside(&path), &path, depth.unwrap_or(0).max(1), &mut entries).ok_or_else(|| missing(&path))?;
            Ok(Json(if entries.is_empty() { json!({}) } else { json!({ "entries": entries }) }).into_response())
        }
        _ => Err(world.strange(call, "no such call")),
    }
}

fn path_in_query(world: &World, call: &Call, asked: &Asked<'_>) -> Result<Option<String>, Refusal> {
    let query = world.query(call, &["path", "username"])?;
    Ok(query.into_iter().find(|(name, _)| name == "path").map(|(_, path)| asked.path(&path)))
}

/// The parts of a form, all of them named `file`: their file names and what they hold.
fn parts(body: &Bytes, boundary: &str) -> Option<Vec<(String, Bytes)>> {
    let boundary = format!("--{}", boundary.trim_matches('"'));
    let find = |from: usize, what: &[u8]| {
        let rest = body.get(from..)?;
        rest.windows(what.len()).position(|window| window == what).map(|at| from + at)
    };
    let mut parts = Vec::new();
    let mut at = find(0, boundary.as_bytes())? + boundary.len();
    while !body.get(at..)?.starts_with(b"--") {
        let head_ends = find(at, b"\r\n\r\n")?;
        let head = std::str::from_utf8(&body[at..head_ends]).ok()?;
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("content-disposition:"))?;
        let field = |name: &str| Some(line.split_once(&format!("; {name}=\""))?.1.split_once('"')?.0.to_owned());
        let ends = find(head_ends + 4, format!("\r\n{boundary}").as_bytes())?;
        if field("name")? != "file" {
            return None;
        }
        parts.push((field("filename")?, body.slice(head_ends + 4..ends)));
        at = ends + 2 + boundary.len();
    }
    Some(parts)
}

fn list(outside: &Path, inside: &str, depth: u32, entries: &mut Vec<Value>) -> Option<()> {
    let mut found: Vec<_> = std::fs::read_dir(outside).ok()?.flatten().map(|entry| entry.file_name()).collect();
    found.sort();
    for name in found {
        let (outside, inside) = (outside.join(&name), format!("{}/{}", inside.trim_end_matches('/'), name.to_str()?));
        entries.push(entry(&outside, &inside)?);
        if depth > 1 && outside.is_dir() {
            list(&outside, &inside, depth - 1, entries)?;
        }
    }
    Some(())
}

/// What is zero is left out, and long numbers are texts.
fn entry(outside: &Path, inside: &str) -> Option<Value> {
    let meta = std::fs::symlink_metadata(outside).ok()?;
    let kind = if meta.is_dir() {
        "FILE_TYPE_DIRECTORY"
    } else if meta.is_symlink() {
        "FILE_TYPE_SYMLINK"
    } else {
        "FILE_TYPE_FILE"
    };
    let mode = meta.permissions().mode() & 0o7777;
    let modified = jiff::Timestamp::from_second(meta.mtime()).ok()?.to_string();
    let mut value = json!({
        "name": name(inside), "type": kind, "path": inside, "mode": mode, "permissions": format!("{mode:o}"),
        "owner": "user", "group": "user", "modifiedTime": modified,
    });
    if meta.len() > 0 {
        value["size"] = meta.len().to_string().into();
    }
    Some(value)
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}
