//! Files of a sandbox.

use super::World;
use super::ask::{Ask, No, json, nothing};
use super::multipart::{self, Part};
use super::toolbox::HOME;
use crate::machine::Machine;
use axum::body::Body;
use axum::http::Method;
use axum::response::Response;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

const BOUNDARY: &str = "DAYTONA-FILE-BOUNDARY";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Paths {
    paths: Vec<String>,
}

pub(super) fn route(world: &World, ask: &Ask, machine: &Machine, path: &[&str]) -> Result<Response, No> {
    let at = |name: &str| -> Result<PathBuf, No> { Ok(machine.outside(&absolute(ask.needs(name)?))) };
    match (ask.method.clone(), path) {
        (Method::GET, []) => {
            ask.knows(&["path", "depth"])?;
            let entries = std::fs::read_dir(at("path")?).map_err(told)?;
            let infos = entries.map(|entry| info(&entry?.path())).collect::<io::Result<Vec<_>>>().map_err(told)?;
            Ok(json(200, &infos))
        }
        (Method::DELETE, []) => {
            ask.knows(&["path", "recursive"])?;
            let path = at("path")?;
            match (path.is_dir(), ask.query("recursive")) {
                (false, _) => std::fs::remove_file(path).map_err(told)?,
                (true, Some("true")) => std::fs::remove_dir_all(path).map_err(told)?,
                (true, _) => return Err(No::refuses(400, "cannot delete directory without recursive flag")),
            }
            Ok(nothing(204))
        }
        (Method::GET, ["info"]) => {
            ask.knows(&["path"])?;
            Ok(json(200, &info(&at("path")?).map_err(told)?))
        }
        (Method::GET, ["download"]) => {
            ask.knows(&["path"])?;
            let content = std::fs::read(at("path")?).map_err(told)?;
            let builder = Response::builder().header("content-type", "application/octet-stream");
            Ok(builder.body(Body::from(content)).unwrap())
        }
        (Method::POST, ["upload-v2"]) if world.is_old.load(Ordering::SeqCst) => Err(No::refuses(404, "page not found")),
        (Method::POST, [upload @ ("upload-v2" | "upload")]) => {
            ask.knows(&["path"])?;
            let is_form = ask.header("content-type").is_some_and(|kind| kind.starts_with("multipart/"));
            let content = match (*upload, is_form) {
                (_, true) => file(multipart::parts(ask)?)?,
                ("upload-v2", false) => ask.body.to_vec(),
                (_, false) => return Err(No::violates("no form")),
            };
            let path = at("path")?;
            write(&path, &content)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Ok(json(200, &serde_json::json!({"name": name, "path": ask.query("path"), "type": "file"})))
        }
        (Method::POST, ["bulk-upload"]) => bulk_upload(ask.knows(&[])?, machine),
        (Method::POST, ["bulk-download"]) => {
            let order: Paths = ask.knows(&[])?.json()?;
            Ok(bulk_download(&order.paths, machine))
        }
        (Method::POST, ["folder"]) => {
            ask.knows(&["path", "mode"])?;
            let mode = u32::from_str_radix(ask.needs("mode")?, 8).map_err(|_| No::violates("no mode"))?;
            let path = at("path")?;
            std::fs::create_dir_all(&path).map_err(told)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).map_err(told)?;
            Ok(nothing(201))
        }
        (Method::POST, ["move"]) => {
            ask.knows(&["source", "destination"])?;
            let (source, destination) = (at("source")?, at("destination")?);
            if destination.exists() {
                return Err(No::refuses(409, "destination already exists").with("CONFLICT"));
            }
            std::fs::rename(source, destination).map_err(told)?;
            Ok(nothing(200))
        }
        _ => Err(No::violates("the toolbox does nothing of the kind with files")),
    }
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{HOME}/{path}") }
}

fn file(parts: Vec<Part>) -> Result<Vec<u8>, No> {
    let file = parts.into_iter().find(|part| part.name == "file");
    file.map(|part| part.content).ok_or_else(|| No::violates("no part `file`"))
}

/// As it comes, in place: who reads meanwhile sees a part of it.
fn write(path: &Path, content: &[u8]) -> Result<(), No> {
    std::fs::create_dir_all(path.parent().unwrap()).map_err(told)?;
    std::fs::write(path, content).map_err(told)
}

/// Each path stands somewhere before its file.
fn bulk_upload(ask: &Ask, machine: &Machine) -> Result<Response, No> {
    let mut paths = BTreeMap::new();
    for part in multipart::parts(ask)? {
        match part.name.rsplit_once('.') {
            Some((file, "path")) => {
                paths.insert(file.to_owned(), String::from_utf8_lossy(&part.content).into_owned());
            }
            Some((file, "file")) => {
                let path = paths.remove(file).ok_or_else(|| No::violates("no path before"))?;
                write(&machine.outside(&absolute(&path)), &part.content)?;
            }
            _ => return Err(No::violates(format!("unknown part `{}`", part.name))),
        }
    }
    Ok(nothing(200))
}

fn bulk_download(paths: &[String], machine: &Machine) -> Response {
    let mut body = Vec::new();
    for path in paths {
        let (name, kind, content) = match std::fs::read(machine.outside(&absolute(path))) {
            Ok(content) => ("file", "application/octet-stream", content),
            Err(error) => ("error", "text/plain", error.to_string().into_bytes()),
        };
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{path}\"\r\nContent-Type: {kind}\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(&content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    let builder = Response::builder().header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"));
    builder.body(Body::from(body)).unwrap()
}

fn info(path: &Path) -> io::Result<serde_json::Value> {
    let meta = std::fs::symlink_metadata(path)?;
    let mode = meta.permissions().mode() & 0o7777;
    let at = jiff::Timestamp::from_second(meta.mtime()).unwrap().to_string();
    Ok(serde_json::json!({
        "name": path.file_name().unwrap_or_default().to_string_lossy(), "size": meta.len(), "isDir": meta.is_dir(),
        "mode": format!("{mode:04o}"), "permissions": format!("{mode:04o}"), "owner": meta.uid().to_string(),
        "group": meta.gid().to_string(), "modTime": at, "modifiedAt": at,
    }))
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn told(error: io::Error) -> No {
    if error.kind() == io::ErrorKind::NotFound {
        return No::refuses(404, error.to_string()).with("FILE_NOT_FOUND");
    }
    No::refuses(if error.kind() == io::ErrorKind::PermissionDenied { 403 } else { 400 }, error.to_string())
}
