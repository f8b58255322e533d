//! Bytes in, bytes out.

use super::{Bench, in_both};
use crate::rig::{Gate, code, seen};
use stead_model::proto::{Exec, Stdin};
use stead_model::state::Bytes;

in_both! {
    standard_input_is_empty_or_what_was_given
    output_is_byte_exact_and_the_streams_are_apart
    a_background_child_does_not_hold_its_command_and_its_late_output_is_kept
    programs_that_read_get_what_is_theirs_and_nothing_of_ours
    nothing_of_ours_is_in_a_childs_descriptors
    overlays_do_not_stick
}

fn standard_input_is_empty_or_what_was_given(bench: &mut Bench) {
    assert_eq!(bench.shell.out("cat; read x || echo \"nothing to read\""), "nothing to read\n");
    let given =
        Exec { stdin: Stdin::Bytes(Bytes::from("one\ntwo\n")), ..bench.shell.exec("read first; cat; echo $first") };
    assert_eq!(seen(&bench.shell.run_exec(given)), (Some(0), "two\none\n".to_owned(), String::new()));
    assert_eq!(bench.shell.out("cat"), "");
}

fn output_is_byte_exact_and_the_streams_are_apart(bench: &mut Bench) {
    let every: Vec<u8> = (0..=255).collect();
    let octal: String = every.iter().fold(String::new(), |text, byte| text + &format!("\\{byte:03o}"));
    let outcome = bench.shell.run(format!("printf '{octal}'; printf 'no newline' >&2"));
    assert_eq!((code(&outcome), outcome.stdout, outcome.stderr), (Some(0), every, b"no newline".to_vec()));
    let outcome = bench.shell.run("yes 0123456789abcdef | head -c 3000000");
    let expected = &b"0123456789abcdef\n".repeat(200_000)[..3_000_000];
    let differs = outcome.stdout.iter().zip(expected).position(|(got, expected)| got != expected);
    let around = differs
        .map(|at| outcome.stdout[at.saturating_sub(40)..outcome.stdout.len().min(at + 40)].escape_ascii().to_string());
    assert_eq!((code(&outcome), outcome.stdout.len(), differs, around), (Some(0), expected.len(), None, None));
}

fn a_background_child_does_not_hold_its_command_and_its_late_output_is_kept(bench: &mut Bench) {
    let mut gate = Gate::new(&bench.rig, "gate");
    let exec = bench.shell.exec(format!("({}; echo late) & echo now", gate.wait()));
    let command = exec.command.clone();
    let outcome = bench.shell.run_exec(exec);
    assert_eq!(seen(&outcome), (Some(0), "now\n".to_owned(), String::new()));
    assert!(outcome.info.ending.unwrap().streams_open);
    assert_eq!(bench.shell.out("echo next"), "next\n");
    gate.release();
    assert_eq!(bench.shell.silence_of(&command).stdout, b"now\nlate\n");
}

/// Busybox runs its own programs without executing anything, with whatever its buffers hold.
fn programs_that_read_get_what_is_theirs_and_nothing_of_ours(bench: &mut Bench) {
    let cases = [
        ("echo abc | wc -c", "4\n"),
        ("echo abc | grep -c ''", "1\n"),
        ("printf 'b\\na\\n' | sort", "a\nb\n"),
        ("echo abc | head -n 5", "abc\n"),
        ("echo abc | sed s/b/x/", "axc\n"),
        ("wc -c", "0\n"),
        ("head -n 1 </dev/null", ""),
        ("echo abc | tail -n 5", "abc\n"),
    ];
    let wrong: Vec<_> = cases
        .iter()
        .map(|(text, expected)| (*text, *expected, seen(&bench.shell.run(*text))))
        .filter(|(_, expected, seen)| seen.1 != *expected)
        .collect();
    assert_eq!(wrong, Vec::new());
}

fn nothing_of_ours_is_in_a_childs_descriptors(bench: &mut Bench) {
    // The fourth is the directory that `ls` reads.
    assert_eq!(bench.shell.out("/bin/ls /proc/self/fd"), "0\n1\n2\n3\n");
}

fn overlays_do_not_stick(bench: &mut Bench) {
    bench.shell.out("cd /; over=before");
    let exec = bench.shell.exec("pwd; printenv over; inside=1");
    let over = vec![(Bytes::from("over"), Bytes::from("it's on top"))];
    let outcome = bench.shell.run_exec(Exec { cwd: Some(Bytes::from("usr")), env: over, ..exec });
    assert_eq!(seen(&outcome), (Some(0), "/usr\nit's on top\n".to_owned(), String::new()));
    assert_eq!(
        bench.shell.out("pwd; echo $over $inside; printenv over || echo unexported"),
        "/\nbefore 1\nunexported\n"
    );
}
