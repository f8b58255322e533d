//! `stead memory`: the memories of a project.

use crate::args::{AsJson, Memory, MemoryDeed, OfMemory, Reach};
use crate::client::{Call, Client, ClientError, query, segment};
use crate::failure::Failure;
use crate::json::Fields;
use crate::table::{Table, age, one_line};
use crate::{print, session};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use stead_model::ids::SessionId;

pub(crate) fn run(asked: &Memory) -> Result<u8, Failure> {
    match &asked.deed {
        MemoryDeed::List { path, at, form, reach } => list(path.as_deref().unwrap_or(""), at, form, reach),
        MemoryDeed::Get { path, offset, limit, at, form, reach } => {
            get(&place(at, path), (*offset, *limit), at, form, reach)
        }
        MemoryDeed::Put { path, file, new, at, form, reach } => {
            put(&place(at, path), file.as_deref(), *new, at, form, reach)
        }
        MemoryDeed::Remove { path, recursive, at, form, reach } => {
            let place = place(at, path);
            let call = fs(at, &place, &[("recursive", if *recursive { "true" } else { "false" })]);
            session::run(reach, async |mut client| {
                client.json(Call::delete(&call)).await?;
                said(form, &json!({ "removed": place }))
            })
        }
    }
}

/// A memory by its name, or any file of the project by its path.
fn place(at: &OfMemory, path: &str) -> String {
    let base = if at.persistent { "/memories/persistent" } else { "/memories/hot" };
    match path {
        path if path.starts_with('/') => path.to_owned(),
        "" => base.to_owned(),
        path => format!("{base}/{path}"),
    }
}

fn api(at: &OfMemory) -> String {
    format!("/api/projects/{}/fs", segment(at.project.as_str()))
}

fn fs(at: &OfMemory, place: &str, asked: &[(&str, &str)]) -> String {
    let parts: Vec<_> = place.split('/').map(segment).collect();
    let path = format!("{}{}", api(at), parts.join("/"));
    let session = at.session.as_ref().map(|session| ("session_id", session.as_str()));
    let asked: Vec<_> = asked.iter().copied().chain(session).collect();
    if asked.is_empty() { path } else { query(&path, &asked) }
}

/// What was done, for a program; a person sees that nothing went wrong.
fn said(form: &AsJson, value: &Value) -> Result<u8, Failure> {
    if form.json {
        print::out(&format!("{value:#}\n"))?;
    }
    Ok(0)
}

fn list(path: &str, at: &OfMemory, form: &AsJson, reach: &Reach) -> Result<u8, Failure> {
    let place = place(at, path);
    session::run(reach, async |mut client| {
        let items = all(&mut client, at, &place).await?;
        if form.json {
            print::out(&format!("{:#}\n", json!({ "items": items })))?;
            return Ok(0);
        }
        let files: Vec<_> = items.iter().filter(|item| item.at("type") != "dir").collect();
        if files.is_empty() {
            tell!("nothing is kept in `{place}`");
            return Ok(0);
        }
        let mut table = Table::new(&["SIZE", "CHANGED", "NAME"]);
        for item in files {
            let path = item.at("path").as_str().unwrap_or_default();
            let name = path.strip_prefix(&format!("{}/", place.trim_end_matches('/'))).unwrap_or(path);
            table.row([one_line(item.at("size")), age(item.at("modified_at")), one_line(&name.into())]);
        }
        print::out(&table.render())?;
        Ok(0)
    })
}

/// Deeper than any path.
const DEPTH: u32 = 256;

async fn all(client: &mut Client, at: &OfMemory, place: &str) -> Result<Vec<Value>, Failure> {
    let session = at.session.as_ref().map(SessionId::as_str);
    let (mut items, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let asked = json!({ "path": place, "depth": DEPTH, "limit": 1000, "cursor": cursor, "session_id": session });
        let page = client.post(&format!("{}/ls", api(at)), &asked).await?;
        items.extend(page.at("items").as_array().into_iter().flatten().cloned());
        cursor = page.at("next_cursor").clone();
        if cursor.is_null() {
            return Ok(items);
        }
    }
}

fn get(
    place: &str,
    (offset, limit): (Option<u64>, Option<u64>),
    at: &OfMemory,
    form: &AsJson,
    reach: &Reach,
) -> Result<u8, Failure> {
    let numbers: Vec<_> = [("offset", offset), ("limit", limit)]
        .into_iter()
        .filter_map(|(name, number)| Some((name, number?.to_string())))
        .collect();
    let asked: Vec<_> = numbers.iter().map(|(name, number)| (*name, number.as_str())).collect();
    let path = fs(at, place, &asked);
    session::run(reach, async |mut client| {
        let answer = client.send(Call::get(&path)).await?;
        let etag = answer.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let mut body = answer.into_body();
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(ClientError::broken)?;
            let bytes = frame.data_ref().map_or(&[][..], |data| data.as_ref());
            if form.json {
                whole.extend_from_slice(bytes);
                continue;
            }
            match io::stdout().lock().write_all(bytes) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
                written => written.map_err(Failure::Output)?,
            }
        }
        if form.json {
            let size = whole.len();
            let text = String::from_utf8(whole).map_err(|_| {
                Failure::Asked(format!("`{place}` is no text; without `--json` it is printed as it is"))
            })?;
            return said(form, &json!({ "path": place, "etag": etag, "size": size, "content": text }));
        }
        io::stdout().lock().flush().map_err(Failure::Output)?;
        Ok(0)
    })
}

fn put(
    place: &str,
    file: Option<&Path>,
    new: bool,
    at: &OfMemory,
    form: &AsJson,
    reach: &Reach,
) -> Result<u8, Failure> {
    // Memories are small; one that isn't is refused by its size.
    let mut bytes = Vec::new();
    match file.filter(|file| *file != Path::new("-")) {
        Some(file) => bytes = std::fs::read(file).map_err(Failure::file(PathBuf::from(file)))?,
        None => {
            io::stdin().lock().read_to_end(&mut bytes).map_err(Failure::Input)?;
        }
    }
    let size = bytes.len();
    session::run(reach, async |mut client| {
        let mut call = Call::put(&fs(at, place, &[])).bytes(Bytes::from(bytes));
        if new {
            call = call.header(header::IF_NONE_MATCH, "*");
        }
        let answer = client.send(call).await?;
        let etag = answer.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok());
        let created = answer.status().as_u16() == 201;
        said(form, &json!({ "path": place, "etag": etag, "size": size, "created": created }))
    })
}
