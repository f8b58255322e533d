//! Who is let in, what is cut off, and what is never told.

use crate::rig::{Answer, PATIENCE, Rig, wait_for};
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// A connection of our own, on which anything can be said.
fn connect(rig: &Rig) -> TcpStream {
    let stream = TcpStream::connect(rig.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Everything that comes until they close.
fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("{error}; so far:\n{}", String::from_utf8_lossy(&bytes)),
    }
}

/// Says something, hangs up the sending half, and hears everything.
fn say(rig: &Rig, bytes: &[u8]) -> String {
    let mut stream = connect(rig);
    // They may have heard enough before we are done.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    String::from_utf8_lossy(&read_all(&mut stream)).into_owned()
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// A request with a token, whose head ends with what is added.
fn request(rig: &Rig, line: &str, more: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n{more}\r\n", rig.address(), rig.token)
}

#[track_caller]
fn is_well(rig: &Rig) {
    assert_eq!(rig.get("/api/version").status, 200);
}

const PLACES: [&str; 8] = [
    "/api/version",
    "/api/threads",
    "/api/tokens",
    "/api/openapi.json",
    "/api/commands/c",
    "/metrics",
    "/docs",
    "/nothing/here",
];

#[test]
fn without_a_token_nothing_is_told_but_whether_we_live() {
    let rig = Rig::new();
    let token = &rig.token;
    let wrong = [
        None,
        Some(("authorization", "Bearer".to_owned())),
        Some(("authorization", "Bearer ".to_owned())),
        Some(("authorization", format!("Bearer {}", "0".repeat(64)))),
        Some(("authorization", format!("Bearer stead_{}", "0".repeat(64)))),
        Some(("authorization", format!("Bearer {token}x"))),
        Some(("authorization", format!("Bearer {}", token.to_ascii_uppercase()))),
        Some(("authorization", format!("Basic {token}"))),
        Some(("authorization", format!("Token {token}"))),
        Some(("authorization", token.clone())),
        Some(("x-api-key", token.clone())),
        Some(("cookie", "stead_token=".to_owned())),
        Some(("cookie", format!("token={token}"))),
        Some(("cookie", format!("stead_token=stead_{}", "f".repeat(64)))),
    ];
    for header in &wrong {
        let headers: Vec<(&str, &str)> = header.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for path in PLACES {
            let answer = rig.call_as("GET", path, &headers, b"");
            assert_eq!((answer.status, answer.code().as_str()), (401, "unauthorized"), "{path} {header:?}");
            assert!(answer.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")));
        }
        let answer = rig.call_as("POST", "/api/threads", &headers, b"{}");
        assert_eq!(answer.status, 401, "{header:?}");
    }
    // A good cookie doesn't heal a bad header.
    let both = [("authorization", "Bearer wrong"), ("cookie", &*format!("stead_token={token}"))];
    assert_eq!(rig.call_as("GET", "/api/version", &both, b"").status, 401);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(rig.call_as("GET", path, &[], b"").body, b"ok\n");
    }
    for path in ["/", "/?", "/?x=1", "/?x=1&token=a"] {
        assert_eq!(rig.call_as("GET", path, &[], b"").status, 401, "{path}");
    }
    assert_eq!(rig.get("/api/threads").is(200)["items"], json!([]));
}

#[test]
fn every_answer_has_our_version() {
    let rig = Rig::new();
    let answers = [rig.get("/api/version"), rig.get("/nothing"), rig.call_as("GET", "/api/version", &[], b"")];
    assert!(answers.iter().all(|answer| answer.header("stead-version") == Some(env!("CARGO_PKG_VERSION"))));
}

#[test]
fn an_address_with_a_token_becomes_a_cookie_and_is_left() {
    let rig = Rig::new();
    let arrival = rig.call_as("GET", &format!("/?token={}", rig.token), &[], b"");
    assert_eq!((arrival.status, arrival.header("location")), (303, Some("/")));
    let cookie = arrival.header("set-cookie").unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.split("; ").any(|found| found == part), "{cookie}");
    }
    assert!(!cookie.contains("Domain"), "{cookie}");
    assert_eq!(arrival.header("cache-control"), Some("no-store"));
    assert_eq!(arrival.header("referrer-policy"), Some("no-referrer"));
    let pair = cookie.split(';').next().unwrap();
    let page = rig.call_as("GET", "/", &[("cookie", pair)], b"");
    assert_eq!(page.status, 200);
    assert!(page.header("content-security-policy").is_some_and(|policy| policy.contains("frame-ancestors 'none'")));
    assert!(!String::from_utf8_lossy(&page.body).contains(&rig.token));
    assert_eq!(rig.call_as("GET", "/api/threads", &[("cookie", pair)], b"").status, 200);
    let bad = rig.call_as("GET", "/?token=stead_wrong", &[], b"");
    assert_eq!((bad.status, bad.code().as_str(), bad.header("set-cookie")), (401, "unauthorized", None));
}

#[test]
fn a_page_of_somebody_else_may_not_use_the_cookie() {
    let rig = Rig::with_config("[server]\nallowed_hosts = ['stead.example.com']\n", &[]);
    let cookie = format!("stead_token={}", rig.token);
    let own = format!("http://{}", rig.address());
    let port = rig.address().rsplit(':').next().unwrap();
    let ask = |origin: &str| {
        let headers = [("cookie", cookie.as_str()), ("origin", origin)];
        rig.call_as("POST", "/api/threads", &headers, b"{\"id\":\"t\"}")
    };
    let foreign = [
        "http://evil.example".to_owned(),
        "https://evil.example".to_owned(),
        "null".to_owned(),
        String::new(),
        "http://".to_owned(),
        format!("{own}.evil.example"),
        format!("http://evil.example#{}", rig.address()),
        format!("http://{}@evil.example", rig.address()),
        // Cookies know no ports.
        "http://127.0.0.1:1".to_owned(),
        "http://127.0.0.1".to_owned(),
        format!("http://localhost:{port}"),
        "http://notstead.example.com".to_owned(),
    ];
    for origin in foreign {
        let answer = ask(&origin);
        assert_eq!((answer.status, answer.code().as_str()), (403, "forbidden"), "{origin}");
    }
    assert_eq!(rig.get("/api/threads").is(200)["items"], json!([]));
    assert_eq!(ask(&own).status, 201);
    assert_eq!(ask("https://stead.example.com").status, 409);
    // Not even to look, or with a token of its own.
    let bearer = format!("Bearer {}", rig.token);
    for way in [("cookie", cookie.as_str()), ("authorization", bearer.as_str())] {
        let answer = rig.call_as("GET", "/api/threads", &[way, ("origin", "http://evil.example")], b"");
        assert_eq!((answer.status, answer.code().as_str()), (403, "forbidden"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
    let asked = rig.call_as("OPTIONS", "/api/threads", &[("origin", "http://evil.example")], b"");
    assert_eq!((asked.status, asked.header("access-control-allow-origin")), (403, None));
}

#[test]
fn a_name_that_is_not_ours_is_not_answered() {
    let rig = Rig::with_config("[server]\nallowed_hosts = ['stead.example.com']\n", &[]);
    let port = rig.address().rsplit(':').next().unwrap().to_owned();
    let ask = |host: &str, path: &str| {
        let head =
            format!("GET {path} HTTP/1.1\r\n{host}authorization: Bearer {}\r\nconnection: close\r\n\r\n", rig.token);
        status(&say(&rig, head.as_bytes()))
    };
    let ours = [
        format!("127.0.0.1:{port}"),
        "127.0.0.1".to_owned(),
        format!("localhost:{port}"),
        "LOCALHOST".to_owned(),
        "[::1]:80".to_owned(),
        "stead.example.com".to_owned(),
        "Stead.Example.Com:443".to_owned(),
    ];
    for host in ours {
        assert_eq!(ask(&format!("host: {host}\r\n"), "/api/version"), 200, "{host}");
    }
    let others = [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "stead.example.com.evil.example",
        "evil.example@127.0.0.1",
        "10.0.0.1",
        "[::2]",
        "[",
        "",
        "\u{e9}",
    ];
    for host in others {
        for path in ["/api/version", "/healthz", "/?token=x"] {
            let got = ask(&format!("host: {host}\r\n"), path);
            assert!(got == 403 || got == 400, "`{host}` {path}: {got}");
        }
    }
    assert_eq!(ask("", "/api/version"), 403, "without a host");
    assert_eq!(ask("host: localhost\r\nhost: evil.example\r\n", "/api/version"), 400);
    assert_eq!(ask("host: evil.example\r\nhost: localhost\r\n", "/api/version"), 400);
    // With a whole address in the line its host counts, too.
    assert_eq!(ask("host: evil.example\r\n", "http://localhost/api/version"), 403);
    assert_eq!(ask("host: localhost\r\n", "http://evil.example/api/version"), 403);
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let rig = Rig::new();
    let many = |count: usize| (0..count).fold(String::new(), |text, number| text + &format!("x-{number}: y\r\n"));
    assert_eq!(status(&say(&rig, request(&rig, "GET /api/version", &many(90)).as_bytes())), 200);
    assert_eq!(status(&say(&rig, request(&rig, "GET /api/version", &many(200)).as_bytes())), 431);
    let long = |length: usize| format!("x-long: {}\r\n", "y".repeat(length));
    assert_eq!(status(&say(&rig, request(&rig, "GET /api/version", &long(30_000)).as_bytes())), 200);
    assert_eq!(status(&say(&rig, request(&rig, "GET /api/version", &long(200_000)).as_bytes())), 431);
    let got = status(&say(&rig, request(&rig, &format!("GET /{}", "x".repeat(200_000)), "").as_bytes()));
    assert!(got == 414 || got == 431, "{got}");
    is_well(&rig);
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let rig = Rig::new();
    let large = format!("{{\"id\":\"{}\"}}", "x".repeat(3 << 20));
    rig.call("POST", "/api/threads", &[("content-type", "application/json")], large.as_bytes()).fails(413, "too_large");
    // Said to be large is enough; and what comes in pieces is counted.
    let said = request(&rig, "POST /api/threads", "content-length: 99999999999\r\n");
    assert_eq!(status(&say(&rig, said.as_bytes())), 413);
    let piece = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let head = request(&rig, "POST /api/threads", "transfer-encoding: chunked\r\n");
    let pieces = format!("{head}{}0\r\n\r\n", piece.repeat(48));
    assert_eq!(status(&say(&rig, pieces.as_bytes())), 413);
    is_well(&rig);
}

const HASTY: &str = "[server]\nhead_timeout_s = 1\nbody_timeout_s = 1\n";

#[test]
fn a_head_that_trickles_is_cut_off() {
    let rig = Rig::with_config(HASTY, &[]);
    let begun = Instant::now();
    let mut slow = connect(&rig);
    slow.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    slow.write_all(b"GET /api/version HTTP/1.1\r\n").unwrap();
    wait_for("the end of their patience", || {
        // A header now and then: it is the whole of it that counts.
        let wrote = slow.write_all(b"x: y\r\n");
        match slow.read(&mut [0; 512]) {
            Ok(0) => Some(()),
            Ok(_) => None,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) && wrote.is_ok() => None,
            Err(_) => Some(()),
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let mut silent = connect(&rig);
    assert_eq!(read_all(&mut silent), b"", "one that says nothing at all");
    is_well(&rig);
}

#[test]
fn a_body_that_trickles_is_cut_off() {
    let rig = Rig::with_config(HASTY, &[]);
    let mut slow = connect(&rig);
    slow.write_all(request(&rig, "POST /api/threads", "content-length: 100\r\nconnection: close\r\n").as_bytes())
        .unwrap();
    slow.write_all(b"{").unwrap();
    let answer = String::from_utf8(read_all(&mut slow)).unwrap();
    assert_eq!(status(&answer), 400, "{answer}");
    assert!(answer.contains("invalid_request"), "{answer}");
    assert_eq!(rig.get("/api/threads").is(200)["items"], json!([]));
}

#[test]
fn beyond_the_limit_of_connections_one_is_told_so_and_others_go_on() {
    let rig = Rig::with_config("[server]\nmax_connections = 8\n", &[]);
    let exec = json!({ "command": "for i in 1 2 3 4 5; do echo $i; sleep 0.2; done", "id": "c" });
    let mut stream = rig.events("POST", "/api/threads/t/exec", &exec);
    assert_eq!(stream.next().unwrap().event, "start");
    let mut idle: Vec<TcpStream> = (0..20).map(|_| connect(&rig)).collect();
    let turned_away = wait_for("being told", || {
        let answer = say(&rig, request(&rig, "GET /api/version", "connection: close\r\n").as_bytes());
        (status(&answer) == 503).then_some(answer)
    });
    assert!(turned_away.contains("\"unavailable\"") && turned_away.contains("retry-after"), "{turned_away}");
    assert_eq!(stream.last().unwrap().data["exit_code"], 0);
    idle.clear();
    wait_for("room", || {
        let answer = say(&rig, request(&rig, "GET /api/version", "connection: close\r\n").as_bytes());
        (status(&answer) == 200).then_some(())
    });
}

#[test]
fn whoever_asks_too_often_is_told_when_to_come_again() {
    let rig = Rig::with_config("[server]\nrequests_per_second = 20\n", &[]);
    let other = wait_for("another token", || {
        let answer = rig.post("/api/tokens", &json!({ "name": "other" }));
        (answer.status == 201).then(|| answer.json()["token"].as_str().unwrap().to_owned())
    });
    let refused: Answer = wait_for("a refusal", || Some(rig.get("/api/version")).filter(|answer| answer.status == 429));
    refused.fails(429, "limit_reached");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // It is theirs alone.
    let bearer = format!("Bearer {other}");
    assert_eq!(rig.call_as("GET", "/api/version", &[("authorization", &bearer)], b"").status, 200);
    assert_eq!(rig.call_as("GET", "/healthz", &[], b"").status, 200);
    wait_for("patience", || (rig.get("/api/version").status == 200).then_some(()));
    // Whoever cleans up behind us asks a little, too.
    wait_for("room for more", || (rig.get("/api/threads").status == 200).then_some(()));
}

#[test]
fn garbage_is_no_request() {
    let rig = Rig::new();
    let bearer = format!("authorization: Bearer {}\r\nhost: localhost\r\n", rig.token);
    let garbage: Vec<Vec<u8>> = vec![
        b"\0\0\0\0\0\0".to_vec(),
        b"\xff\xfe\xfd\r\n\r\n".to_vec(),
        b"\r\n\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET /\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        format!("GET /api/ version HTTP/1.1\r\n{bearer}\r\n").into_bytes(),
        format!("GET /api/version HTTP/1.1\r\n{bearer}no colon\r\n\r\n").into_bytes(),
        format!("GET /api/version HTTP/1.1\r\n{bearer}a b: c\r\n\r\n").into_bytes(),
        format!("GET /api/version HTTP/1.1\r\n{bearer}x: a\0b\r\n\r\n").into_bytes(),
        format!("GET /api/version HTTP/1.1\r\n{bearer}x: a\r\n folded\r\n\r\n").into_bytes(),
        format!("GET /api/version HTTP/1.1\r\n{bearer}content-length : 3\r\n\r\nabc").into_bytes(),
        (0..10_000u32).flat_map(|number| (number.wrapping_mul(2_654_435_761)).to_le_bytes()).collect(),
    ];
    for bytes in garbage {
        let answer = say(&rig, &bytes);
        let got = status(&answer);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
        assert!(answer.is_empty() || (400..500).contains(&got) || got == 505, "{shown:?}: {answer}");
    }
    is_well(&rig);
}

#[test]
fn the_older_protocol_is_spoken_and_its_connection_closed() {
    let rig = Rig::new();
    let ask = |more: &str| {
        say(&rig, format!("GET /api/version HTTP/1.0\r\nauthorization: Bearer {}\r\n{more}\r\n", rig.token).as_bytes())
    };
    let answer = ask("host: localhost\r\n");
    assert!(status(&answer) == 200 && !answer.contains("chunked"), "{answer}");
    assert_eq!(status(&ask("")), 403, "nobody knows which host is meant");
    // A stream has an end even where it can't be said in pieces.
    let exec = "{\"command\":\"echo x\"}";
    let head = format!(
        "POST /api/threads/t/exec HTTP/1.0\r\nhost: localhost\r\nauthorization: Bearer {}\r\naccept: text/event-stream\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{exec}",
        rig.token,
        exec.len()
    );
    let answer = say(&rig, head.as_bytes());
    assert!(status(&answer) == 200 && answer.contains("event: exit"), "{answer}");
}

#[test]
fn absurd_pieces_are_refused() {
    let rig = Rig::new();
    let ask = |body: &str| {
        let head = request(&rig, "POST /api/threads", "transfer-encoding: chunked\r\nconnection: close\r\n");
        say(&rig, (head + body).as_bytes())
    };
    assert_eq!(status(&ask("2;ext=1\r\n{}\r\n0\r\n\r\n")), 201);
    let absurd = [
        "zz\r\n{}\r\n0\r\n\r\n".to_owned(),
        "-2\r\n{}\r\n0\r\n\r\n".to_owned(),
        "ffffffffffffffff\r\n{}\r\n0\r\n\r\n".to_owned(),
        "fffffffffffffffffffff\r\n{}\r\n0\r\n\r\n".to_owned(),
        "0x2\r\n{}\r\n0\r\n\r\n".to_owned(),
        "2\r\n{}0\r\n\r\n".to_owned(),
        "2\n{}\n0\n\n".to_owned(),
        "2\r\n{}\r\n".to_owned(),
        format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(100_000)),
        format!("0\r\n{}\r\n", "x: y\r\n".repeat(10_000)),
    ];
    let before = rig.get("/api/threads").is(200)["items"].as_array().unwrap().len();
    for body in absurd {
        let got = status(&ask(&body));
        let shown: String = body.chars().take(40).collect();
        assert!(got == 0 || (400..500).contains(&got), "{shown:?}: {got}");
    }
    assert_eq!(rig.get("/api/threads").is(200)["items"].as_array().unwrap().len(), before, "one of them was taken");
    is_well(&rig);
}

#[test]
fn one_request_is_never_taken_for_two() {
    let rig = Rig::new();
    let inner = format!(
        "POST /api/threads HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-length: 17\r\n\r\n{{\"id\":\"smuggled\"}}",
        rig.token
    );
    let chunk = format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
    let shapes = [
        // The length says that all of it is a body.
        format!("content-length: {}\r\ntransfer-encoding: chunked\r\n\r\n{chunk}", chunk.len()),
        format!("transfer-encoding: chunked\r\ncontent-length: {}\r\n\r\n{chunk}", chunk.len()),
        format!("transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n{chunk}"),
        format!("content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"),
        // Which of them?
        format!("content-length: 0\r\ncontent-length: {}\r\n\r\n{inner}", inner.len()),
        format!("content-length: {}\r\ncontent-length: 0\r\n\r\n{inner}", inner.len()),
        format!("content-length: 0, {}\r\n\r\n{inner}", inner.len()),
        format!("content-length: +{}\r\n\r\n{inner}", inner.len()),
        format!("transfer-encoding: xchunked\r\ncontent-length: {}\r\n\r\n{inner}", inner.len()),
        format!("transfer-encoding: identity\r\ncontent-length: {}\r\n\r\n{inner}", inner.len()),
        format!("transfer-encoding: chunked, identity\r\n\r\n{inner}"),
    ];
    for shape in shapes {
        let head = format!("POST /api/threads HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n", rig.token);
        let answer = say(&rig, (head + &shape).as_bytes());
        let shown: String = shape.chars().take(70).collect();
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{shown:?}: {answer}");
        assert!((400..500).contains(&status(&answer)), "{shown:?}: {answer}");
        assert_eq!(rig.get("/api/threads/smuggled").status, 404, "{shown:?}");
    }
}

#[test]
fn odd_paths_lead_nowhere() {
    let rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "t" })).is(201);
    let long = format!("/api/threads/{}", "x".repeat(10_000));
    let paths = [
        "/api/threads/%00",
        "/api/threads/t%00",
        "/api/threads/..%2f..%2fetc%2fpasswd",
        "/api/threads/%2e%2e",
        "/api/threads/..",
        "/api/threads/../tokens",
        "/api/threads/t/../t",
        "/api/threads/%ff",
        "/api/threads/%",
        "/api/threads/%zz",
        "/api/threads/t/",
        "/api/threads//",
        "//api/threads",
        "/API/threads",
        "/api/commands/%2e%2e/output/stdout",
        "/api/commands/a%2fb",
        "/api/terminals/..%2f/states",
        "/api/leases/%00/events",
        "/../../etc/passwd",
        "/docs/../../stead.toml",
        "/%2e%2e/%2e%2e/etc/passwd",
        "*",
        long.as_str(),
    ];
    for path in paths {
        let answer = say(&rig, request(&rig, &format!("GET {path}"), "connection: close\r\n").as_bytes());
        let shown: String = path.chars().take(60).collect();
        assert!([400, 404].contains(&status(&answer)), "{shown}: {answer}");
        assert!(!answer.contains("root:"), "{shown}: {answer}");
        assert!(
            status(&answer) == 400 && answer.ends_with("\r\n\r\n") || answer.contains("\"error\":{\"code\""),
            "{shown}: {answer}"
        );
    }
    for method in ["TRACE", "CONNECT", "PATCH", "BREW"] {
        let got =
            status(&say(&rig, request(&rig, &format!("{method} /api/threads"), "connection: close\r\n").as_bytes()));
        assert!([400, 405].contains(&got), "{method}: {got}");
    }
    is_well(&rig);
}

#[test]
fn no_token_or_secret_is_ever_in_the_log() {
    const SECRET: &str = "s3cr3t-that-nobody-sees";
    let mut rig = Rig::with_all("", &[], &[("STEAD_SERVER_LOG", "trace")]);
    let made = rig.post("/api/tokens", &json!({ "name": "a" })).is(201);
    let other = made["token"].as_str().unwrap().to_owned();
    let bearer = format!("Bearer {other}");
    rig.call_as("GET", "/api/threads", &[("authorization", &bearer)], b"").is(200);
    rig.call_as("GET", "/api/threads", &[("cookie", &format!("stead_token={other}"))], b"").is(200);
    rig.call_as("GET", &format!("/?token={other}"), &[], b"");
    rig.call_as("GET", &format!("/nowhere?token={other}"), &[("authorization", &bearer)], b"");
    rig.call_as("GET", &format!("/api/threads?token={other}"), &[("authorization", &bearer)], b"");
    rig.call_as("GET", &format!("/api/threads/{other}/session"), &[("authorization", &bearer)], b"");
    rig.put("/api/threads/t/env", &json!({ "secrets": { "S": SECRET } }));
    rig.exec("t", "true");
    rig.put("/api/threads/t/env", &json!({ "secrets": { "S": SECRET } })).is(200);
    rig.put("/api/threads/t/env", &json!({ "secrets": { "S B": SECRET } })).fails(400, "invalid_env_name");
    rig.exec("t", "[ -n \"$S\" ] && echo there");
    rig.exec("t", &format!("true {SECRET}"));
    let bad = format!("{{\"secrets\":{{\"S\":\"{SECRET}\"}},}}");
    rig.call("PUT", "/api/threads/t/env", &[("content-type", "application/json")], bad.as_bytes());
    rig.delete(&format!("/api/tokens/{}", made["id"].as_str().unwrap())).is(204);
    rig.call_as("GET", "/api/threads", &[("authorization", &bearer)], b"").fails(401, "unauthorized");
    let first = rig.token.clone();
    rig.terminate();
    let log = rig.log();
    assert!(log.contains("DEBUG") && log.lines().count() > 50, "the log is not at that level");
    for (what, text) in [("the first token", first.as_str()), ("a token", other.as_str()), ("a secret", SECRET)] {
        let line = log.lines().find(|line| line.contains(text));
        assert_eq!(line, None, "{what} is in the log");
        let digits = text.strip_prefix("stead_").unwrap_or(text);
        assert!(!log.contains(digits), "{what} is in the log, without its prefix");
    }
    rig.start();
}

#[test]
fn the_data_directory_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let rig = Rig::new();
    for (file, mode) in [("", 0o700), ("token", 0o600), ("stead.sock", 0o600)] {
        let found = std::fs::metadata(rig.data().join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "`{file}` is {found:o}");
    }
    let database = std::fs::metadata(rig.data().join("stead.db")).unwrap().permissions().mode() & 0o077;
    assert_eq!(database & 0o022, 0);
}
