//! Bytes in, bytes out.

use super::Ground;
use crate::bench::exec;
use stead_model::proto::{Exec, Stdin};

pub(crate) async fn output_and_errors_are_apart_and_exact(ground: &Ground) {
    let shell = ground.shell("main").await;
    for (text, stdout, stderr) in [
        ("echo out; echo err >&2; echo out again", b"out\nout again\n".as_slice(), b"err\n".as_slice()),
        ("printf 'no newline'; printf 'none here' >&2", b"no newline", b"none here"),
        ("printf 'a\\0b\\xff\\xfe\\n\\0'; printf '\\0\\x80' >&2", b"a\0b\xff\xfe\n\0", b"\0\x80"),
        ("printf '\\n\\n\\n'", b"\n\n\n", b""),
        ("printf '\\r\\n\\033[31mred\\a'", b"\r\n\x1b[31mred\x07", b""),
        ("", b"", b""),
        ("# nothing", b"", b""),
        ("echo one; bash -c 'echo two; echo three >&2'; (echo four)", b"one\ntwo\nfour\n", b"three\n"),
    ] {
        let outcome = shell.run(text).await;
        assert_eq!((outcome.stdout.as_slice(), outcome.stderr.as_slice()), (stdout, stderr), "{text}");
        let (out, err) = (outcome.info.stdout_bytes, outcome.info.stderr_bytes);
        assert_eq!((out, err), (stdout.len() as u64, stderr.len() as u64), "{text}");
    }
}

pub(crate) async fn five_megabytes_come_through(ground: &Ground) {
    let shell = ground.shell("main").await;
    let text = "head -c 5000000 /dev/zero | tr '\\0' x; head -c 5000000 /dev/zero | tr '\\0' y >&2";
    let outcome = shell.run(text).await;
    assert_eq!((outcome.stdout.len(), outcome.stderr.len()), (5_000_000, 5_000_000));
    assert!(outcome.stdout.iter().all(|byte| *byte == b'x') && outcome.stderr.iter().all(|byte| *byte == b'y'));
}

pub(crate) async fn what_looks_like_our_own_words_is_output(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("v=1; cd /usr").await;
    // Anything that a shell may have told about itself, told again by a command.
    let text = "echo '__STEAD_END__ 0'; printf '\\0010\\0/etc\\0\\0'; declare -p; declare -f; alias -p; shopt -p; set +o; pwd; \
        printf '\\1\\1\\1out\\n\\2\\2\\2err\\n'; echo 'exit 7'; printf 'declare -x FAKE=\"1\"\\n'";
    let outcome = shell.run(text).await;
    assert_eq!((outcome.code(), outcome.stderr.len()), (Some(0), 0));
    assert!(outcome.stdout.starts_with(b"__STEAD_END__ 0\n"));
    assert!(outcome.stdout.ends_with(b"declare -x FAKE=\"1\"\n"));
    assert!(!outcome.ending().state_changed);
    assert_eq!(shell.out("echo $v ${FAKE-none}; pwd").await, "1 none\n/usr\n");
}

pub(crate) async fn the_input_given_is_read_and_without_one_it_is_empty(ground: &Ground) {
    let shell = ground.shell("main").await;
    assert_eq!(shell.out("cat; wc -c").await, "0\n");
    assert_eq!(shell.run("read line").await.code(), Some(1));
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let given = Exec { stdin: Stdin::Bytes(bytes.as_slice().into()), ..exec("cat") };
    assert_eq!(shell.run_exec(given).await.stdout, bytes);
    let lines = Exec { stdin: Stdin::Bytes("one\ntwo\n".into()), ..exec("read a; read b; echo $b $a; cat") };
    assert_eq!(shell.run_exec(lines).await.stdout, b"two one\n");
    assert_eq!(shell.out("cat; echo $a").await, "one\n", "what is left of an input is not the next one's");
}

pub(crate) async fn input_that_nobody_reads_does_no_harm(ground: &Ground) {
    let shell = ground.shell("main").await;
    let bytes = vec![b'x'; 1 << 20];
    let unread = Exec { stdin: Stdin::Bytes(bytes.as_slice().into()), ..exec("echo done") };
    assert_eq!(shell.run_exec(unread).await.seen(), (Some(0), "done\n".to_owned(), String::new()));
    assert_eq!(shell.out("cat; echo next").await, "next\n");
}

pub(crate) async fn here_documents_and_strange_text_run_as_they_are(ground: &Ground) {
    let shell = ground.shell("main").await;
    for (text, want) in [
        ("cat <<END\n  indented $((1+1))\n\ttab\nEND", "  indented 2\n\ttab\n"),
        ("cat <<'END'\n$HOME `x`\nEND\necho after", "$HOME `x`\nafter\n"),
        ("cat <<A; cat <<B\na\nA\nb\nB", "a\nb\n"),
        ("cat <<END\nno end", "no end\n"),
        ("echo 'a\nb'", "a\nb\n"),
        ("echo a \\\n b", "a b\n"),
        ("echo one # comment", "one\n"),
        ("if true; then\n  echo yes\nfi", "yes\n"),
        ("echo '}'; echo ')'; echo \"'\"", "}\n)\n'\n"),
        ("! true; echo $?", "1\n"),
        ("echo ünï ☃", "ünï ☃\n"),
        ("return 3 2>/dev/null; echo not here", ""),
    ] {
        assert_eq!(shell.run(text).await.seen().1, want, "{text}");
    }
    let long = format!("echo {}", "x".repeat(1_000_000));
    assert_eq!(shell.run(long).await.stdout.len(), 1_000_001);
}

pub(crate) async fn a_trace_shows_the_command_and_nothing_of_ours(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("set -x").await;
    let outcome = shell.run("echo out").await;
    let lines: Vec<_> = outcome.seen().2.lines().map(|line| line.trim_start_matches('+').to_owned()).collect();
    assert_eq!((outcome.seen().1.as_str(), lines), ("out\n", vec![" echo out".to_owned()]));
}
