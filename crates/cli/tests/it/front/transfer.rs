//! Files there and back.

use super::Front;
use crate::rig::said;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

#[test]
fn a_tree_with_odd_names_goes_there_and_comes_back() {
    let front = Front::new();
    let tree = front.rig.scratch().join("tree");
    let inner = tree.join("a b/'\"\n").join("d".repeat(120));
    fs::create_dir_all(&inner).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    fs::write(inner.join("-rf *"), vec![7; 100_000]).unwrap();
    fs::write(tree.join("ü\u{1F600}"), "").unwrap();
    fs::write(tree.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(tree.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("run.sh", tree.join("link")).unwrap();
    assert_eq!(front.run(&["exec", "-t", "box", "true"]).code, Some(0));
    assert_eq!(front.run(&["push", "tree", "box:there"]), said(0, "", ""));
    assert_eq!(front.run(&["exec", "-t", "box", "cd there && sh -c 'ls | wc -l'"]), said(0, "5\n", ""));
    assert_eq!(front.run(&["pull", "box:there", "back"]), said(0, "", ""));
    same(&tree, &front.rig.scratch().join("back"));
    assert_eq!(front.run(&["push", "tree", "box:there"]), said(0, "", ""), "into what is there");
    assert_eq!(front.run(&["pull", "box:there/tree", "."]).code, Some(125), "`tree` exists");
    assert_eq!(front.run(&["pull", "--force", "box:there/tree", "."]), said(0, "", ""));
    same(&tree, &front.rig.scratch().join("back"));
}

#[track_caller]
fn same(one: &Path, other: &Path) {
    let differ = Command::new("diff").args(["-r", "--no-dereference"]).args([one, other]).output().unwrap();
    assert!(differ.status.success(), "{}", String::from_utf8_lossy(&differ.stdout));
    let mode = |path: &Path| fs::metadata(path.join("run.sh")).unwrap().permissions().mode();
    assert_eq!(mode(one), mode(other));
}

#[test]
fn names_that_are_no_text_go_along_in_a_directory() {
    let front = Front::new();
    let tree = front.rig.scratch().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join(OsStr::from_bytes(b"\xff\xfe")), "x").unwrap();
    assert_eq!(front.run(&["exec", "true"]).code, Some(0));
    assert_eq!(front.run(&["push", "tree/.", "."]), said(0, "", ""));
    assert_eq!(front.run(&["exec", "cat $'\\xff\\xfe'"]), said(0, "x", ""));
    fs::create_dir(front.rig.scratch().join("back")).unwrap();
    assert_eq!(front.run(&["pull", ".", "back/new"]), said(0, "", ""));
    assert_eq!(fs::read(front.rig.scratch().join("back/new").join(OsStr::from_bytes(b"\xff\xfe"))).unwrap(), b"x");
}

#[test]
fn a_file_is_put_where_cp_would_put_it() {
    let front = Front::new();
    let file = front.rig.scratch().join("notes");
    fs::write(&file, b"one\0\xff").unwrap();
    assert_eq!(front.run(&["exec", "mkdir dir"]).code, Some(0));
    for (to, at) in
        [(".", "notes"), ("dir", "dir/notes"), ("new/deep/name", "new/deep/name"), ("/workspace/dir/x", "dir/x")]
    {
        assert_eq!(front.run(&["push", "notes", to]), said(0, "", ""), "{to}");
        let run = front.start(&["pull", at, "-"]);
        assert_eq!(run.end_bytes(), (Some(0), b"one\0\xff".to_vec(), Vec::new()), "{to}");
    }
    assert_eq!(front.run(&["pull", "dir/x", "."]), said(0, "", ""));
    assert_eq!(fs::read(front.rig.scratch().join("x")).unwrap(), b"one\0\xff");
    fs::write(front.rig.scratch().join("x"), "old").unwrap();
    assert_eq!(front.run(&["pull", "dir/x", "x"]), said(0, "", ""), "a file takes the place of a file");
    assert_eq!(fs::read(front.rig.scratch().join("x")).unwrap(), b"one\0\xff");
}

#[test]
fn what_is_not_there_is_said_and_nothing_is_left_behind() {
    let front = Front::new();
    assert_eq!(front.run(&["exec", "true"]).code, Some(0));
    let got = front.run(&["push", "nothing", "."]);
    assert_eq!(got, said(125, "", "stead: `nothing`: No such file or directory (os error 2)\n"));
    let got = front.run(&["pull", "nothing", "."]);
    assert_eq!(got, said(125, "", "stead: there is no `nothing` in the thread\n"));
    assert_eq!(front.run(&["exec", "echo x > x"]).code, Some(0));
    let got = front.run(&["pull", "x", "nowhere/x"]);
    assert_eq!(got, said(125, "", "stead: `nowhere/x`: No such file or directory (os error 2)\n"));
    let got = front.run(&["pull", "nobody:x", "."]);
    assert!(got.stderr.contains("nobody") && got.stderr.contains("stead ls"), "{got:?}");
    let names = fs::read_dir(front.rig.scratch()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().starts_with(".stead-")));
}
