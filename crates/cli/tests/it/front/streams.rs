//! Bytes in and out.

use super::Front;
use crate::rig::{said, wait};
use std::io::Write;
use std::process::Stdio;

#[test]
fn output_and_errors_are_passed_on_byte_for_byte() {
    let front = Front::new();
    let run = front.start(&["exec", r"printf 'a\0\377\200\n'; printf '\303' ; printf '\274\376' >&2; printf '\274'"]);
    assert_eq!(run.end_bytes(), (Some(0), b"a\0\xff\x80\n\xc3\xbc".to_vec(), b"\xbc\xfe".to_vec()));
    let numbers: String = (1..=300_000).flat_map(|number: u32| [number.to_string(), "\n".to_owned()]).collect();
    assert!(front.run(&["exec", "seq 300000"]) == said(0, &numbers, ""));
}

#[test]
fn state_lasts_from_one_call_to_the_next_and_threads_are_apart() {
    let front = Front::new();
    assert_eq!(front.run(&["exec", "cd /usr; export A=1; f() { echo \"$A $PWD\"; }"]), said(0, "", ""));
    assert_eq!(front.run(&["exec", "f"]), said(0, "1 /usr\n", ""));
    assert_eq!(front.run(&["exec", "-t", "other", "echo \"<$A>\""]), said(0, "<>\n", ""));
    let mut command = front.stead(["exec", "A=2"]);
    command.env("STEAD_THREAD", "other");
    assert_eq!(front.rig.run(command), said(0, "", ""));
    assert_eq!(front.run(&["exec", "-t", "other", "echo $A"]), said(0, "2\n", ""));
}

#[test]
fn one_argument_is_a_line_and_several_are_words() {
    let front = Front::new();
    assert_eq!(front.run(&["exec", "echo a; echo b"]), said(0, "a\nb\n", ""));
    assert_eq!(
        front.run(&["exec", "--", "echo", "a;", "echo", "$HOME", "it's", "-n"]),
        said(0, "a; echo $HOME it's -n\n", "")
    );
    assert_eq!(front.run(&["exec", "printf", "<%s>", "", "a b"]), said(0, "<><a b>", ""));
}

#[test]
fn directory_and_variables_are_for_one_command() {
    let front = Front::new();
    let got = front.run(&["exec", "--cwd", "/usr", "--env", "A=x y", "--env", "B=", "echo \"$PWD <$A> <${B-unset}>\""]);
    assert_eq!(got, said(0, "/usr <x y> <>\n", ""));
    assert_eq!(front.run(&["exec", "echo \"<$A> <${B-unset}>\""]), said(0, "<> <unset>\n", ""));
}

#[test]
fn input_from_a_pipe_reaches_the_command_with_its_end() {
    let front = Front::new();
    let mut input = vec![0_u8; 300_000];
    let mut seed = 7_u32;
    for byte in &mut input {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = seed.to_be_bytes()[0];
    }
    let mut command = front.stead(["exec", "cat"]);
    let (theirs, mut ours) = std::io::pipe().unwrap();
    command.stdin(theirs);
    let run = front.rig.start(command);
    ours.write_all(&input).unwrap();
    drop(ours);
    let (code, stdout, stderr) = run.end_bytes();
    assert_eq!((code, stderr), (Some(0), Vec::new()));
    assert!(stdout == input);
}

#[test]
fn input_from_a_file_is_text_or_bytes_and_none_is_the_end() {
    let front = Front::new();
    let file = front.rig.scratch().join("input");
    for content in [&b"one\ntwo"[..], b"\xff\0", b""] {
        std::fs::write(&file, content).unwrap();
        let mut command = front.stead(["exec", "cat; echo $?"]);
        command.stdin(std::fs::File::open(&file).unwrap());
        let (code, stdout, _) = front.rig.start(command).end_bytes();
        assert_eq!((code, stdout), (Some(0), [content, b"0\n"].concat()));
    }
    assert_eq!(front.run(&["exec", "cat; echo end"]), said(0, "end\n", ""), "from nowhere");
    let mut command = front.stead(["exec", "-n", "cat; echo end"]);
    command.stdin(std::fs::File::open(&file).unwrap());
    assert_eq!(front.rig.run(command), said(0, "end\n", ""));
}

#[test]
fn input_that_never_ends_keeps_nobody() {
    let front = Front::new();
    let mut command = front.stead(["exec", "read -r line; echo \"<$line>\""]);
    let (theirs, mut ours) = std::io::pipe().unwrap();
    command.stdin(theirs);
    let run = front.rig.start(command);
    ours.write_all(b"first\nsecond\n").unwrap();
    assert_eq!(run.end(), said(0, "<first>\n", ""));
    drop(ours);
}

#[test]
fn a_reader_that_has_read_enough_ends_the_command() {
    let front = Front::new();
    assert_eq!(front.run(&["exec", "true"]).code, Some(0));
    let mut command = front.stead(["exec", "yes"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(wait(&mut child).code(), Some(141));
}

#[test]
fn a_script_gets_the_whole_record() {
    let front = Front::new();
    let said = front.run(&["exec", "--json", "echo out; echo err >&2; (exit 3)"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(3), ""));
    let record: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(record["stdout"], "out\n");
    assert_eq!((&record["stderr"], &record["exit_code"]), (&"err\n".into(), &3.into()));
    assert_eq!((&record["status"], &record["thread_id"]), (&"exited".into(), &"default".into()));
}

#[test]
fn one_id_runs_once() {
    let front = Front::new();
    for _ in 0..2 {
        assert_eq!(front.run(&["exec", "--id", "once", "echo x >> log; wc -l < log"]), said(0, "1\n", ""));
    }
    let got = front.run(&["exec", "--id", "once", "echo other"]);
    assert_eq!((got.code, got.stdout.as_str()), (Some(125), ""));
    assert!(got.stderr.starts_with("stead: ") && got.stderr.contains("once"), "{got:?}");
}

#[test]
fn what_was_left_running_is_followed_later() {
    let front = Front::new();
    let mut gate = front.rig.gate("gate");
    let text = format!("echo one; echo err >&2; {}; echo two; sleep 0.01 && echo late &", gate.wait());
    let id = front.run(&["exec", "--detach", &text]).stdout.trim().to_owned();
    assert!(id.starts_with("cmd-"), "{id}");
    let follower = front.start(&["logs", "-f", &id]);
    follower.wait_for_stdout("one\n");
    assert_eq!(front.run(&["logs", &id]), said(0, "one\n", "err\n"), "what there is now");
    gate.release();
    assert_eq!(follower.end(), said(0, "one\ntwo\n", "err\n"));
    let all = front.run(&["logs", &id]);
    assert_eq!(all, said(0, "one\ntwo\n", "err\n"));
    let since = front.run(&["logs", "--since", "3", &id]);
    assert!("one\ntwo\n".ends_with(&since.stdout) && since.stdout != all.stdout, "{since:?}");
}
