//! Files over HTTP.

use crate::rig::{Answer, Rig, wait_for};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A server with a thread that has never run anything.
fn with_thread() -> Rig {
    let rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    rig
}

fn files(path: &str) -> String {
    format!("/api/threads/t/files?path={path}")
}

fn put(rig: &Rig, path: &str, bytes: &[u8]) -> Answer {
    rig.call("PUT", &files(path), &[], bytes)
}

fn post(rig: &Rig, what: &str, body: &Value) -> Answer {
    rig.post(&format!("/api/threads/t/files/{what}"), body)
}

fn paths(list: &Value) -> Vec<String> {
    list["items"].as_array().unwrap().iter().map(|item| item["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_file_is_written_read_and_removed_without_an_instance() {
    let rig = with_thread();
    let bytes: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    let made = put(&rig, "a/b/blob", &bytes);
    assert_eq!((made.status, made.body.len()), (201, 0));
    let tag = made.header("etag").unwrap().to_owned();
    let read = rig.get(&files("/workspace/a/b/blob"));
    assert_eq!(
        (read.status, read.header("etag"), read.header("content-length")),
        (200, Some(tag.as_str()), Some("3000000"))
    );
    assert_eq!(read.body, bytes);
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("accept-ranges", "bytes"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; sandbox"),
    ] {
        assert_eq!(read.header(name), Some(value));
    }
    let head = rig.call("HEAD", &files("a/b/blob"), &[], b"");
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some("3000000"), 0));
    let again = put(&rig, "a/b/blob", b"short");
    assert_eq!(again.status, 204);
    assert_ne!(again.header("etag"), Some(tag.as_str()));
    assert_eq!(rig.get(&files("a/b/blob")).body, b"short");
    let lease = rig.get("/api/threads/t/lease").is(200);
    assert_eq!(lease["instance"], Value::Null, "nothing was woken for it");
    assert_eq!(rig.call("DELETE", &files("a"), &[], b"").code(), "conflict");
    assert_eq!(rig.call("DELETE", &format!("{}&recursive=true", files("a")), &[], b"").status, 204);
    let gone = rig.get(&files("a/b/blob"));
    assert_eq!(
        (gone.status, gone.code().as_str(), &gone.json()["error"]["details"]["kind"]),
        (404, "not_found", &json!("file"))
    );
    assert_eq!(rig.call("DELETE", &files("a"), &[], b"").status, 404);
}

#[test]
fn what_a_shell_writes_is_served_and_what_is_put_is_the_shells_also_while_it_sleeps() {
    let rig = with_thread();
    put(&rig, "in", b"from outside").is(201);
    let seen =
        rig.exec("t", "cat in && echo more >>in && mkdir d && echo inside >d/out && echo home >~/note && echo $HOME");
    assert_eq!(seen["exit_code"], 0, "{seen}");
    let home = seen["stdout"].as_str().unwrap().strip_prefix("from outside").unwrap().trim().to_owned();
    assert_eq!(rig.get(&files("d/out")).body, b"inside\n");
    assert_eq!(rig.get(&files("in")).body, b"from outsidemore\n");
    assert_eq!(rig.get(&files(&format!("{home}/note"))).body, b"home\n");
    rig.post("/api/threads/t/pause", &json!({})).is(200);
    assert_eq!(rig.get(&files("d/out")).body, b"inside\n");
    put(&rig, "asleep", b"x").is(201);
    assert_eq!(rig.get("/api/threads/t/lease").is(200)["observed_state"], "paused");
    rig.post("/api/threads/t/resume", &json!({})).is(200);
}

#[test]
fn parts_of_a_file_are_sent_as_the_standard_has_it() {
    let rig = with_thread();
    let made = put(&rig, "digits", b"0123456789");
    let tag = made.header("etag").unwrap().to_owned();
    let get = |headers: &[(&str, &str)]| rig.call("GET", &files("digits"), headers, b"");
    for (range, status, body, said) in [
        ("bytes=2-4", 206, "234", Some("bytes 2-4/10")),
        ("bytes=7-", 206, "789", Some("bytes 7-9/10")),
        ("bytes=-2", 206, "89", Some("bytes 8-9/10")),
        ("bytes=0-0,2-3", 200, "0123456789", None),
        ("lines=1", 200, "0123456789", None),
    ] {
        let answer = get(&[("range", range)]);
        assert_eq!(answer.status, status, "{range}");
        assert_eq!((answer.body.as_slice(), answer.header("content-range")), (body.as_bytes(), said), "{range}");
        assert_eq!(answer.header("content-length"), Some(body.len().to_string().as_str()), "{range}");
    }
    let outside = get(&[("range", "bytes=10-")]);
    assert_eq!((outside.status, outside.header("content-range")), (416, Some("bytes */10")));
    assert_eq!(outside.code(), "invalid_request");
    assert_eq!(get(&[("range", "bytes=1-1"), ("if-range", &tag)]).body, b"1");
    assert_eq!(get(&[("range", "bytes=1-1"), ("if-range", "\"other\"")]).status, 200);
    let known = get(&[("if-none-match", &tag)]);
    assert_eq!((known.status, known.body.len(), known.header("etag")), (304, 0, Some(tag.as_str())));
    assert_eq!(get(&[("if-none-match", "\"other\"")]).status, 200);
    assert_eq!(get(&[("if-match", "\"other\"")]).code(), "precondition_failed");
    assert_eq!(get(&[("if-match", "nonsense")]).code(), "invalid_request");
}

#[test]
fn a_change_is_refused_if_the_file_is_another() {
    let rig = with_thread();
    let put_if = |name: &str, value: &str, body: &[u8]| rig.call("PUT", &files("f"), &[(name, value)], body);
    assert_eq!(put_if("if-match", "*", b"x").status, 412);
    let first = put_if("if-none-match", "*", b"one");
    assert_eq!(first.status, 201);
    let refused = put_if("if-none-match", "*", b"x");
    assert_eq!((refused.status, refused.code().as_str()), (412, "precondition_failed"));
    let tag = first.header("etag").unwrap().to_owned();
    assert_eq!(put_if("if-match", &tag, b"two").status, 204);
    assert_eq!(put_if("if-match", &tag, b"three").status, 412);
    assert_eq!(rig.call("DELETE", &files("f"), &[("if-match", &tag)], b"").status, 412);
    assert_eq!(rig.get(&files("f")).body, b"two");
}

#[test]
fn a_body_that_is_cut_off_changes_nothing() {
    let rig = with_thread();
    put(&rig, "kept", b"old").is(201);
    for path in ["kept", "new", "dir/new", "archive"] {
        let target = if path == "archive" { "/api/threads/t/files/archive".to_owned() } else { files(path) };
        let mut stream = begin(&rig, &target, &vec![b'x'; 100_000]);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || text.starts_with("HTTP/1.1 400"), "{text}");
    }
    let list = rig.get("/api/threads/t/files/list?depth=9").is(200);
    assert_eq!(paths(&list), ["/workspace/kept"]);
    assert_eq!(rig.get(&files("kept")).body, b"old");
}

/// A request whose body will never be complete.
fn begin(rig: &Rig, target: &str, part: &[u8]) -> TcpStream {
    let address = rig.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let token = &rig.token;
    let head = format!(
        "PUT {target} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Length: 9000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(part).unwrap();
    stream
}

#[test]
fn a_server_that_is_killed_while_it_takes_files_leaves_nothing_of_them() {
    let mut rig = with_thread();
    put(&rig, "kept", &vec![b'o'; 100_000]).is(201);
    let tar = rig.get("/api/threads/t/files/archive").body;
    let begun = [
        begin(&rig, &files("kept"), &vec![b'x'; 500_000]),
        begin(&rig, &files("dir/new"), &vec![b'x'; 500_000]),
        begin(&rig, "/api/threads/t/files/archive?path=unpacked", &tar[..50_000]),
    ];
    let workspace = std::fs::read_dir(rig.data().join("workspaces")).unwrap().next().unwrap().unwrap().path();
    let staged = || {
        let names = std::fs::read_dir(&workspace).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name != "files" && name != "home").collect::<Vec<_>>()
    };
    wait_for("the archive to be unpacked", || (!staged().is_empty()).then_some(()));
    rig.kill();
    drop(begun);
    rig.start();
    assert_eq!(paths(&rig.get("/api/threads/t/files/list?depth=9").is(200)), ["/workspace/kept"]);
    assert_eq!(rig.get(&files("kept")).body, vec![b'o'; 100_000]);
    rig.call("PUT", "/api/threads/t/files/archive?path=unpacked", &[], &tar).is(200);
    assert_eq!(staged(), Vec::<std::ffi::OsString>::new(), "the next one cleans up");
    assert_eq!(rig.get(&files("unpacked/kept")).body.len(), 100_000);
}

#[test]
fn directories_are_made_listed_described_moved_and_edited() {
    let rig = with_thread();
    assert_eq!(rig.get("/api/threads/t/files/list").is(200), json!({ "items": [], "next_cursor": null }));
    let made = post(&rig, "mkdir", &json!({ "path": "src/deep" })).is(201);
    assert_eq!((&made["path"], &made["type"]), (&json!("/workspace/src/deep"), &json!("dir")));
    post(&rig, "mkdir", &json!({ "path": "src/deep" })).is(200);
    put(&rig, "src/one.txt", b"alpha beta beta").is(201);
    assert_eq!(post(&rig, "mkdir", &json!({ "path": "src/one.txt" })).code(), "already_exists");
    let list = rig.get("/api/threads/t/files/list?path=src&depth=1").is(200);
    assert_eq!(paths(&list), ["/workspace/src/deep", "/workspace/src/one.txt"]);
    let file = &list["items"][1];
    assert_eq!(
        (&file["name"], &file["type"], &file["size"], &file["mode"]),
        (&json!("one.txt"), &json!("file"), &json!(15), &json!("0644"))
    );
    assert!(file["modified_at"].as_str().unwrap().ends_with('Z'), "{file}");
    let stat = rig.get("/api/threads/t/files/stat?path=src/one.txt").is(200);
    assert_eq!(stat["etag"], file["etag"]);
    let page = rig.get("/api/threads/t/files/list?depth=9&limit=2").is(200);
    assert_eq!(paths(&page), ["/workspace/src", "/workspace/src/deep"]);
    let next = page["next_cursor"].as_str().unwrap();
    let rest = rig.get(&format!("/api/threads/t/files/list?depth=9&limit=2&cursor={next}")).is(200);
    assert_eq!((paths(&rest), &rest["next_cursor"]), (vec!["/workspace/src/one.txt".to_owned()], &Value::Null));
    let moved = post(&rig, "move", &json!({ "from": "src/one.txt", "to": "new/two.txt" })).is(200);
    assert_eq!(moved["path"], "/workspace/new/two.txt");
    put(&rig, "src/one.txt", b"x").is(201);
    assert_eq!(post(&rig, "move", &json!({ "from": "src/one.txt", "to": "new/two.txt" })).code(), "already_exists");
    let edit = |old: &str, count: u64| json!({ "path": "new/two.txt", "old": old, "new": "B", "count": count });
    assert_eq!(post(&rig, "edit", &json!({ "path": "new/two.txt", "old": "beta", "new": "B" })).code(), "conflict");
    assert_eq!(post(&rig, "edit", &edit("beta", 3)).code(), "conflict");
    assert_eq!(post(&rig, "edit", &edit("beta", 2)).is(200)["replaced"], 2);
    assert_eq!(rig.get(&files("new/two.txt")).body, b"alpha B B");
    let found = post(&rig, "glob", &json!({ "pattern": "**/*.{txt,md}" })).is(200);
    assert_eq!(paths(&found), ["/workspace/new/two.txt", "/workspace/src/one.txt"]);
    put(&rig, "binary", b"alpha\0").is(201);
    let lines = post(&rig, "grep", &json!({ "pattern": "(?i)ALPHA" })).is(200);
    assert_eq!(
        lines["items"],
        json!([{ "path": "/workspace/new/two.txt", "line": 1, "column": 1, "text": "alpha B B", "cut": false }])
    );
    assert_eq!(lines["skipped"], json!([{ "path": "/workspace/binary", "reason": "binary" }]));
}

#[test]
fn a_directory_goes_through_an_archive() {
    let rig = with_thread();
    put(&rig, "a/one", b"1").is(201);
    put(&rig, "a/b/two", &vec![7; 200_000]).is(201);
    let tar = rig.get("/api/threads/t/files/archive?path=a");
    assert_eq!((tar.status, tar.header("content-type")), (200, Some("application/x-tar")));
    rig.post("/api/threads", &json!({ "id": "u" })).is(201);
    let unpacked = rig.call("PUT", "/api/threads/u/files/archive?path=x/y", &[], &tar.body).is(200);
    assert_eq!(unpacked, json!({ "files": 2, "dirs": 1, "links": 0, "bytes": 200_001 }));
    assert_eq!(rig.get("/api/threads/u/files?path=x/y/b/two").body, vec![7; 200_000]);
    let cut = rig.call("PUT", "/api/threads/u/files/archive", &[], &tar.body[..1000]);
    assert_eq!((cut.status, cut.code().as_str()), (400, "invalid_request"));
    let mut evil = tar.body.clone();
    evil[..8].copy_from_slice(b"../../ev");
    let sum: u32 = evil[..512]
        .iter()
        .enumerate()
        .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) })
        .sum();
    evil[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let refused = rig.call("PUT", "/api/threads/u/files/archive?path=z", &[], &evil);
    assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_path"));
    assert_eq!(rig.get("/api/threads/u/files/stat?path=z").status, 404);
}

#[test]
fn no_path_leads_out() {
    let rig = with_thread();
    rig.exec("t", "ln -s /etc out; ln -s /etc/passwd file; ln -s ../../../../../../etc/passwd up");
    for path in [
        "../x",
        "%2e%2e/x",
        "%2e%2e%2fx",
        "a/../../x",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "/workspace/../etc/passwd",
        "out/passwd",
        "file",
        "up",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "a%00b",
        "",
        "/",
        "..",
        "//etc/passwd",
        "..%2f..%2fx",
    ] {
        for (method, place) in [
            ("GET", "files"),
            ("PUT", "files"),
            ("GET", "files/list"),
            ("GET", "files/archive"),
            ("PUT", "files/archive"),
        ] {
            let answer = rig.call(method, &format!("/api/threads/t/{place}?path={path}"), &[], b"x");
            assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_path"), "{method} {place} `{path}`");
        }
    }
    let data = rig.data().join("token").display().to_string();
    assert_eq!(rig.get(&files(&data)).code(), "invalid_path", "the server's own");
    // Decoded once: this is a name.
    assert_eq!(rig.get(&files("%252e%252e")).code(), "not_found");
    for (what, body) in [
        ("mkdir", json!({ "path": "out/x" })),
        ("move", json!({ "from": "out/passwd", "to": "x" })),
        ("move", json!({ "from": "file", "to": "../x" })),
        ("edit", json!({ "path": "file", "old": "root", "new": "x" })),
        ("glob", json!({ "pattern": "../*" })),
        ("glob", json!({ "path": "out", "pattern": "*" })),
        ("grep", json!({ "path": "file", "pattern": "root" })),
        ("link", json!({ "path": "file" })),
    ] {
        assert_eq!(post(&rig, what, &body).code(), "invalid_path", "{what} {body}");
    }
}

#[test]
fn what_makes_no_sense_is_said() {
    let rig = with_thread();
    for (place, code) in [
        ("files", "invalid_request"),
        ("files?path=a&path=b", "invalid_request"),
        ("files?path=a&other=1", "invalid_request"),
        ("files?path=none", "not_found"),
        ("files/list?depth=0", "invalid_request"),
        ("files/list?depth=x", "invalid_request"),
        ("files/list?limit=1001", "invalid_request"),
        ("files/list?cursor=!", "invalid_request"),
        ("files/stat", "invalid_request"),
    ] {
        assert_eq!(rig.get(&format!("/api/threads/t/{place}")).code(), code, "{place}");
    }
    for (what, body) in [
        ("mkdir", json!({})),
        ("mkdir", json!({ "path": "a", "mode": 7 })),
        ("edit", json!({ "path": "a", "old": "", "new": "x" })),
        ("glob", json!({ "pattern": "[" })),
        ("grep", json!({ "pattern": "(" })),
        ("link", json!({ "path": "a", "expires_in_s": 0 })),
    ] {
        assert_eq!(post(&rig, what, &body).code(), "invalid_request", "{what} {body}");
    }
    let none = rig.call("PUT", "/api/threads/none/files?path=x", &[], b"x");
    assert_eq!(
        (none.status, &none.json()["error"]["details"]["kind"]),
        (404, &json!("thread")),
        "files make no thread"
    );
    assert_eq!(rig.call_as("GET", &files("a"), &[], b"").status, 401);
}

#[test]
fn a_link_gives_one_file_to_whoever_has_it_for_a_while() {
    let mut rig = with_thread();
    put(&rig, "dir/page%20%C3%BC.html", b"<script>alert(1)</script>").is(201);
    put(&rig, "other", b"secret").is(201);
    let made = post(&rig, "link", &json!({ "path": "dir/page ü.html" })).is(200);
    let url = made["url"].as_str().unwrap().to_owned();
    assert!(url.starts_with("/api/download/t?"), "{url}");
    let fetch = |rig: &Rig, url: &str| rig.call_as("GET", url, &[], b"");
    let answer = fetch(&rig, &url);
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"<script>alert(1)</script>".as_slice()));
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    let shown = answer.header("content-disposition").unwrap();
    assert_eq!(shown, "attachment; filename=\"page _.html\"; filename*=UTF-8''page%20%C3%BC.html");
    let part = rig.call_as("GET", &url, &[("range", "bytes=0-7")], b"");
    assert_eq!((part.status, part.body.as_slice()), (206, b"<script>".as_slice()));
    let (before, signature) = url.split_once("&sig=").unwrap();
    for wrong in [
        url.replace("page%20", "page"),
        url.replace("dir/page%20%C3%BC.html", "other"),
        url.replace("/download/t?", "/download/u?"),
        url.replace("&expires=1", "&expires=2"),
        format!("{before}&sig="),
        format!("{before}&sig={}", signature.chars().rev().collect::<String>()),
    ] {
        let answer = fetch(&rig, &wrong);
        assert_eq!((answer.status, answer.code().as_str()), (403, "forbidden"), "{wrong}");
    }
    assert_eq!(rig.call_as("PUT", &url, &[], b"x").status, 405);
    // It outlives the server, and ends with its time or its thread.
    rig.kill();
    rig.start();
    assert_eq!(fetch(&rig, &url).status, 200);
    let short = post(&rig, "link", &json!({ "path": "other", "expires_in_s": 1 })).is(200);
    wait_for("end of the link", || (fetch(&rig, short["url"].as_str().unwrap()).status == 403).then_some(()));
    rig.call("DELETE", "/api/threads/t", &[], b"").is(204);
    rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    put(&rig, "dir/page%20%C3%BC.html", b"of another thread").is(201);
    assert_eq!(fetch(&rig, &url).status, 403);
}

#[test]
fn names_that_are_not_text_can_be_asked_for() {
    let rig = with_thread();
    put(&rig, "%FF%FE", b"raw").is(201);
    let list = rig.get("/api/threads/t/files/list").is(200);
    let encoded = list["items"][0]["path_encoded"].as_str().unwrap();
    assert_eq!(encoded, "/workspace/%FF%FE");
    assert_eq!(rig.get(&files(encoded)).body, b"raw");
}

#[test]
fn every_route_for_files_is_described_with_its_errors() {
    let rig = Rig::new();
    let api = rig.get("/api/openapi.json").is(200);
    for (path, methods) in [
        ("/api/threads/{id}/files", vec!["get", "put", "delete"]),
        ("/api/threads/{id}/files/list", vec!["get"]),
        ("/api/threads/{id}/files/stat", vec!["get"]),
        ("/api/threads/{id}/files/mkdir", vec!["post"]),
        ("/api/threads/{id}/files/move", vec!["post"]),
        ("/api/threads/{id}/files/edit", vec!["post"]),
        ("/api/threads/{id}/files/glob", vec!["post"]),
        ("/api/threads/{id}/files/grep", vec!["post"]),
        ("/api/threads/{id}/files/archive", vec!["get", "put"]),
        ("/api/threads/{id}/files/link", vec!["post"]),
        ("/api/download/{id}", vec!["get"]),
    ] {
        for method in methods {
            let described = &api["paths"][path][method]["responses"];
            assert!(described["404"].is_object() && described["default"].is_object(), "{method} {path}: {described}");
        }
    }
}

#[test]
fn holes_and_hard_links_go_through_an_archive() {
    use std::os::unix::fs::FileExt;
    let rig = with_thread();
    let from = tempfile::tempdir().unwrap();
    let sparse = std::fs::File::create(from.path().join("sparse")).unwrap();
    sparse.set_len(3 << 30).unwrap();
    for number in 0..30u64 {
        sparse.write_all_at(&number.to_be_bytes(), number << 26).unwrap();
    }
    std::fs::write(from.path().join("one"), "linked").unwrap();
    std::fs::hard_link(from.path().join("one"), from.path().join("two")).unwrap();
    let words = ["--format=gnu", "--sparse", "-cf", "-", "."];
    let tar = std::process::Command::new("tar").args(words).current_dir(from.path()).output().unwrap();
    assert!(tar.status.success() && tar.stdout.len() < 1 << 20, "{tar:?}");
    rig.call("PUT", "/api/threads/t/files/archive?path=x", &[], &tar.stdout).is(200);
    let cwd = rig.exec("t", "cd x; pwd -P")["stdout"].as_str().unwrap().trim().to_owned();
    let answer = rig.exec("t", "stat -c '%s %b' sparse; stat -c '%h %i' one two | uniq; cat two");
    let said: Vec<_> = answer["stdout"].as_str().unwrap().split_whitespace().collect();
    assert_eq!((said[0], said[2], said.len()), ("3221225472", "2", 5), "{answer} in {cwd}");
    assert!(said[1].parse::<u64>().unwrap() < 1000, "{answer}");
    let bytes = rig.call("GET", &files("x/sparse"), &[("range", "bytes=134217728-134217735")], b"").body;
    assert_eq!(bytes, 2u64.to_be_bytes());
    rig.exec("t", "rm sparse");
    let tar = rig.get("/api/threads/t/files/archive?path=x");
    rig.call("PUT", "/api/threads/t/files/archive?path=y", &[], &tar.body).is(200);
    let answer = rig.exec("t", "cd ../y; stat -c '%h %i' one two | uniq | wc -l; cat one two");
    assert_eq!(answer["stdout"], "1\nlinkedlinked", "{answer}");
    // A map that does not fit what it tells of.
    let mut broken = Vec::new();
    let mut header = tar::Header::new_gnu();
    header.set_path("bad").unwrap();
    header.set_entry_type(tar::EntryType::GNUSparse);
    header.set_size(512);
    header.set_mode(0o644);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.realsize.copy_from_slice(b"00000000100\0");
    gnu.sparse[0].offset.copy_from_slice(b"00000000000\0");
    gnu.sparse[0].numbytes.copy_from_slice(b"00000001000\0");
    header.set_cksum();
    broken.extend_from_slice(header.as_bytes());
    broken.extend_from_slice(&[0; 1536]);
    rig.call("PUT", "/api/threads/t/files/archive?path=z", &[], &broken).fails(400, "invalid_request");
}
