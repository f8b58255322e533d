//! Containers behind a real server: one that is an ordinary user's, and one that is a single file.

use crate::rig::Rig;
use serde_json::json;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const DOCKER: &str = "STEAD_TEST_DOCKER";

/// The socket that a variable names; else a word about it.
fn engine(variable: &str) -> Option<PathBuf> {
    let socket = std::env::var_os(variable).map(PathBuf::from).filter(|socket| socket.exists());
    if socket.is_none() {
        println!("SKIPPED: no engine in {variable}");
    }
    socket
}

fn steward() -> Option<PathBuf> {
    let steward = std::env::var_os("STEAD_STATIC_STEWARD").map(PathBuf::from).filter(|path| path.is_file());
    if steward.is_none() {
        println!("SKIPPED: no STEAD_STATIC_STEWARD");
    }
    steward
}

/// Whether we may be somebody else.
fn can_be_others() -> bool {
    let can = rustix::process::geteuid().is_root();
    if !can {
        println!("SKIPPED: only root can start a server as somebody else");
    }
    can
}

fn config(socket: &Path, more: &str) -> String {
    format!(
        "default_provider = 'box'\n[provider.box]\nkind = 'docker'\nimage = 'stead/test-busybox'\nsocket = '{}'\n{more}",
        socket.display()
    )
}

/// The program and its steward in a directory of the test's own, as they are installed.
fn install(rig: &mut Rig, steward: Option<&Path>) {
    let bin = rig.dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::copy(&rig.program, bin.join("stead")).unwrap();
    rig.program = bin.join("stead");
    if let Some(steward) = steward {
        fs::copy(steward, bin.join("steward")).unwrap();
    }
}

/// A server of somebody who is not root, over a directory of theirs.
fn owned(socket: &Path, steward: &Path, (uid, gid): (u32, u32), more: &str) -> Rig {
    let mut rig = Rig::prepare(&config(socket, more), &[], &[]);
    install(&mut rig, Some(steward));
    fs::set_permissions(rig.dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let bin = rig.dir.path().join("bin");
    for path in [rig.dir.path().to_owned(), bin.clone(), bin.join("stead"), bin.join("steward")] {
        chown(path, Some(uid), Some(gid)).unwrap();
    }
    rig.user = Some((uid, gid));
    provide_image(&rig);
    rig.start();
    rig
}

#[track_caller]
fn provide_image(rig: &Rig) {
    let words = ["image", "build", "--name", "stead/test-busybox", "--if-missing", "--provider", "box"];
    let output = rig.stead().args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[track_caller]
fn out(rig: &Rig, command: &str) -> String {
    let record = rig.exec("t", command);
    assert_eq!(record["exit_code"], 0, "{record}");
    record["stdout"].as_str().unwrap().to_owned()
}

/// Removes the container behind the server's back.
fn lose(rig: &Rig, socket: &Path) {
    let lease = rig.get("/api/threads/t/lease").is(200);
    let name = format!("stead-{}", lease["instance"]["instance_id"].as_str().unwrap());
    let mut stream = UnixStream::connect(socket).unwrap();
    let request = format!("DELETE /containers/{name}?force=1 HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
}

/// What is made inside is theirs outside, and the other way round, over the loss of a container.
fn files_are_the_users(rig: &Rig, socket: &Path, uid: u32) {
    out(rig, "echo inside >file; mkdir -m 700 dir; echo deep >dir/deep; export V=1; cd dir");
    assert_eq!(rig.get("/api/threads/t/files?path=dir/deep").body, b"deep\n");
    rig.call("PUT", "/api/threads/t/files?path=outside", &[], b"outside\n").is(201);
    assert_eq!(out(rig, "cat ../outside; echo more >>../outside; cat ../outside"), "outside\noutside\nmore\n");
    let workspaces = fs::read_dir(rig.data().join("workspaces")).unwrap().flatten();
    let files = workspaces.map(|entry| entry.path().join("files")).find(|files| files.join("file").exists()).unwrap();
    for name in ["file", "dir", "dir/deep", "outside"] {
        assert_eq!(fs::metadata(files.join(name)).unwrap().uid(), uid, "{name}");
    }
    lose(rig, socket);
    assert_eq!(out(rig, "cat deep; echo $V; pwd"), "deep\n1\n/workspace/dir\n");
}

#[test]
fn a_server_that_is_not_root_has_containers_of_an_engine_that_is() {
    let (Some(socket), Some(steward)) = (engine(DOCKER), steward()) else { return };
    if !can_be_others() {
        return;
    }
    // The group of the socket, as people who may use an engine are in it.
    let group = fs::metadata(&socket).unwrap().gid();
    let rig = owned(&socket, &steward, (4321, group), "network = 'none'\n");
    rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    assert_eq!(out(&rig, "id -u; echo $HOME"), "4321\n/home/agent\n");
    files_are_the_users(&rig, &socket, 4321);
}

#[test]
fn an_engine_without_root_serves_the_user_that_it_is() {
    let (Some(socket), Some(steward)) = (engine("STEAD_TEST_ROOTLESS"), steward()) else { return };
    if !can_be_others() {
        return;
    }
    let meta = fs::metadata(&socket).unwrap();
    let user = (meta.uid(), meta.gid());
    let limits = "network = 'none'\nlimits = { memory = '64MiB', processes = 40 }\n";
    let rig = owned(&socket, &steward, user, limits);
    rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    assert_eq!(out(&rig, "id -u; echo $HOME; ls /sys/class/net"), "0\n/home/agent\nlo\n", "root, but only inside");
    files_are_the_users(&rig, &socket, user.0);

    // A limit is kept, or it is said that it is not.
    let lease = rig.get("/api/threads/t/lease").is(200);
    let said = |code: &str| lease["warnings"].as_array().unwrap().iter().any(|one| one["code"] == code);
    let refused = rig.exec("t", "i=0; while [ $i -lt 60 ]; do sleep 20 & i=$((i+1)); done; kill $(jobs -p)");
    let kept = refused["stderr"].as_str().unwrap().contains("fork") || refused["exit_code"] != 0;
    assert!(kept != said("processes-not-limited"), "{lease}: {refused}");
    assert_eq!(said("memory-not-limited"), said("processes-not-limited"), "{lease}");

    // So with sleep: it sleeps, or it is said that it can't.
    let answer = rig.post("/api/threads/t/pause", &json!({}));
    if answer.status == 200 {
        rig.post("/api/threads/t/resume", &json!({})).is(200);
    } else {
        let error = answer.fails(501, "unsupported");
        assert!(error["message"].as_str().unwrap().contains("can not pause"), "{error}");
    }
    assert_eq!(out(&rig, "echo $V"), "1\n", "and what ran goes on");
}

#[test]
fn an_engine_without_root_has_a_bridge() {
    let (Some(socket), Some(steward)) = (engine("STEAD_TEST_ROOTLESS"), steward()) else { return };
    if !can_be_others() {
        return;
    }
    let meta = fs::metadata(&socket).unwrap();
    let rig = owned(&socket, &steward, (meta.uid(), meta.gid()), "");
    rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    assert_eq!(out(&rig, "ls /sys/class/net"), "eth0\nlo\n");
    assert!(out(&rig, "ip route").starts_with("default via "));
}

#[test]
fn a_single_file_is_all_that_has_to_be_installed() {
    if option_env!("STEAD_EMBED_STEWARD").is_none_or(str::is_empty) {
        println!("SKIPPED: this was built without STEAD_EMBED_STEWARD");
        return;
    }
    let Some(socket) = engine(DOCKER) else { return };
    let mut rig = Rig::prepare(&config(&socket, "network = 'none'\n"), &[], &[]);
    install(&mut rig, None);
    provide_image(&rig);
    rig.start();
    rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    assert_eq!(out(&rig, "echo $((6*7))"), "42\n");
    let written = fs::read_dir(rig.data().join("bin")).unwrap().flatten();
    let names: Vec<_> = written.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert!(matches!(names.as_slice(), [name] if name.starts_with("steward-")), "{names:?}");
}
