//! One suite, over every backend and every shape of route; and any sequence of changes, on all backends at once and
//! beside a model.

mod laws;
mod suite;

use super::{Parts, Space, parse};
use crate::clock::SystemClock;
use crate::error::Error;
use crate::files::{Condition, Page};
use crate::memory::{Bounds, Hot, Kept};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use stead_model::place::Place;
use stead_model::route::{Entry, Routes};
use tokio_util::task::TaskTracker;

const KINDS: [&str; 3] = ["filesystem", "store", "state"];

fn routes(entries: &[(&str, &str)]) -> Arc<Routes> {
    let entry =
        |(prefix, kind): &(&str, &str)| Entry { prefix: (*prefix).to_owned(), kind: (*kind).to_owned(), root: None };
    Arc::new(Routes::new(entries.iter().map(entry)).unwrap())
}

fn space(dir: &Path, entries: &[(&str, &str)]) -> Space {
    let routes = routes(entries);
    let hot = Hot::open(&dir.join(".memories/journal"), Bounds::default(), &routes).unwrap();
    let state = Kept::passing(Bounds::default(), 0);
    let clock = Arc::new(SystemClock);
    let parts = Parts { routes, hot: Some(Arc::new(hot)), state: Some(Arc::new(state)), clock, memories: None };
    Space::new(dir, parts, TaskTracker::new())
}

fn at(path: &str) -> Place {
    parse(path.as_bytes()).unwrap()
}

fn put(space: &Space, path: &str, text: &str) -> Result<bool, &'static str> {
    let written = space.write(&at(path), Bytes::copy_from_slice(text.as_bytes()), &Condition::Any);
    written.map(|(created, _)| created).map_err(code)
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` has it")]
fn code(error: Error) -> &'static str {
    error.code()
}

fn read(space: &Space, path: &str) -> Result<String, &'static str> {
    let read = space.read(&at(path), 1 << 20).map_err(code)?;
    Ok(String::from_utf8(read.0.to_vec()).unwrap())
}

fn page(limit: usize) -> Page {
    Page { limit, after: None }
}

/// Paths and kinds below one, all pages of so many.
fn listed(space: &Space, path: &str, depth: usize, limit: usize) -> Result<Vec<String>, &'static str> {
    let (mut all, mut page) = (Vec::new(), page(limit));
    loop {
        let found = space.list(&at(path), depth, &page).map_err(code)?;
        all.extend(found.items.iter().map(|item| {
            let size = item.size.map_or_else(String::new, |size| format!(" {size}"));
            format!("{} {}{size}", String::from_utf8_lossy(&item.path()), item.kind.name())
        }));
        let Some(next) = found.next else { return Ok(all) };
        page.after = Some(next);
    }
}

#[test]
fn routes_are_merged_at_the_root_and_hide_what_lies_below_them() {
    let dir = tempfile::tempdir().unwrap();
    let space = space(dir.path(), &[("/", "filesystem"), ("/m/", "store"), ("/a/b/c", "state")]);
    let root = dir.path().join("routes/root");
    std::fs::create_dir_all(root.join("m")).unwrap();
    std::fs::write(root.join("m/hidden"), "x").unwrap();
    std::fs::write(root.join("a"), "a file where a route leads").unwrap();
    assert_eq!(put(&space, "/plain", "find me"), Ok(true));
    assert_eq!(put(&space, "/m/hot", "find me"), Ok(true));
    assert_eq!(put(&space, "/a/b/c/passing", "find me"), Ok(true));
    let all = ["/a dir", "/a/b dir", "/a/b/c dir", "/a/b/c/passing file 7", "/m dir", "/m/hot file 7", "/plain file 7"];
    for limit in [1, 2, 3, 100] {
        assert_eq!(listed(&space, "/", 9, limit).unwrap(), all, "pages of {limit}");
    }
    let grep = crate::files::Grep { pattern: "find me".to_owned(), literal: true, ignore_case: false, glob: None };
    let found = space.grep(&at("/"), &grep, &page(10)).unwrap();
    let paths: Vec<_> = found.items.iter().map(|found| String::from_utf8_lossy(&found.path).into_owned()).collect();
    assert_eq!(paths, ["/a/b/c/passing", "/m/hot", "/plain"]);
    let globbed = space.glob(&at("/"), "m/*", &page(10)).unwrap();
    assert_eq!(globbed.items.iter().map(super::Item::path).collect::<Vec<_>>(), [b"/m/hot".to_vec()]);
    assert_eq!(read(&space, "/a"), Err("invalid_path"));
    assert_eq!(put(&space, "/a", "x"), Err("invalid_path"));
    for point in ["/", "/m", "/a", "/a/b", "/a/b/c"] {
        let removed = space.remove(&at(point), crate::memory::Depth::WithAllBelow, &Condition::Any);
        assert_eq!(removed.map_err(code), Err("invalid_path"), "{point}");
    }
}

#[test]
fn without_a_session_its_files_are_refused_by_name_and_absent_from_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let mut space = space(dir.path(), &[("/w", "filesystem"), ("/tmp/", "state")]);
    space.state = None;
    assert_eq!(put(&space, "/w/x", "1"), Ok(true));
    assert_eq!(listed(&space, "/", 5, 10).unwrap(), ["/tmp dir", "/w dir", "/w/x file 1"]);
    assert_eq!(put(&space, "/tmp/x", "1"), Err("invalid_request"));
    assert_eq!(read(&space, "/tmp/x"), Err("invalid_request"));
    assert_eq!(listed(&space, "/tmp", 5, 10), Err("invalid_request"));
}

#[test]
fn where_no_route_leads_nothing_is_and_nothing_can_be_put() {
    let dir = tempfile::tempdir().unwrap();
    let space = space(dir.path(), &[("/a/b", "store")]);
    assert_eq!(read(&space, "/x"), Err("not_found"));
    assert_eq!(put(&space, "/x", ""), Err("invalid_path"));
    assert_eq!(put(&space, "/a/x", ""), Err("invalid_path"));
    assert_eq!(listed(&space, "/x", 1, 9), Err("not_found"));
    assert_eq!(listed(&space, "/a", 1, 9).unwrap(), ["/a/b dir"]);
}

#[test]
fn a_link_in_a_directory_leads_nowhere_out_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let space = space(dir.path(), &[("/w", "filesystem"), ("/m", "store")]);
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "s").unwrap();
    assert_eq!(put(&space, "/w/first", "makes the directory"), Ok(true));
    let root = std::fs::read_dir(dir.path().join("routes")).unwrap().next().unwrap().unwrap().path();
    for (name, target) in
        [("out", "../../secret"), ("abs", secret.to_str().unwrap()), ("etc", "/etc/passwd"), ("up", "..")]
    {
        std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        assert_eq!(read(&space, &format!("/w/{name}")), Err("invalid_path"), "{name}");
        assert_eq!(put(&space, &format!("/w/{name}"), "x"), Err("invalid_path"), "{name}");
    }
    std::os::unix::fs::symlink("/w/there", root.join("in")).unwrap();
    assert_eq!(put(&space, "/w/there", "t"), Ok(true));
    assert_eq!(read(&space, "/w/in"), Ok("t".to_owned()));
    assert_eq!(std::fs::read_to_string(secret).unwrap(), "s");
}
