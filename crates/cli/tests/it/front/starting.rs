//! A server that is started when it is needed, and only then.

use super::Front;
use crate::rig::{Run, said};

#[test]
fn ten_calls_at_once_start_one_server() {
    let front = Front::new();
    let runs: Vec<Run> =
        (0..10).map(|number| front.start(&["exec", "-t", &format!("t{number}"), "echo $PPID"])).collect();
    for run in runs {
        let got = run.end();
        assert_eq!((got.code, got.stderr.as_str()), (Some(0), ""));
    }
    let data = front.data();
    let serves = |words: &[u8]| {
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        words.get(1) == Some(&&b"serve"[..]) && words.contains(&data.to_str().unwrap().as_bytes())
    };
    let processes =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    assert_eq!(processes.filter(|words| serves(words)).count(), 1);
}

#[test]
fn the_server_is_away_from_whoever_started_it() {
    let front = Front::new();
    assert_eq!(front.run(&["exec", "true"]).code, Some(0));
    let server = front.server().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{server}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    assert_eq!(fields[3], server.to_string(), "a session of its own: {stat}");
    assert_eq!(fields[4], "0", "no terminal: {stat}");
    assert_eq!(std::fs::read_link(format!("/proc/{server}/cwd")).unwrap(), front.data().canonicalize().unwrap());
}

#[test]
fn a_server_that_fails_shows_its_last_words() {
    let front = Front::new();
    front.configure("[server]\nlisten = 'nowhere'\n");
    let got = front.run(&["exec", "true"]);
    assert_eq!((got.code, got.stdout.as_str()), (Some(125), ""));
    assert!(
        got.stderr.starts_with("stead: the server that was started did not come up; the last it said:\n  | "),
        "{got:?}"
    );
    assert!(got.stderr.contains("server.listen") && got.stderr.contains("server.log"), "{got:?}");
}

#[test]
fn a_server_elsewhere_is_never_started() {
    let front = Front::new();
    let mut command = front.stead(["ls"]);
    command.env("STEAD_URL", "http://127.0.0.1:1");
    let got = front.rig.run(command);
    assert_eq!(got.code, Some(125));
    assert!(got.stderr.starts_with("stead: no server answers at `http://127.0.0.1:1`: "), "{got:?}");
    assert!(got.stderr.contains("STEAD_URL"), "{got:?}");
    assert!(!front.data().exists(), "nothing was made");
}

#[test]
fn asking_about_a_server_starts_none() {
    let front = Front::new();
    let got = front.run(&["version"]);
    assert_eq!((got.code, got.stderr.as_str()), (Some(0), ""));
    assert!(got.stdout.contains("no server answers at "), "{got:?}");
    assert!(front.run(&["doctor"]).stdout.contains("\nserver: none at "));
    assert!(!front.data().join("stead.sock").exists());
    assert_eq!(front.run(&["exec", "echo up"]), said(0, "up\n", ""));
    assert!(front.run(&["version"]).stdout.contains("\nserver 0."));
    assert!(front.run(&["doctor"]).stdout.contains(" answers at "));
}

#[test]
fn over_http_a_token_is_wanted_and_the_message_says_where_it_is() {
    let front = Front::new();
    assert_eq!(front.run(&["exec", "echo made"]).code, Some(0));
    let log = crate::rig::text_of(&front.data().join("server.log"));
    let address = log.lines().find_map(|line| line.split_once("http://")?.1.split_once('/')).unwrap().0.to_owned();
    let mut command = front.stead(["ls"]);
    command.env("STEAD_URL", format!("http://{address}"));
    let got = front.rig.run(command);
    assert_eq!(got.code, Some(125));
    assert!(got.stderr.contains("STEAD_TOKEN") && got.stderr.contains("token"), "{got:?}");
    let token = std::fs::read_to_string(front.data().join("token")).unwrap();
    let mut command = front.stead(["exec", "echo over http; cat"]);
    command.env("STEAD_URL", format!("http://{address}")).env("STEAD_TOKEN", token.trim());
    assert_eq!(front.rig.run(command), said(0, "over http\n", ""));
}
