//! Files of a sandbox, from outside it.

use crate::rig::{Rig, out, run, thread};
use crate::scene::*;
use stead_server::files::{Condition, Edit, Files, Grep, Kind, Overwrite, Page};
use stead_server::lease::Force;

on_each_provider! {
    files_are_written_read_listed_described_and_removed,
    a_file_is_replaced_only_if_it_is_the_one_that_was_meant,
    what_is_written_outside_is_the_sandboxs_own_inside,
    a_write_that_is_not_finished_leaves_nothing,
    edits_count_before_they_change,
    things_are_moved_and_nothing_is_replaced_unasked,
    directories_are_listed_in_pages_in_one_order,
    patterns_find_paths,
    lines_are_found_and_what_was_not_searched_is_said,
    a_directory_is_removed_with_all_in_it_however_deep,
    names_that_are_not_text_are_names,
    links_inside_are_followed_in_the_sandboxs_own_terms,
    files_are_served_while_the_instance_sleeps_and_while_there_is_none,
}

in_containers! {
    what_is_written_outside_is_the_sandboxs_own_inside,
    links_inside_are_followed_in_the_sandboxs_own_terms,
    files_are_served_while_the_instance_sleeps_and_while_there_is_none,
}

fn page(limit: usize) -> Page {
    Page { limit, after: None }
}

async fn code<T: std::fmt::Debug>(done: impl Future<Output = Result<T, stead_server::Error>>) -> &'static str {
    done.await.unwrap_err().code()
}

async fn fresh(rig: &Rig) -> Files {
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    rig.stead.files(&thread("t")).await.unwrap()
}

fn texts(paths: impl IntoIterator<Item = Vec<u8>>) -> Vec<String> {
    paths.into_iter().map(|path| String::from_utf8_lossy(&path).into_owned()).collect()
}

async fn files_are_written_read_listed_described_and_removed(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let files = sandbox.files().await.unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    files.write("a/b/blob", bytes.clone()).await.unwrap();
    assert_eq!(files.read("/workspace/a/b/blob").await.unwrap(), bytes);
    assert_eq!(out(&sandbox, "wc -c <a/b/blob").await.trim(), "300000");
    files.write("a/b/blob", b"short".to_vec()).await.unwrap();
    assert_eq!(out(&sandbox, "cat a/b/blob").await, "short", "written whole, not over");
    run(&sandbox, "mkdir -m 700 made; ln -s blob a/b/link; chmod 640 a/b/blob; mkfifo pipe").await;
    let listed: Vec<_> = files
        .list("a/b", 1, page(100))
        .await
        .unwrap()
        .items
        .into_iter()
        .map(|entry| (entry.name, entry.kind))
        .collect();
    assert_eq!(listed, [("blob".to_owned(), Kind::File), ("link".to_owned(), Kind::Symlink)]);
    let stat = files.stat("a/b/blob").await.unwrap();
    assert_eq!((stat.kind, stat.size, stat.mode), (Kind::File, 5, 0o640));
    assert_eq!(files.stat("made").await.unwrap().mode, 0o700);
    assert_eq!(files.stat("pipe").await.unwrap().kind, Kind::Other);
    assert_eq!(files.read("a/b/link").await.unwrap(), b"short", "a link inside leads somewhere inside");
    files.make_dir("x/y/z").await.unwrap();
    files.make_dir("x/y/z").await.unwrap();
    assert_eq!(out(&sandbox, "test -d x/y/z && echo dir").await, "dir\n");
    let any = Condition::Any;
    assert_eq!(files.remove("x", any.clone()).await.unwrap_err().code(), "conflict", "it is not empty");
    files.remove("x/y/z", any.clone()).await.unwrap();
    files.remove("a/b/link", any.clone()).await.unwrap();
    assert_eq!(files.read("a/b/blob").await.unwrap(), b"short", "the link went, not what it led to");
    for gone in ["x/y/z", "a/b/link", "never"] {
        assert_eq!(files.stat(gone).await.unwrap_err().code(), "not_found", "{gone}");
    }
    assert_eq!(files.read("a").await.unwrap_err().code(), "invalid_path", "a directory has no bytes");
    assert_eq!(files.read("pipe").await.unwrap_err().code(), "invalid_path", "nor is a pipe waited for");
}

async fn files_are_served_while_the_instance_sleeps_and_while_there_is_none(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    let files = sandbox.files().await.unwrap();
    files.write("kept", b"1".to_vec()).await.unwrap();
    rig.stead.pause(&thread("t"), Force::No).await.unwrap();
    let asleep = lease_of(&rig, "t").await;
    assert_eq!(sandbox.files().await.unwrap().read("kept").await.unwrap(), b"1");
    files.write("asleep", b"2".to_vec()).await.unwrap();
    assert_eq!(lease_of(&rig, "t").await, asleep);
    rig.stead.destroy(&thread("t"), Force::No).await.unwrap();
    assert_eq!(truth(&rig, provider).await, []);
    assert_eq!(sandbox.files().await.unwrap().read("asleep").await.unwrap(), b"2");
    files.write("gone", b"3".to_vec()).await.unwrap();
    assert_eq!(truth(&rig, provider).await, [], "and none was made for it");
    assert_eq!(out(&sandbox, "cat kept asleep gone").await, "123");
}

async fn a_file_is_replaced_only_if_it_is_the_one_that_was_meant(rig: Rig, _: &str) {
    let files = fresh(&rig).await;
    let put = async |condition: Condition, text: &'static str| {
        let mut writing = files.begin("deep/file", condition).await?;
        writing.write(text.into()).await?;
        writing.commit().await
    };
    assert_eq!(put(Condition::Present, "x").await.unwrap_err().code(), "precondition_failed");
    assert_eq!(code(files.stat("deep")).await, "not_found", "what is refused makes no directory");
    let first = put(Condition::Absent, "one").await.unwrap();
    assert!(first.created);
    assert_eq!(put(Condition::Absent, "x").await.unwrap_err().code(), "precondition_failed");
    let tag = first.entry.etag.clone().unwrap();
    assert_eq!(files.open("deep/file").await.unwrap().etag, tag);
    let second = put(Condition::Is(vec!["\"other\"".to_owned(), tag.clone()]), "two").await.unwrap();
    assert!(!second.created);
    assert_eq!(put(Condition::Is(vec![tag.clone()]), "x").await.unwrap_err().code(), "precondition_failed");
    assert_eq!(code(files.remove("deep/file", Condition::Is(vec![tag]))).await, "precondition_failed");
    assert_eq!(files.read("deep/file").await.unwrap(), b"two");
    // One of many that write at the same time what only one may.
    let tag = files.open("deep/file").await.unwrap().etag;
    let race = (0..16).map(|index| {
        let (files, tag) = (files.clone(), tag.clone());
        tokio::spawn(async move {
            let mut writing = files.begin("deep/file", Condition::Is(vec![tag])).await?;
            writing.write(format!("racer {index}").into()).await?;
            writing.commit().await
        })
    });
    let mut won = 0;
    for racer in race.collect::<Vec<_>>() {
        match racer.await.unwrap() {
            Ok(_) => won += 1,
            Err(error) => assert_eq!(error.code(), "precondition_failed"),
        }
    }
    assert_eq!(won, 1);
}

async fn what_is_written_outside_is_the_sandboxs_own_inside(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    let files = sandbox.files().await.unwrap();
    files.write("dir/file", b"out".to_vec()).await.unwrap();
    let changed = "echo in >>dir/file && chmod 750 dir/file && touch dir/more && cat dir/file && rm dir/more";
    assert_eq!(out(&sandbox, changed).await, "outin\n");
    if provider == "namespace" {
        assert_eq!(out(&sandbox, "[ -O dir ] && [ -O dir/file ] && [ -G dir/file ] && echo own").await, "own\n");
    }
    files.write("dir/file", b"again".to_vec()).await.unwrap();
    assert_eq!(files.stat("dir/file").await.unwrap().mode, 0o750, "the mode of what was replaced");
    assert_eq!(out(&sandbox, "rm -r dir && ls -A").await, "");
}

async fn a_write_that_is_not_finished_leaves_nothing(rig: Rig, _: &str) {
    let files = fresh(&rig).await;
    files.write("kept", b"old".to_vec()).await.unwrap();
    for path in ["kept", "new", "in/new"] {
        let mut writing = files.begin(path, Condition::Any).await.unwrap();
        writing.write(vec![0; 300_000].into()).await.unwrap();
        drop(writing);
    }
    let listed = files.list(".", 9, page(100)).await.unwrap().items;
    assert_eq!(texts(listed.into_iter().map(|entry| entry.path)), ["/workspace/kept"]);
    assert_eq!(files.read("kept").await.unwrap(), b"old");
}

async fn edits_count_before_they_change(rig: Rig, _: &str) {
    let files = fresh(&rig).await;
    files.write("file", b"one two two".to_vec()).await.unwrap();
    let edit = |old: &str, new: &str, count| Edit { old: old.to_owned(), new: new.to_owned(), count };
    assert_eq!(code(files.edit("file", edit("two", "x", 1))).await, "conflict");
    assert_eq!(code(files.edit("file", edit("three", "x", 1))).await, "conflict");
    assert_eq!(code(files.edit("file", edit("", "x", 1))).await, "invalid_request");
    assert_eq!(code(files.edit("none", edit("a", "x", 1))).await, "not_found");
    assert_eq!(files.read("file").await.unwrap(), b"one two two");
    assert_eq!(files.edit("file", edit("two", "2", 2)).await.unwrap().replaced, 2);
    files.edit("file", edit("one ", "", 1)).await.unwrap();
    assert_eq!(files.read("file").await.unwrap(), b"2 2");
}

async fn things_are_moved_and_nothing_is_replaced_unasked(rig: Rig, provider: &str) {
    let files = fresh(&rig).await;
    for path in ["a/file", "b/file"] {
        files.write(path, path.as_bytes().to_vec()).await.unwrap();
    }
    assert_eq!(code(files.rename("a/file", "b/file", Overwrite::No)).await, "already_exists");
    assert_eq!(code(files.rename("none", "c", Overwrite::No)).await, "not_found");
    assert_eq!(code(files.stat("c")).await, "not_found");
    for into in ["a/x", "a/x/y/z", "/workspace/a/../a/x"] {
        assert_eq!(code(files.rename("a", into, Overwrite::No)).await, "invalid_path", "{into}");
    }
    assert_eq!(files.list("a", 9, page(9)).await.unwrap().items.len(), 1, "nor is a directory left of the attempt");
    assert_eq!(code(files.rename("a/file", "b", Overwrite::Yes)).await, "conflict");
    let moved = files.rename("a/file", "b/file", Overwrite::Yes).await.unwrap();
    assert_eq!((moved.path.as_slice(), moved.size), (b"/workspace/b/file".as_slice(), 6));
    assert_eq!(files.read("b/file").await.unwrap(), b"a/file");
    files.rename("b", "new/dir/b", Overwrite::No).await.unwrap();
    assert_eq!(files.read("new/dir/b/file").await.unwrap(), b"a/file");
    assert_eq!(code(files.rename(".", "x", Overwrite::No)).await, "invalid_path");
    if provider == "namespace" {
        files.rename("new", "/home/agent/new", Overwrite::No).await.unwrap();
        assert_eq!(files.read("/home/agent/new/dir/b/file").await.unwrap(), b"a/file");
    }
}

async fn directories_are_listed_in_pages_in_one_order(rig: Rig, _: &str) {
    let files = fresh(&rig).await;
    assert!(files.list(".", 1, page(10)).await.unwrap().items.is_empty(), "a workspace in which nothing was done");
    for path in ["b/two", "b/one", "a", "c/d/e/f", "b.x", "b/sub/y"] {
        files.write(path, path.as_bytes().to_vec()).await.unwrap();
    }
    let all = ["a", "b", "b/one", "b/sub", "b/sub/y", "b/two", "b.x", "c", "c/d", "c/d/e", "c/d/e/f"];
    for limit in 1..=12 {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let listed = files.list("/workspace", 9, Page { limit, after }).await.unwrap();
            assert!(listed.items.len() <= limit);
            seen.extend(listed.items.into_iter().map(|entry| entry.path));
            after = listed.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(texts(seen), all.map(|path| format!("/workspace/{path}")), "in pages of {limit}");
    }
    let flat = files.list("b/", 1, page(100)).await.unwrap().items;
    let flat: Vec<_> = flat.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect();
    assert_eq!(flat, [("one", Kind::File), ("sub", Kind::Dir), ("two", Kind::File)]);
    // What the last page ended with is gone: the next goes on behind it.
    let first = files.list(".", 9, page(4)).await.unwrap();
    files.remove_all("b/sub", Condition::Any).await.unwrap();
    let rest = files.list(".", 9, Page { limit: 2, after: first.next }).await.unwrap().items;
    assert_eq!(texts(rest.into_iter().map(|entry| entry.path)), ["/workspace/b/two", "/workspace/b.x"]);
    assert_eq!(code(files.list("a", 1, page(1))).await, "invalid_path");
    assert_eq!(code(files.list("none", 1, page(1))).await, "not_found");
    assert_eq!(code(files.list(".", 0, page(1))).await, "invalid_request");
}

async fn patterns_find_paths(rig: Rig, _: &str) {
    let files = fresh(&rig).await;
    for path in ["src/a.rs", "src/deep/er/b.rs", "src/c.txt", ".hidden/x.rs", "top.rs", "src/[x].rs"] {
        files.write(path, Vec::new()).await.unwrap();
    }
    let cases: [(&str, &[&str]); 9] = [
        ("*.rs", &["top.rs"]),
        ("**/*.rs", &[".hidden/x.rs", "src/[x].rs", "src/a.rs", "src/deep/er/b.rs", "top.rs"]),
        ("src/*", &["src/[x].rs", "src/a.rs", "src/c.txt", "src/deep"]),
        ("src/?.{rs,txt}", &["src/a.rs", "src/c.txt"]),
        ("src/[a-b].rs", &["src/a.rs"]),
        ("src/[!a-b].*", &["src/c.txt"]),
        ("src/\\[x\\].rs", &["src/[x].rs"]),
        ("src/**/er", &["src/deep/er"]),
        ("none*", &[]),
    ];
    for (pattern, paths) in cases {
        let found = files.glob(".", pattern, page(100)).await.unwrap();
        let expected: Vec<_> = paths.iter().map(|path| format!("/workspace/{path}")).collect();
        assert_eq!(texts(found.items.into_iter().map(|entry| entry.path)), expected, "{pattern}");
        assert_eq!(found.next, None);
    }
    let below = files.glob("src", "**/*.rs", page(2)).await.unwrap();
    assert_eq!(
        texts(below.items.into_iter().map(|entry| entry.path)),
        ["/workspace/src/[x].rs", "/workspace/src/a.rs"]
    );
    let rest = files.glob("src", "**/*.rs", Page { limit: 2, after: below.next }).await.unwrap();
    assert_eq!(texts(rest.items.into_iter().map(|entry| entry.path)), ["/workspace/src/deep/er/b.rs"]);
    for (pattern, code) in
        [("[", "invalid_request"), ("", "invalid_request"), ("/etc/*", "invalid_path"), ("../*", "invalid_path")]
    {
        assert_eq!(files.glob(".", pattern, page(1)).await.unwrap_err().code(), code, "{pattern}");
    }
}

async fn lines_are_found_and_what_was_not_searched_is_said(rig: Rig, _: &str) {
    let files = fresh(&rig).await;
    files.write("one.txt", b"alpha\nBeta\r\nalpha beta\n".to_vec()).await.unwrap();
    files.write("sub/two.txt", b"nothing\nalpha".to_vec()).await.unwrap();
    files.write("sub/binary", b"alpha\0alpha\n".to_vec()).await.unwrap();
    let grep = |pattern: &str| Grep { pattern: pattern.to_owned(), literal: false, ignore_case: false, glob: None };
    let shown = |found: &stead_server::files::Matches| {
        let shown = found.items.iter().map(|hit| {
            let (path, text) = (String::from_utf8_lossy(&hit.path), String::from_utf8_lossy(&hit.text));
            format!("{path}:{}:{}:{text}", hit.line, hit.column)
        });
        shown.collect::<Vec<_>>()
    };
    let all = ["/workspace/one.txt:1:1:alpha", "/workspace/one.txt:3:1:alpha beta", "/workspace/sub/two.txt:2:1:alpha"];
    let found = files.grep(".", grep("alpha"), page(100)).await.unwrap();
    assert_eq!(shown(&found), all);
    assert_eq!((found.files_searched, found.files_skipped, found.next.clone()), (2, 1, None));
    assert_eq!(
        (found.skipped[0].path.as_slice(), found.skipped[0].reason),
        (b"/workspace/sub/binary".as_slice(), "binary")
    );
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let found = files.grep(".", grep("alpha"), Page { limit: 1, after }).await.unwrap();
        seen.extend(shown(&found));
        after = found.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, all, "a match at a time");
    let ignoring = Grep { ignore_case: true, ..grep("BETA$") };
    let found = files.grep("one.txt", ignoring, page(100)).await.unwrap();
    assert_eq!(shown(&found), ["/workspace/one.txt:2:1:Beta", "/workspace/one.txt:3:7:alpha beta"]);
    let globbed = Grep { glob: Some("sub/**".to_owned()), ..grep("alpha") };
    assert_eq!(shown(&files.grep(".", globbed, page(100)).await.unwrap()), all[2..]);
    assert_eq!(code(files.grep(".", grep("("), page(1))).await, "invalid_request");
    assert_eq!(code(files.grep("none", grep("a"), page(1))).await, "not_found");
    let bomb = files.grep(".", grep("(a{1000}){1000}"), page(1)).await;
    assert_eq!(bomb.unwrap_err().code(), "invalid_request", "a pattern may not take all memory");
}

async fn a_directory_is_removed_with_all_in_it_however_deep(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let files = sandbox.files().await.unwrap();
    let deep = "mkdir top kept; echo x >kept/x; ln -s ../kept top/link; mkfifo top/pipe; \
                (cd top && for i in $(seq 400); do mkdir d && cd d && echo x >f || exit 1; done)";
    assert_eq!(out(&sandbox, deep).await, "");
    assert_eq!(code(files.remove("top", Condition::Any)).await, "conflict");
    files.remove_all("top", Condition::Any).await.unwrap();
    assert_eq!(code(files.stat("top")).await, "not_found");
    assert_eq!(files.read("kept/x").await.unwrap(), b"x\n", "through no link");
    assert_eq!(code(files.remove_all(".", Condition::Any)).await, "invalid_path");
    assert_eq!(code(files.remove_all("none", Condition::Any)).await, "not_found");
}

async fn names_that_are_not_text_are_names(rig: Rig, _: &str) {
    let files = fresh(&rig).await;
    files.write(b"\xff\xfe/\xfd", b"raw".to_vec()).await.unwrap();
    assert_eq!(files.read(b"\xff\xfe/\xfd").await.unwrap(), b"raw");
    let listed = files.list(".", 2, page(9)).await.unwrap().items;
    assert_eq!(listed[1].path, b"/workspace/\xff\xfe/\xfd");
    assert_eq!(listed[1].name, "\u{fffd}");
}

async fn links_inside_are_followed_in_the_sandboxs_own_terms(rig: Rig, provider: &str) {
    let sandbox = rig.sandbox("t").await;
    let files = sandbox.files().await.unwrap();
    run(&sandbox, "mkdir real; ln -s real rel; ln -s ../real/new real/dangling; ln -s \"$PWD\"/real abs").await;
    files.write("rel/file", b"1".to_vec()).await.unwrap();
    assert_eq!(out(&sandbox, "cat real/file").await, "1");
    files.write("real/dangling", b"2".to_vec()).await.unwrap();
    assert_eq!(out(&sandbox, "cat real/new; [ -L real/dangling ] && echo link").await, "2link\n", "through the link");
    if provider != "fake" {
        assert_eq!(files.read("abs/file").await.unwrap(), b"1");
        run(&sandbox, "ln -s \"$PWD\"/real ~/work").await;
        let home = out(&sandbox, "echo -n $HOME").await;
        assert_eq!(files.read(format!("{home}/work/file")).await.unwrap(), b"1");
    }
    let link = files.stat("rel").await.unwrap();
    assert_eq!((link.kind, link.target.as_deref()), (Kind::Symlink, Some(b"real".as_slice())));
    assert_eq!(files.stat("rel/").await.unwrap().kind, Kind::Dir);
}
