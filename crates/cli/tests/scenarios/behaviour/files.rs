//! Files of a sandbox, from outside it.

use crate::rig::{Rig, out, run, thread};
use crate::scene::*;
use stead_server::files::Kind;
use stead_server::lease::Force;

on_each_provider! {
    files_are_written_read_listed_described_and_removed,
    no_path_leads_out_of_the_sandbox,
    files_are_served_while_the_instance_sleeps_and_while_there_is_none,
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
    let listed: Vec<_> = files.list("a/b").await.unwrap().into_iter().map(|entry| (entry.name, entry.kind)).collect();
    assert_eq!(listed, [("blob".to_owned(), Kind::File), ("link".to_owned(), Kind::Symlink)]);
    let stat = files.stat("a/b/blob").await.unwrap();
    assert_eq!((stat.kind, stat.size, stat.mode), (Kind::File, 5, 0o640));
    assert_eq!(files.stat("made").await.unwrap().mode, 0o700);
    assert_eq!(files.stat("pipe").await.unwrap().kind, Kind::Other);
    assert_eq!(files.read("a/b/link").await.unwrap(), b"short", "a link inside leads somewhere inside");
    files.make_dir("x/y/z").await.unwrap();
    files.make_dir("x/y/z").await.unwrap();
    assert_eq!(out(&sandbox, "test -d x/y/z && echo dir").await, "dir\n");
    assert_eq!(files.remove("x").await.unwrap_err().code(), "invalid_path", "it is not empty");
    files.remove("x/y/z").await.unwrap();
    files.remove("a/b/link").await.unwrap();
    assert_eq!(files.read("a/b/blob").await.unwrap(), b"short", "the link went, not what it led to");
    for gone in ["x/y/z", "a/b/link", "never"] {
        assert_eq!(files.stat(gone).await.unwrap_err().code(), "not_found", "{gone}");
    }
    assert_eq!(files.read("a").await.unwrap_err().code(), "invalid_path", "a directory has no bytes");
    assert_eq!(files.read("pipe").await.unwrap_err().code(), "invalid_path", "nor is a pipe waited for");
}

async fn no_path_leads_out_of_the_sandbox(rig: Rig, _: &str) {
    let secret = rig.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let sandbox = rig.sandbox("t").await;
    let files = sandbox.files().await.unwrap();
    let secret = secret.to_string_lossy().into_owned();
    let dir = rig.path().to_string_lossy().into_owned();
    // A temporary directory is inside on `local`; /etc never is.
    run(
        &sandbox,
        "ln -s /etc/passwd out; ln -s /etc outdir; ln -s ../../../../../../../../etc/passwd up; ln -s loop loop",
    )
    .await;
    let paths = [
        "../x",
        "a/../../x",
        "/workspace/../etc/passwd",
        "..",
        "/etc/passwd",
        "/",
        "/proc/self/environ",
        "out",
        "outdir/passwd",
        "up",
        "loop",
        "bad\0name",
        "",
    ];
    for path in paths {
        for (what, failed) in [
            ("read", files.read(path).await.map(drop)),
            (
                "write",
                if path == "out" || path == "up" || path == "loop" {
                    continue;
                } else {
                    files.write(path, b"x".to_vec()).await
                },
            ),
        ] {
            let code = failed.err().map(|error| error.code());
            assert!(matches!(code, Some("invalid_path")), "{what} {path:?}: {code:?}");
        }
    }
    // Writing to the name of a link replaces the link.
    files.write("out", b"mine".to_vec()).await.unwrap();
    assert!(std::fs::read_to_string("/etc/passwd").unwrap().contains("root"));
    assert_eq!(files.read("out").await.unwrap(), b"mine");
    assert_eq!(files.list("outdir").await.unwrap_err().code(), "invalid_path");
    assert_eq!(files.make_dir("outdir/made").await.unwrap_err().code(), "invalid_path");
    assert!(!std::path::Path::new("/etc/made").exists());
    if !dir.starts_with("/tmp") {
        assert_eq!(files.read(&secret).await.unwrap_err().code(), "invalid_path");
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
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
