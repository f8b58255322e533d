//! What is listed, shown and refused, word for word but for ids and times.

use super::Front;
use crate::help::compare;
use crate::rig::said;
use std::path::Path;

/// Ids, times, and the widths that depend on them, are not the same twice.
fn normal(front: &Front, text: &str) -> String {
    let scratch = front.rig.scratch();
    let text = text.replace(scratch.to_str().unwrap(), "SCRATCH");
    let line = |line: &str| {
        let indent: String = line.chars().take_while(|c| *c == ' ').collect();
        let mut words: Vec<String> = line.split(' ').filter(|word| !word.is_empty()).map(word).collect();
        // `now` and `3s ago` are the same thing, as are `in 59m` and `in 1h`.
        words.dedup_by(|second, first| second == "ago" && first == "TIME");
        indent + &words.join(" ") + "\n"
    };
    text.lines().map(line).collect()
}

fn word(word: &str) -> String {
    let (inner, end) = match word.char_indices().find(|(_, c)| [',', ')', ':'].contains(c)) {
        Some((at, _)) if at > 0 => word.split_at(at),
        _ => (word, ""),
    };
    let made_up = inner
        .rsplit_once('-')
        .filter(|(_, digits)| digits.len() >= 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if let Some((kind, _)) = made_up {
        return format!("{kind}-ID{end}");
    }
    let time = inner.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let is_time = time.starts_with(|c: char| c.is_ascii_digit())
        && time.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        && ["ms", "s", "m", "h", "d"].contains(&&inner[time.len()..]);
    if is_time || inner == "now" { format!("TIME{end}") } else { word.to_owned() }
}

#[track_caller]
fn check(front: &Front, file: &str, arguments: &[&str], code: i32) {
    let got = front.run(arguments);
    assert_eq!(got.code, Some(code), "{got:?}");
    let text =
        format!("$ stead {}\n{}--\n{}", arguments.join(" "), normal(front, &got.stdout), normal(front, &got.stderr));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots/front").join(file);
    compare(&path, &text);
}

#[test]
fn listings_are_as_committed() {
    let front = Front::new();
    check(&front, "ls-empty.txt", &["ls"], 0);
    assert_eq!(front.run(&["exec", "cd /usr"]).code, Some(0));
    assert_eq!(front.run(&["exec", "-t", "build", "--timeout", "10ms", "sleep 5\n# two lines"]).code, Some(124));
    assert_eq!(front.run(&["exec", "-t", "build", "(exit 3)"]).code, Some(3));
    assert_eq!(front.run(&["exec", "-t", "build", "kill -9 $$"]).code, Some(137));
    check(&front, "ls.txt", &["ls"], 0);
    check(&front, "show.txt", &["show", "build"], 0);
    check(&front, "history.txt", &["history", "-t", "build"], 0);
    check(&front, "sessions.txt", &["sessions"], 0);
    check(&front, "leases.txt", &["leases"], 0);
    check(&front, "orphans.txt", &["orphans"], 0);
    check(&front, "pause.txt", &["pause", "build"], 0);
    check(&front, "resume.txt", &["resume", "build"], 0);
    for listing in ["ls", "history", "sessions", "leases", "orphans", "providers"] {
        let document = front.json(&[listing, "--json"]);
        assert!(document["items"].is_array(), "{listing}: {document}");
    }
    let shown = front.json(&["show", "--json", "build"]);
    assert_eq!((&shown["thread"]["id"], &shown["terminals"][0]["name"]), (&"build".into(), &"default".into()));
    let local = front.run(&["providers"]).stdout;
    assert!(local.lines().any(|line| line.starts_with("local ") && line.contains(" yes ")), "{local}");
}

#[test]
fn refusals_say_what_to_do_next() {
    let front = Front::new();
    assert_eq!(front.run(&["exec", "true"]).code, Some(0));
    check(&front, "no-thread.txt", &["show", "nobody"], 125);
    check(&front, "no-command.txt", &["logs", "cmd-0123456789ab"], 125);
    check(&front, "no-terminal-to-ask-on.txt", &["rm", "default"], 125);
    check(&front, "rm-nobody.txt", &["rm", "-f", "nobody"], 125);
    check(&front, "bad-variable.txt", &["env", "1A=x"], 125);
    check(&front, "https.txt", &["ls", "--url", "https://box"], 125);
    check(&front, "no-url.txt", &["ls", "--url", "box:7878"], 125);
}

#[test]
fn a_thread_is_removed_and_gone() {
    let front = Front::new();
    assert_eq!(front.run(&["exec", "-t", "a", "true"]).code, Some(0));
    assert_eq!(front.run(&["rm", "-f", "a"]), said(0, "a\n", ""));
    assert_eq!(front.run(&["show", "a"]).code, Some(125));
}

#[test]
fn variables_are_set_unset_and_kept_secret() {
    let front = Front::new();
    assert_eq!(front.run(&["exec", "export OLD=1"]).code, Some(0));
    assert_eq!(front.run(&["env", "A=x y", "--unset", "OLD"]), said(0, "", ""));
    assert_eq!(front.run(&["exec", "echo \"$A <${OLD-unset}>\""]), said(0, "x y <unset>\n", ""));
    let secret = front.rig.scratch().join("secret");
    std::fs::write(&secret, "hidden thing\n").unwrap();
    let mut command = front.stead(["env", "--secret", "KEY"]);
    command.stdin(std::fs::File::open(&secret).unwrap());
    assert_eq!(front.rig.run(command), said(0, "", ""));
    assert_eq!(front.run(&["exec", "echo ${#KEY}"]), said(0, "12\n", ""));
    let shown = front.run(&["env"]);
    assert!(shown.stdout.contains("A=x y\n") && shown.stdout.contains("KEY=***\n"), "{shown:?}");
    assert!(!shown.stdout.contains("hidden"), "{shown:?}");
}

#[test]
fn tokens_are_made_listed_and_taken_back() {
    let front = Front::new();
    let made = front.run(&["token", "create", "ci"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stderr.contains("not shown again"), "{made:?}");
    let listed = front.json(&["token", "ls", "--json"]);
    let of_ci = listed["items"].as_array().unwrap().iter().find(|item| item["name"] == "ci").unwrap();
    let id = of_ci["id"].as_str().unwrap();
    assert!(!listed.to_string().contains(made.stdout.trim()), "the token itself is not kept");
    assert_eq!(front.run(&["token", "revoke", id]), said(0, &format!("{id}\n"), ""));
}

#[test]
fn a_fork_has_the_state_and_a_copy_of_the_files() {
    let front = Front::new();
    assert_eq!(front.run(&["exec", "-t", "a", "v=kept; echo one > file"]).code, Some(0));
    assert_eq!(front.run(&["fork", "a", "b"]), said(0, "b\n", ""));
    assert_eq!(front.run(&["exec", "-t", "b", "echo $v; cat file; echo two > file"]), said(0, "kept\none\n", ""));
    assert_eq!(front.run(&["exec", "-t", "a", "cat file"]), said(0, "one\n", ""));
}
