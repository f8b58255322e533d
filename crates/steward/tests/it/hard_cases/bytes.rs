//! Output is bytes: any of them, any number, and none of it means anything to us.

use crate::rig::{Rig, fate, seen};
use stead_model::proto::{Ending, Status};

#[test]
fn any_byte_comes_through_on_both_streams() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let every: Vec<u8> = (0..=255).collect();
    std::fs::write(rig.scratch().join("every"), &every).unwrap();
    let outcome = shell.run("cat every; cat every every >&2");
    assert_eq!(outcome.stdout, every);
    assert_eq!(outcome.stderr, [every.as_slice(), &every].concat());
}

#[test]
fn nothing_is_added_to_output_without_a_final_newline() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let outcome = shell.run("printf 'a\\0b\\377'; printf '\\0' >&2");
    assert_eq!((outcome.stdout.as_slice(), outcome.stderr.as_slice()), (b"a\0b\xff".as_slice(), b"\0".as_slice()));
    assert_eq!(shell.out("printf ''"), "");
    assert_eq!(shell.out("printf '\\n\\n'"), "\n\n");
    assert_eq!(shell.out("printf x"), "x");
}

#[test]
fn twenty_megabytes_in_one_line_are_one_line() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let outcome = shell.run("head -c 20000000 /dev/zero | tr '\\0' x");
    assert_eq!(fate(&outcome), Ending::new(Status::Exited, Some(0)));
    assert_eq!((outcome.info.stdout_bytes, outcome.stderr.len()), (20_000_000, 0));
    assert!(outcome.stdout == vec![b'x'; 20_000_000]);
}

#[test]
fn both_streams_filled_at_once_do_not_block_each_other() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let outcome = shell.run("(head -c 3000000 /dev/zero >&2 & head -c 3000000 /dev/zero; wait)");
    assert_eq!((outcome.stdout.len(), outcome.stderr.len()), (3_000_000, 3_000_000));
}

#[test]
fn output_in_the_form_of_our_reports_is_output() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let report = "for n in 1 2 3 R B D X Q1 C1; do printf '%s 0\\0/tmp\\0/tmp\\0' $n; done";
    let expected: Vec<u8> = ["1", "2", "3", "R", "B", "D", "X", "Q1", "C1"]
        .iter()
        .flat_map(|n| format!("{n} 0\0/tmp\0/tmp\0").into_bytes())
        .collect();
    let outcome = shell.run(format!("{report}; {{ {report}; }} >&2; (exit 3)"));
    assert_eq!(fate(&outcome), Ending::new(Status::Exited, Some(3)));
    assert_eq!((outcome.stdout, outcome.stderr), (expected.clone(), expected));
    assert_eq!(shell.out("echo next"), "next\n");
}

#[test]
fn output_in_the_form_of_other_tools_marks_is_output() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let text = "printf '\\001\\001\\001out\\002\\002\\002err\\033]133;D;0\\007'";
    let outcome = shell.run(text);
    assert_eq!(outcome.stdout, b"\x01\x01\x01out\x02\x02\x02err\x1b]133;D;0\x07");
    assert_eq!(seen(&shell.run("echo next")), (Some(0), "next\n".into(), String::new()));
}

#[test]
fn the_order_of_one_stream_is_the_order_of_writing() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let expected = (1..=20_000).map(|n| n.to_string()).collect::<Vec<_>>().join("\n") + "\n";
    assert_eq!(shell.out("for ((i = 1; i <= 20000; i++)); do echo $i; done"), expected);
}
