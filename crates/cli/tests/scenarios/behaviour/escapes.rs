//! Attempts to reach what is not the sandbox's, by every operation there is on files. Outside stand canaries; whatever
//! is tried, they are neither read nor changed, and the refusal says what it is.

use super::archives::{all, archive, entry, unpack};
use crate::rig::{Rig, docker, local, namespace, thread};
use crate::scene::*;
use rustix::fs::{CWD, FileType, Mode};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stead_server::Error;
use stead_server::files::{Bounds, Condition, Edit, Files, Grep, Overwrite, Page};
use stead_server::provider::{Provider, Tree};

on_each_steward! {
    no_path_leads_out,
    what_is_named_strangely_is_only_a_name,
    what_has_no_bytes_is_not_waited_for,
    no_archive_entry_leads_out,
    a_second_name_is_never_written_through,
    whoever_swaps_a_directory_for_a_link_meanwhile_does_not_win,
}

in_containers! {
    no_path_leads_out,
    whoever_swaps_a_directory_for_a_link_meanwhile_does_not_win,
}

const SECRET: &str = "the canary sings";

/// A workspace, and what stands around it.
struct Scene {
    rig: Rig,
    files: Files,
    /// The workspace, as the host sees it.
    workspace: PathBuf,
    home: Tree,
    /// Where nothing of any sandbox is.
    outside: tempfile::TempDir,
    /// Another thread's workspace, and the data directory.
    others: Vec<PathBuf>,
}

impl Scene {
    async fn new(rig: Rig, provider: &str) -> Self {
        let trees = async |name: &str| {
            rig.stead.create_thread(new_thread(name)).await.unwrap();
            let workspace = rig.stead.thread(&thread(name)).await.unwrap().workspace;
            let trees = match provider {
                "local" => local(rig.path()).trees(&workspace),
                "docker" => docker(rig.path()).trees(&workspace),
                _ => namespace(rig.path()).trees(&workspace),
            };
            let home = trees.iter().find(|tree| tree.outside.ends_with("home")).unwrap().clone();
            for dir in [&trees[0].outside, &home.outside] {
                fs::create_dir_all(dir).unwrap();
            }
            (trees[0].outside.clone(), home)
        };
        let (workspace, home) = trees("t").await;
        let (other, _) = trees("other").await;
        // Not in `/tmp`, which is a tree of `local`.
        let outside = tempfile::tempdir_in("/var/tmp").unwrap();
        let others = vec![other.join("canary"), rig.path().join(provider).join("canary")];
        for canary in others.iter().chain([&outside.path().join("canary")]) {
            fs::write(canary, SECRET).unwrap();
        }
        fs::create_dir(outside.path().join("empty")).unwrap();
        let files = rig.stead.files(&thread("t")).await.unwrap();
        Self { rig, files, workspace, home, outside, others }
    }

    fn canary(&self) -> PathBuf {
        self.outside.path().join("canary")
    }

    fn link(&self, target: impl AsRef<Path>, name: &str) {
        symlink(target, self.workspace.join(name)).unwrap();
    }

    /// Nothing outside was touched.
    fn check(&self, attempt: &str) {
        for canary in self.others.iter().chain([&self.canary()]) {
            assert_eq!(fs::read_to_string(canary).ok().as_deref(), Some(SECRET), "{attempt}: {}", canary.display());
        }
        let mut names: Vec<_> =
            fs::read_dir(self.outside.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["canary", "empty"], "{attempt}");
        assert_eq!(fs::read_dir(self.outside.path().join("empty")).unwrap().count(), 0, "{attempt}");
        for name in ["stead-canary", "x"] {
            assert!(!Path::new("/etc").join(name).exists() && !Path::new("/").join(name).exists(), "{attempt}");
        }
    }
}

/// Every operation on a path, by name, with the code of its refusal.
async fn every_operation(files: &Files, path: &str) -> Vec<(&'static str, Option<&'static str>)> {
    let page = || Page { limit: 10, after: None };
    let edit = Edit { old: "canary".to_owned(), new: "x".to_owned(), count: 1 };
    let grep = Grep { pattern: "canary".to_owned(), literal: false, ignore_case: false, glob: None };
    let any = || Condition::Any;
    files.write("mine", b"mine".to_vec()).await.unwrap();
    let tar = archive(&[entry(b'0', b"canary", b"", b"x")]);
    let answers = vec![
        ("open", files.open(path).await.map(drop)),
        ("read", files.read(path).await.map(drop)),
        ("write", files.write(path, b"x".to_vec()).await.map(drop)),
        ("begin", files.begin(path, any()).await.map(drop)),
        ("edit", files.edit(path, edit).await.map(drop)),
        ("list", files.list(path, 3, page()).await.map(drop)),
        ("glob", files.glob(path, "**", page()).await.map(drop)),
        ("grep", files.grep(path, grep, page()).await.map(drop)),
        ("pack", files.pack(path).await.map(drop)),
        ("unpack", unpack(files, path, &tar).await.map(drop)),
        ("mkdir", files.make_dir(path).await.map(drop)),
        ("mkdir below", files.make_dir(format!("{path}/x")).await.map(drop)),
        ("write below", files.write(format!("{path}/x"), b"x".to_vec()).await.map(drop)),
        ("remove below", files.remove_all(format!("{path}/canary"), any()).await.map(drop)),
        ("move from below", files.rename(format!("{path}/canary"), "stolen", Overwrite::Yes).await.map(drop)),
        ("move to below", files.rename("mine", format!("{path}/canary"), Overwrite::Yes).await.map(drop)),
    ];
    answers.into_iter().map(|(what, answer)| (what, answer.err().map(|error: Error| error.code()))).collect()
}

/// The same for those that act on a link itself: they may, for it is the sandbox's own.
async fn on_the_name_itself(files: &Files, path: &str) -> Vec<(&'static str, Option<&'static str>)> {
    let answers = vec![
        ("stat", files.stat(path).await.map(drop)),
        ("move to", files.rename("mine", path, Overwrite::No).await.map(drop)),
        ("move from", files.rename(path, "stolen", Overwrite::No).await.map(drop)),
        ("remove", files.remove(path, Condition::Any).await.map(drop)),
        ("remove all", files.remove_all(path, Condition::Any).await.map(drop)),
    ];
    answers.into_iter().map(|(what, answer)| (what, answer.err().map(|error: Error| error.code()))).collect()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Paths that lead out by themselves, or nowhere.
fn wrong_paths(scene: &Scene) -> Vec<String> {
    let (outside, up) = (scene.outside.path(), "../".repeat(20));
    vec![
        "..".into(),
        "../x".into(),
        "./../x".into(),
        "dir/../../x".into(),
        "none/../../x".into(),
        "none/nor/../../../x".into(),
        "dir/deep/../../../x".into(),
        format!("{up}etc/passwd"),
        format!("{up}{}", text(&scene.canary())),
        "/workspace/..".into(),
        "/workspace/../etc/passwd".into(),
        "/workspace//..//etc//passwd".into(),
        "/workspace/../workspace/plain".into(),
        "/workspace2/x".into(),
        "/workspac".into(),
        "/".into(),
        "//".into(),
        "//etc/passwd".into(),
        "/./etc/passwd".into(),
        "/etc/passwd".into(),
        "/etc".into(),
        "/proc/self/root".into(),
        "/proc/self/root/etc/passwd".into(),
        "/proc/self/environ".into(),
        "/proc/self/cwd".into(),
        "/proc/1/root".into(),
        "/dev/null".into(),
        "/sys".into(),
        text(outside),
        text(&scene.canary()),
        text(&scene.others[0]),
        text(scene.others[0].parent().unwrap()),
        text(&scene.others[1]),
        text(scene.others[1].parent().unwrap()),
        String::new(),
        "nul\0name".into(),
        "plain\0/../../x".into(),
        format!("/{}", "a/".repeat(3000)),
        "n".repeat(300),
        "plain/x".into(),
        "plain/../plain".into(),
    ]
}

/// Links that lead out, and a path through each.
fn wrong_links(scene: &Scene) -> Vec<(&'static str, PathBuf, &'static str)> {
    let (outside, up) = (scene.outside.path(), "../".repeat(20));
    vec![
        ("file", scene.canary(), "file"),
        ("root", outside.to_owned(), "root"),
        ("through", outside.to_owned(), "through/empty"),
        ("slash", PathBuf::from("/"), "slash/etc"),
        ("slashes", PathBuf::from("///etc///"), "slashes"),
        ("up", PathBuf::from(&up).join("etc/passwd"), "up"),
        ("parent", PathBuf::from(".."), "parent"),
        ("parent-file", PathBuf::from("../x"), "parent-file"),
        ("here-and-up", PathBuf::from("./dir/../.."), "here-and-up"),
        ("dangling", outside.join("nothing"), "dangling"),
        ("dangling-in-empty", outside.join("empty/nothing"), "dangling-in-empty"),
        ("dir/deep/out", outside.to_owned(), "dir/deep/out"),
        ("proc-root", PathBuf::from("/proc/self/root"), "proc-root/etc"),
        ("proc-cwd", PathBuf::from("/proc/self/cwd"), "proc-cwd"),
        ("proc-fd", PathBuf::from("/proc/self/fd/0"), "proc-fd"),
        ("proc-exe", PathBuf::from("/proc/self/exe"), "proc-exe"),
        ("device", PathBuf::from("/dev/null"), "device"),
        ("loop", PathBuf::from("loop"), "loop"),
        ("one", PathBuf::from("two"), "one"),
        ("two", PathBuf::from("one/x"), "two"),
        ("chain-3", scene.canary(), "chain-3"),
        ("chain-2", PathBuf::from("chain-3"), "chain-2"),
        ("chain-1", PathBuf::from("dir/../chain-2"), "chain-1"),
        ("dir/middle", PathBuf::from("../root"), "dir/middle/empty"),
        ("neighbour", scene.others[0].clone(), "neighbour"),
        ("data", scene.others[1].clone(), "data"),
        ("data-dir", scene.others[1].parent().unwrap().to_owned(), "data-dir"),
        ("workspace-up", PathBuf::from("/workspace/../etc"), "workspace-up"),
    ]
}

async fn no_path_leads_out(rig: Rig, provider: &str) {
    let scene = Scene::new(rig, provider).await;
    let (files, outside) = (&scene.files, scene.outside.path());
    fs::create_dir_all(scene.workspace.join("dir/deep")).unwrap();
    fs::write(scene.workspace.join("plain"), "x").unwrap();
    let (plain, links) = (wrong_paths(&scene), wrong_links(&scene));
    for (name, target, _) in &links {
        scene.link(target, name);
    }
    symlink(outside, scene.home.outside.join("out")).unwrap();
    let home = &scene.home.inside;
    let before = all(files).await;
    let mut attempts = 0;
    for path in plain.iter().map(String::as_str) {
        let answers = [every_operation(files, path).await, on_the_name_itself(files, path).await].concat();
        for (what, code) in answers {
            attempts += 1;
            // Nothing is there to be named: also well said.
            let fair = code == Some("invalid_path");
            // A directory that is a file's name is a file.
            let own = path == "plain/../plain" || path == "plain/x";
            assert!(fair || own && code.is_some(), "{what} `{path:.60}`: {code:?}");
        }
        scene.check(path);
    }
    let through = links.iter().map(|(_, _, path)| (*path).to_owned());
    for path in through.chain([format!("{home}/out"), format!("{home}/out/empty"), format!("{home}/../x")]) {
        for (what, code) in every_operation(files, &path).await {
            attempts += 1;
            assert_eq!(code, Some("invalid_path"), "{what} `{path}`");
        }
        scene.check(&path);
    }
    // The chain that is too long leads nowhere, and is not followed for ever.
    for index in 0..50 {
        scene.link(format!("long-{}", index + 1), &format!("long-{index}"));
    }
    assert_eq!(files.read("long-0").await.unwrap_err().code(), "invalid_path");
    // Links can be looked at and taken away; what they lead to stays.
    let stat = files.stat("file").await.unwrap();
    assert_eq!(stat.target.as_deref(), Some(scene.canary().as_os_str().as_encoded_bytes()));
    for (name, _, _) in &links {
        files.rename(name, "moved", Overwrite::Yes).await.unwrap();
        files.remove_all("moved", Condition::Any).await.unwrap();
        scene.check(name);
    }
    assert!(attempts > 1000, "{attempts}");
    assert!(before.contains(&"/workspace/plain".to_owned()) && !before.iter().any(|path| path.contains("canary")));
    let left = all(files).await;
    assert!(!left.iter().any(|path| path.contains("stolen")), "{left:?}");
    drop(scene.rig);
}

async fn what_is_named_strangely_is_only_a_name(rig: Rig, provider: &str) {
    let scene = Scene::new(rig, provider).await;
    let files = &scene.files;
    let names = [
        "%2e%2e",
        "%2e%2e%2fx",
        "..%2fx",
        "%2fetc%2fpasswd",
        "..\\x",
        "...",
        ".. ",
        " ..",
        "..;",
        "~",
        "~root",
        "$HOME",
        "\u{ff0e}\u{ff0e}",
        "\u{2025}",
        "..\u{200b}",
        "a\nb",
        "-rf",
        "*",
        "C:",
        "file:",
        "\r\n",
        "\u{202e}x",
    ];
    for name in names {
        assert_eq!(files.read(name).await.unwrap_err().code(), "not_found", "{name:?}");
        files.write(name, name.as_bytes().to_vec()).await.unwrap();
        assert_eq!(fs::read_to_string(scene.workspace.join(name)).unwrap(), name);
        assert_eq!(files.read(name).await.unwrap(), name.as_bytes());
        files.remove(name, Condition::Any).await.unwrap();
        scene.check(name);
    }
    // Said otherwise, the same place.
    files.write("dir/file", b"x".to_vec()).await.unwrap();
    for path in
        ["/workspace/dir/file", "//workspace//dir//file", "./dir/./file", "dir/../dir/file", "/./workspace/dir/file"]
    {
        assert_eq!(files.read(path).await.unwrap(), b"x", "{path}");
    }
    for path in ["dir/file/", "dir/file/.", "dir/file/.."] {
        assert_eq!(files.read(path).await.unwrap_err().code(), "invalid_path", "{path}");
        assert_eq!(files.write(path, b"y".to_vec()).await.unwrap_err().code(), "invalid_path", "{path}");
    }
    assert_eq!(files.read("dir/file").await.unwrap(), b"x");
}

async fn what_has_no_bytes_is_not_waited_for(rig: Rig, provider: &str) {
    let scene = Scene::new(rig, provider).await;
    let files = &scene.files;
    let at = |name: &str| scene.workspace.join(name);
    rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    let _listener = UnixListener::bind(at("socket")).unwrap();
    let mut names = vec!["pipe", "socket"];
    // Only root makes devices, and not everywhere.
    let null = rustix::fs::makedev(1, 3);
    if rustix::fs::mknodat(CWD, at("device"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), null).is_ok() {
        names.push("device");
    }
    scene.link("pipe", "to-pipe");
    for name in names.iter().copied().chain(["to-pipe"]) {
        for (what, code) in every_operation(files, name).await {
            let refused = ["invalid_path", "already_exists"].contains(&code.unwrap_or_default());
            assert!(refused, "{what} `{name}`: {code:?}");
        }
    }
    let page = Page { limit: 10, after: None };
    let grep = Grep { pattern: "x".to_owned(), literal: false, ignore_case: false, glob: None };
    assert_eq!(files.grep(".", grep, page).await.unwrap().files_searched, 1, "what is mine, and no more");
    let mut packed = files.pack(".").await.unwrap();
    while let Some(piece) = packed.next().await {
        piece.unwrap();
    }
    for name in names {
        files.remove(name, Condition::Any).await.unwrap();
    }
}

async fn no_archive_entry_leads_out(rig: Rig, provider: &str) {
    let scene = Scene::new(rig, provider).await;
    let files = &scene.files;
    scene.link(scene.outside.path(), "out");
    let canary = scene.canary().into_os_string().into_encoded_bytes();
    let outside = scene.outside.path().as_os_str().as_encoded_bytes().to_vec();
    let file = |path: &[u8]| entry(b'0', path, b"", b"x");
    let pax = |key: &str, value: &[u8]| {
        let rest = key.len() + value.len() + 3;
        let length = (rest + 2..rest + 9).find(|length| length.to_string().len() + rest == *length).unwrap();
        entry(b'x', b"pax", b"", &[format!("{length} {key}=").as_bytes(), value, b"\n"].concat())
    };
    let long = |kind: u8, name: &[u8]| entry(kind, b"././@LongLink", b"", &[name, b"\0"].concat());
    let up = b"../../../../../../../../x".as_slice();
    let attempts: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("an absolute path", vec![file(&canary)]),
        ("an absolute directory", vec![entry(b'5', &[&outside, b"/made".as_slice()].concat(), b"", b"")]),
        ("two slashes", vec![file(b"//etc/stead-canary")]),
        ("..", vec![file(b"..")]),
        ("../x", vec![file(b"../x")]),
        ("../x, hidden by points", vec![file(b"./.././x")]),
        ("up from below", vec![entry(b'5', b"a", b"", b""), file(b"a/../../x")]),
        ("up and back", vec![file(b"a/../b")]),
        ("a directory above", vec![entry(b'5', b"../made", b"", b"")]),
        ("far up", vec![file(up)]),
        ("a long name that is absolute", vec![long(b'L', &canary), file(b"innocent")]),
        ("a long name that goes up", vec![long(b'L', up), file(b"innocent")]),
        ("pax says absolute", vec![pax("path", &canary), file(b"innocent")]),
        ("pax says up", vec![pax("path", up), file(b"innocent")]),
        ("pax says NUL", vec![pax("path", b"a\0/../../x"), file(b"innocent")]),
        ("a link that is absolute", vec![entry(b'2', b"link", &canary, b"")]),
        ("a link that goes up", vec![entry(b'2', b"link", up, b"")]),
        ("a link one too high", vec![entry(b'2', b"a/link", b"../../x", b"")]),
        ("a link to the parent", vec![entry(b'2', b"link", b"..", b"")]),
        ("a link to /proc", vec![entry(b'2', b"link", b"/proc/self/root", b"")]),
        ("a link to nothing", vec![entry(b'2', b"link", b"", b"")]),
        ("a link to up by pax", vec![pax("linkpath", up), entry(b'2', b"link", b"fine", b"")]),
        ("a link to up by a long name", vec![long(b'K', &canary), entry(b'2', b"link", b"fine", b"")]),
        ("a link, and through it", vec![entry(b'2', b"link", &outside, b""), file(b"link/x")]),
        ("a link inside, and through it", vec![entry(b'2', b"link", b"dir", b""), file(b"link/x")]),
        ("a second name of what is outside", vec![entry(b'1', b"second", &canary, b"")]),
        ("a second name of what is above", vec![entry(b'1', b"second", up, b"")]),
        ("a second name of a link", vec![entry(b'2', b"link", b"x", b""), entry(b'1', b"second", b"link", b"")]),
        ("a second name of what is in the tree", vec![entry(b'1', b"second", b"mine", b"")]),
        ("a second name through what is there", vec![entry(b'1', b"second", b"out/canary", b"")]),
        ("a second name of nothing", vec![entry(b'1', b"second", b"", b"")]),
        ("a second name by pax", vec![file(b"a"), pax("linkpath", &canary), entry(b'1', b"second", b"a", b"")]),
        ("a character device", vec![entry(b'3', b"device", b"", b"")]),
        ("a block device", vec![entry(b'4', b"device", b"", b"")]),
        ("a pipe", vec![entry(b'6', b"pipe", b"", b"")]),
        ("holes without a description", vec![entry(b'S', b"sparse", b"", b"")]),
        ("a volume", vec![entry(b'V', b"volume", b"", b"")]),
        ("something unknown", vec![entry(b'Z', b"unknown", b"", b"")]),
        ("a name that is too long", vec![long(b'L', &[b'n'; 300]), file(b"innocent")]),
        ("a path that is too long", vec![long(b'L', &b"a/".repeat(2100)), file(b"innocent")]),
        ("a path that is too deep", vec![long(b'L', &b"a/".repeat(300)), file(b"innocent")]),
        ("a file without a name", vec![file(b"")]),
        ("a file that is a directory", vec![file(b"./")]),
    ];
    files.write("mine", b"mine".to_vec()).await.unwrap();
    let before = all(files).await;
    assert!(attempts.len() >= 40);
    for (what, entries) in attempts {
        // The good entry before it isn't there either.
        let bytes = archive(&[vec![file(b"before")], entries].concat());
        // From further down these lead to places inside.
        let short = ["a link one too high", "a link to the parent"].contains(&what);
        for into in [".", "new/dir"].into_iter().take(if short { 1 } else { 2 }) {
            let answer = unpack(files, into, &bytes).await;
            // Entries with holes are taken; this one has a header that can't describe any, so it is no archive.
            let code = if what == "holes without a description" { "invalid_request" } else { "invalid_path" };
            assert_eq!(answer.err().map(|error| error.code()), Some(code), "{what}");
            assert_eq!(all(files).await, before, "{what}");
            scene.check(what);
        }
    }
    // What is there is a link that leads out: nothing goes through it.
    let through = archive(&[entry(b'5', b"out", b"", b""), file(b"out/x")]);
    assert_eq!(unpack(files, ".", &through).await.unwrap_err().code(), "conflict");
    assert_eq!(unpack(files, "out", &archive(&[file(b"x")])).await.unwrap_err().code(), "invalid_path");
    assert_eq!(unpack(files, "out/empty", &archive(&[file(b"x")])).await.unwrap_err().code(), "invalid_path");
    scene.check("a link that is there");
    // As the name of a file it is replaced.
    unpack(files, ".", &archive(&[file(b"out")])).await.unwrap();
    assert_eq!(files.read("out").await.unwrap(), b"x");
    scene.check("a link that was replaced");
    // Nor is anything left beside the workspace.
    let beside = fs::read_dir(scene.workspace.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    let beside: Vec<_> = beside.filter(|name| name != "files" && name != "home").collect();
    assert!(beside.is_empty(), "{beside:?}");
}

async fn a_second_name_is_never_written_through(rig: Rig, provider: &str) {
    let scene = Scene::new(rig, provider).await;
    let files = &scene.files;
    // A hard link needs one file system; `/var/tmp` may be another than the data's.
    let outside = scene.others[1].clone();
    fs::hard_link(&outside, scene.workspace.join("second")).unwrap();
    files.write("second", b"x".to_vec()).await.unwrap();
    scene.check("write");
    fs::remove_file(scene.workspace.join("second")).unwrap();
    fs::hard_link(&outside, scene.workspace.join("second")).unwrap();
    let edit = Edit { old: "canary".to_owned(), new: "x".to_owned(), count: 1 };
    files.edit("second", edit).await.unwrap();
    scene.check("edit");
    fs::remove_file(scene.workspace.join("second")).unwrap();
    fs::hard_link(&outside, scene.workspace.join("second")).unwrap();
    unpack(files, ".", &archive(&[entry(b'0', b"second", b"", b"x")])).await.unwrap();
    scene.check("unpack");
    files.remove("second", Condition::Any).await.unwrap();
    scene.check("remove");
}

async fn whoever_swaps_a_directory_for_a_link_meanwhile_does_not_win(rig: Rig, provider: &str) {
    let scene = Scene::new(rig, provider).await;
    let (files, workspace) = (scene.files.clone(), scene.workspace.clone());
    fs::create_dir_all(workspace.join("swapped/empty")).unwrap();
    fs::write(workspace.join("swapped/canary"), "mine").unwrap();
    scene.link(scene.outside.path(), "evil");
    let over = Arc::new(AtomicBool::new(false));
    let swapper = std::thread::spawn({
        let (over, workspace) = (Arc::clone(&over), workspace.clone());
        move || {
            let mut rounds = 0_u64;
            while !over.load(Ordering::Relaxed) || rounds < 5000 {
                let (one, other) = (workspace.join("swapped"), workspace.join("evil"));
                // Sometimes the names are away: an archive or a directory was made in the meantime.
                let _ = rustix::fs::renameat_with(CWD, &one, CWD, &other, rustix::fs::RenameFlags::EXCHANGE);
                rounds += 1;
            }
            rounds
        }
    });
    let tar = archive(&[entry(b'0', b"unpacked", b"", b"x")]);
    let page = || Page { limit: 100, after: None };
    let (mut inside, mut refused) = (0, 0);
    for round in 0..2000 {
        let answers = match round % 8 {
            0 => files.read("swapped/canary").await.map(|bytes| assert_eq!(bytes, b"mine", "that of the workspace")),
            1 => files.write("swapped/new", b"x".to_vec()).await.map(drop),
            2 => files.write("swapped/empty/deep/new", b"x".to_vec()).await.map(drop),
            3 => files.list("swapped", 5, page()).await.map(drop),
            4 => files.make_dir("swapped/empty/made").await.map(drop),
            5 => files.remove("swapped/new", Condition::Any).await,
            6 => files.remove_all("swapped/empty/made", Condition::Any).await,
            _ if round % 64 == 7 => match files.unpack("swapped", Bounds::default()).await {
                Ok(mut unpacking) => match unpacking.write(tar.clone().into()).await {
                    Ok(()) => unpacking.finish().await.map(drop),
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            },
            _ => {
                let grep = Grep { pattern: "sings".to_owned(), literal: false, ignore_case: false, glob: None };
                files.grep("swapped", grep, page()).await.map(|found| assert!(found.items.is_empty()))
            }
        };
        match answers {
            Ok(()) => inside += 1,
            Err(error) => {
                let fair = ["invalid_path", "not_found", "conflict"].contains(&error.code());
                assert!(fair, "round {round}: {error}");
                refused += 1;
            }
        }
        if round % 50 == 0 {
            scene.check("a race");
        }
    }
    over.store(true, Ordering::Relaxed);
    let rounds = swapper.join().unwrap();
    scene.check("a race");
    assert!(inside > 0 && refused > 0 && rounds >= 5000, "{inside} inside, {refused} refused, {rounds} swaps");
}
