//! What every backend answers, wherever its route is.

use super::*;
use crate::files::{Edit, Grep};
use crate::memory::Depth;

/// Shapes of routes: one name, one letter, nested, deep, not ASCII, with and without a slash at the end, the root.
const PREFIXES: [&str; 8] = ["/data/", "/x", "/memories/hot/", "/a/b/c/d", "/ö/日本/", "/sp ace/", "/", "/..x/"];

fn everywhere(check: impl Fn(&Space, &str, &str)) {
    for kind in KINDS {
        for prefix in PREFIXES {
            for other in KINDS {
                let dir = tempfile::tempdir().unwrap();
                // Beside it and below it there are others.
                let below = format!("{}/zz/nested", prefix.trim_end_matches('/'));
                let table = [(prefix, kind), ("/other", other), (below.as_str(), other)];
                let space = space(dir.path(), &table);
                check(&space, prefix.trim_end_matches('/'), &format!("{kind} at {prefix} beside {other}"));
            }
        }
    }
}

#[test]
fn files_are_written_read_listed_and_removed_alike() {
    everywhere(|space, base, case| {
        let p = |path: &str| format!("{base}{path}");
        assert_eq!(put(space, &p("/n/report..final.md"), "one"), Ok(true), "{case}");
        assert_eq!(put(space, &p("/n/report..final.md"), "two!"), Ok(false), "{case}");
        assert_eq!(put(space, &p("/n-1"), ""), Ok(true), "{case}");
        assert_eq!(put(space, &p("//n/./[...slug].ts"), "x\n"), Ok(true), "{case}");
        assert_eq!(put(space, &p("/ü/é ñ"), "ß"), Ok(true), "{case}");
        assert_eq!(read(space, &p("/n/report..final.md")), Ok("two!".to_owned()), "{case}");
        for (path, want) in [
            ("/n", "invalid_path"),
            ("/n/", "invalid_path"),
            ("/n-1/x", "invalid_path"),
            ("/n-1/", "invalid_path"),
            ("/nothing", "not_found"),
            ("/nothing/at/all", "not_found"),
            ("", "invalid_path"),
        ] {
            assert_eq!(read(space, &p(path)), Err(want), "{case}: read {path}");
        }
        for path in ["/n", "/n-1/x", "/n-1/x/y", "/new/", ""] {
            assert_eq!(put(space, &p(path), "x"), Err("invalid_path"), "{case}: write {path}");
        }
        let want: Vec<_> = [
            "/n dir",
            "/n/[...slug].ts file 2",
            "/n/report..final.md file 4",
            "/n-1 file 0",
            "/zz dir",
            "/zz/nested dir",
            "/ü dir",
            "/ü/é ñ file 2",
        ]
        .iter()
        .map(|line| p(line))
        .collect();
        for limit in [1, 3, 100] {
            let mut found = listed(space, if base.is_empty() { "/" } else { base }, 9, limit).unwrap();
            found.retain(|line| !line.starts_with("/other") || base == "/other");
            assert_eq!(found, want, "{case}: pages of {limit}");
        }
        assert_eq!(listed(space, &p("/n/"), 1, 9).unwrap(), [want[1].clone(), want[2].clone()], "{case}");
        for (path, want) in [("/n-1", "invalid_path"), ("/nothing", "not_found"), ("/n-1/x", "invalid_path")] {
            assert_eq!(listed(space, &p(path), 1, 9), Err(want), "{case}: list {path}");
        }
        let remove = |path: &str, depth| space.remove(&at(&p(path)), depth, &Condition::Any).map_err(code);
        assert_eq!(remove("/n", Depth::Alone), Err("conflict"), "{case}");
        assert_eq!(remove("/nothing", Depth::Alone), Err("not_found"), "{case}");
        assert_eq!(remove("/n-1/", Depth::Alone), Err("invalid_path"), "{case}");
        assert_eq!(remove("", Depth::WithAllBelow), Err("invalid_path"), "{case}");
        assert_eq!(remove("/n/report..final.md", Depth::Alone), Ok(()), "{case}");
        assert_eq!(remove("/n/[...slug].ts", Depth::Alone), Ok(()), "{case}");
        assert_eq!(listed(space, &p("/n"), 1, 9).unwrap(), [""; 0], "{case}: an empty directory stays");
        assert_eq!(remove("/n", Depth::Alone), Ok(()), "{case}");
        assert_eq!(remove("/ü", Depth::WithAllBelow), Ok(()), "{case}");
        assert_eq!(read(space, &p("/ü/é ñ")), Err("not_found"), "{case}");
        assert_eq!(put(space, &p("/n"), "now a file"), Ok(true), "{case}");
    });
}

#[test]
fn conditions_hold_alike() {
    everywhere(|space, base, case| {
        let place = at(&format!("{base}/f"));
        let write = |text: &'static str, condition: &Condition| {
            let written = space.write(&place, Bytes::from_static(text.as_bytes()), condition);
            written.map(|(created, item)| (created, item.etag.unwrap())).map_err(code)
        };
        assert_eq!(write("0", &Condition::Present), Err("precondition_failed"), "{case}");
        assert_eq!(write("0", &Condition::Is(vec!["\"x\"".to_owned()])), Err("precondition_failed"), "{case}");
        let (created, first) = write("1", &Condition::Absent).unwrap();
        assert!(created, "{case}");
        assert_eq!(space.stat(&place).unwrap().etag.as_ref(), Some(&first), "{case}");
        assert_eq!(write("2", &Condition::Absent), Err("precondition_failed"), "{case}");
        let (created, second) = write("2", &Condition::Is(vec![first.clone()])).unwrap();
        assert!(!created && second != first, "{case}");
        assert_eq!(write("3", &Condition::Is(vec![first.clone()])), Err("precondition_failed"), "{case}");
        assert_eq!(write("3", &Condition::IsNot(vec![second.clone()])), Err("precondition_failed"), "{case}");
        let stale = space.remove(&place, Depth::Alone, &Condition::Is(vec![first]));
        assert_eq!(stale.map_err(code), Err("precondition_failed"), "{case}");
        assert_eq!(space.read(&place, 9).unwrap().0, "2", "{case}");
        assert!(space.remove(&place, Depth::Alone, &Condition::Is(vec![second])).is_ok(), "{case}");
    });
}

#[test]
fn edits_are_exact_and_counted_alike() {
    everywhere(|space, base, case| {
        let path = format!("{base}/d/f.txt");
        assert_eq!(put(space, &path, "a b a"), Ok(true), "{case}");
        let edit = |old: &str, new: &str, count| {
            let edit = Edit { old: old.to_owned(), new: new.to_owned(), count };
            space.edit(&at(&path), &edit).map(|(replaced, _)| replaced).map_err(code)
        };
        assert_eq!(edit("a", "x", 1), Err("conflict"), "{case}");
        assert_eq!(edit("q", "x", 1), Err("conflict"), "{case}");
        assert_eq!(edit("", "x", 1), Err("invalid_request"), "{case}");
        assert_eq!(edit("a", "x", 0), Err("invalid_request"), "{case}");
        assert_eq!(read(space, &path).unwrap(), "a b a", "{case}");
        assert_eq!(edit("a", "xx", 2), Ok(2), "{case}");
        assert_eq!(read(space, &path).unwrap(), "xx b xx", "{case}");
        let nothing = Edit { old: "a".to_owned(), new: "b".to_owned(), count: 1 };
        assert_eq!(space.edit(&at(&format!("{base}/d/none")), &nothing).map_err(code), Err("not_found"), "{case}");
        assert_eq!(space.edit(&at(&format!("{base}/d")), &nothing).map_err(code), Err("invalid_path"), "{case}");
    });
}

#[test]
fn patterns_find_the_same() {
    everywhere(|space, base, case| {
        let root = if base.is_empty() { "/" } else { base };
        for (path, text) in [
            ("/s/a.rs", "fn main() {}\nlet a.b = 1;\n"),
            ("/s/deep/b.rs", "FN\nfn b\n"),
            ("/s/.hidden.rs", "fn hidden"),
            ("/s/c.txt", "fn c\r\n"),
            ("/s/binary.rs", "fn\0"),
        ] {
            assert_eq!(put(space, &format!("{base}{path}"), text), Ok(true), "{case}");
        }
        let strip = |path: &[u8]| String::from_utf8_lossy(path).strip_prefix(base).unwrap().to_owned();
        let glob = |pattern: &str| -> Vec<String> {
            let found = space.glob(&at(root), pattern, &page(100)).unwrap();
            found.items.iter().map(|item| strip(&item.path())).collect()
        };
        assert_eq!(glob("s/*.rs"), ["/s/.hidden.rs", "/s/a.rs", "/s/binary.rs"], "{case}");
        assert_eq!(glob("**/b.rs"), ["/s/deep/b.rs"], "{case}");
        assert_eq!(glob("s/{a,c}.*"), ["/s/a.rs", "/s/c.txt"], "{case}");
        assert_eq!(glob("*.rs"), [""; 0], "{case}");
        assert_eq!(space.glob(&at(root), "../x", &page(1)).map_err(code), Err("invalid_path"), "{case}");
        let grep = |pattern: &str, literal, ignore_case, glob: Option<&str>, limit| {
            let grep = Grep { pattern: pattern.to_owned(), literal, ignore_case, glob: glob.map(str::to_owned) };
            let (mut all, mut page) = (Vec::new(), page(limit));
            loop {
                let found = space.grep(&at(root), &grep, &page).unwrap();
                all.extend(found.items.iter().map(|hit| format!("{}:{}:{}", strip(&hit.path), hit.line, hit.column)));
                let Some(next) = found.next else { return all };
                page.after = Some(next);
            }
        };
        for limit in [1, 2, 100] {
            let found = grep("^fn", false, false, None, limit);
            assert_eq!(found, ["/s/.hidden.rs:1:1", "/s/a.rs:1:1", "/s/c.txt:1:1", "/s/deep/b.rs:2:1"], "{case}");
        }
        assert_eq!(grep("a.b", true, false, None, 9), ["/s/a.rs:2:5"], "{case}");
        assert_eq!(grep("^fn$", false, true, Some("**/b.rs"), 9), ["/s/deep/b.rs:1:1"], "{case}");
        let one = Grep { pattern: "fn".to_owned(), literal: true, ignore_case: false, glob: None };
        let found = space.grep(&at(&format!("{base}/s/c.txt")), &one, &page(9)).unwrap();
        assert_eq!(found.items.iter().map(|hit| strip(&hit.path)).collect::<Vec<_>>(), ["/s/c.txt"], "{case}");
        let skipped = space.grep(&at(&format!("{base}/s")), &one, &page(9)).unwrap();
        assert_eq!((skipped.files_skipped, skipped.skipped[0].reason), (1, "binary"), "{case}");
        assert_eq!(space.grep(&at(&format!("{base}/no")), &one, &page(9)).map_err(code), Err("not_found"), "{case}");
        let wrong = Grep { pattern: "(".to_owned(), literal: false, ignore_case: false, glob: None };
        assert_eq!(space.grep(&at(root), &wrong, &page(9)).map_err(code), Err("invalid_request"), "{case}");
    });
}
