//! `stead push` and `stead pull`: files and directories, as `cp -r` copies them.

mod pack;
mod place;
mod progress;
mod unpack;

use crate::args::{InThread, Pull, Push, Remote};
use crate::client::{Call, Client, query, segment};
use crate::failure::Failure;
use crate::json::Fields;
use crate::session;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use place::{Kind, Target, basename, joined};
use progress::Progress;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use tokio::sync::mpsc;

/// How much is read and sent at a time.
const PIECE: usize = 256 << 10;

/// Where the files of the thread in question are.
fn files(at: &InThread, remote: &Remote) -> String {
    let thread = remote.thread.as_ref().unwrap_or(&at.thread);
    format!("/api/threads/{}/files", segment(thread.as_str()))
}

/// What lies at a path there; `None` if nothing does.
async fn stat(client: &mut Client, files: &str, path: &str) -> Result<Option<Value>, Failure> {
    match client.get(&query(&format!("{files}/stat"), &[("path", path)])).await {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if error.is_code("not_found") && !is_thread_missing(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_thread_missing(error: &crate::client::ClientError) -> bool {
    matches!(error, crate::client::ClientError::Problem(problem) if problem.kind.as_deref() == Some("thread"))
}

pub(crate) fn push(asked: &Push) -> Result<u8, Failure> {
    let files = files(&asked.at, &asked.remote);
    let from_stdin = asked.local == Path::new("-");
    let kind = if from_stdin { Kind::File } else { place::kind(&asked.local)? };
    let given = if asked.remote.path.is_empty() { "." } else { &asked.remote.path };
    session::run(&asked.reach, async |mut client| {
        let there = stat(&mut client, &files, given).await?;
        let into_dir = there.as_ref().is_some_and(|stat| stat.at("type") == "dir") || given.ends_with('/');
        let path = match (kind, into_dir) {
            (Kind::Contents, _) | (_, false) => given.to_owned(),
            (Kind::File | Kind::Dir, true) if from_stdin => {
                return Err(Failure::Asked(format!("`{given}` is a directory; name the file in it")));
            }
            (Kind::File | Kind::Dir, true) => joined(given, &basename(&asked.local)?),
        };
        if kind != Kind::File && there.as_ref().is_some_and(|stat| stat.at("type") == "file") {
            return Err(Failure::Asked(format!("`{given}` is a file; a directory can't be put in its place")));
        }
        let (send, pieces) = mpsc::channel(4);
        let local = asked.local.clone();
        let (call, progress) = if kind == Kind::File {
            let size = if from_stdin { None } else { std::fs::metadata(&local).ok().map(|meta| meta.len()) };
            (Call::put(&query(&files, &[("path", &path)])), Progress::of_bytes(size))
        } else {
            let call = Call::put(&query(&format!("{files}/archive"), &[("path", &path)]));
            (call.header(hyper::header::CONTENT_TYPE, "application/x-tar"), Progress::of_bytes(None))
        };
        let counted = progress.clone();
        let packing = tokio::task::spawn_blocking(move || match kind {
            Kind::File => pump(&local, &send, &counted).map(|()| Vec::new()),
            Kind::Dir | Kind::Contents => pack::pack(&local, &send, &counted),
        });
        let answer = client.send(call.stream(pieces)).await;
        // Its own failure explains the server's, which only saw a body that broke off.
        let left_out = match packing.await.map_err(io::Error::from).flatten() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(Failure::file(&asked.local)(error)),
            packed => packed.unwrap_or_default(),
        };
        answer?;
        progress.finish();
        for path in left_out {
            tell!("stead: warning: `{}` is no file, directory or link; it was left out", path.display());
        }
        Ok(0)
    })
}

/// Sends a file, or standard input, piece by piece.
fn pump(path: &Path, send: &mpsc::Sender<io::Result<Bytes>>, progress: &Progress) -> io::Result<()> {
    let result: io::Result<()> = (|| {
        let mut source: Box<dyn Read> =
            if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
        loop {
            let mut buffer = vec![0; PIECE];
            let read = match source.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if read == 0 {
                return Ok(());
            }
            buffer.truncate(read);
            progress.add(read);
            send.blocking_send(Ok(Bytes::from(buffer))).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        }
    })();
    if let Err(error) = &result {
        // The body must break off, or the server would take the part for the whole.
        let _ = send.blocking_send(Err(io::Error::new(error.kind(), error.to_string())));
    }
    result
}

pub(crate) fn pull(asked: &Pull) -> Result<u8, Failure> {
    let files = files(&asked.at, &asked.remote);
    session::run(&asked.reach, async |mut client| {
        let contents = asked.remote.path.ends_with("/.");
        let path = if asked.remote.path.is_empty() { "." } else { &asked.remote.path };
        let Some(stat) = stat(&mut client, &files, path).await? else {
            return Err(Failure::Asked(format!("there is no `{path}` in the thread")));
        };
        let is_dir = stat.at("type") == "dir";
        if asked.local == Path::new("-") {
            if is_dir {
                return Err(Failure::Asked(format!("`{path}` is a directory; only a file goes to standard output")));
            }
            return to_stdout(&mut client, &query(&files, &[("path", path)])).await;
        }
        // The name that the thing has there, not how it was asked for: `.` has one, too.
        let name = stat.at("name").as_str().filter(|name| place::is_plain(name)).unwrap_or("workspace").to_owned();
        let pulling = async {
            if is_dir {
                let target = if contents { Target::contents(&asked.local) } else { Target::of(&asked.local, &name) };
                let answer = client.send(Call::get(&query(&format!("{files}/archive"), &[("path", path)]))).await?;
                let progress = Progress::of_bytes(None);
                unpack::directory(answer.into_body(), &target, asked.force, &progress).await?;
                progress.finish();
            } else {
                let target = Target::of(&asked.local, &name);
                let answer = client.send(Call::get(&query(&files, &[("path", path)]))).await?;
                let progress = Progress::of_bytes(stat.at("size").as_u64());
                unpack::file(answer.into_body(), &target, stat.at("mode"), &progress).await?;
                progress.finish();
            }
            Ok(0)
        };
        tokio::select! {
            result = pulling => result,
            // What was half done is removed on the way out.
            _ = tokio::signal::ctrl_c() => Ok(130),
        }
    })
}

async fn to_stdout(client: &mut Client, path: &str) -> Result<u8, Failure> {
    let mut body: Incoming = client.send(Call::get(path)).await?.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(crate::client::ClientError::broken)?;
        let bytes = frame.data_ref().map_or(&[][..], |data| data.as_ref());
        match io::stdout().lock().write_all(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
            other => other.map_err(Failure::Output)?,
        }
    }
    io::stdout().lock().flush().map_err(Failure::Output)?;
    Ok(0)
}
