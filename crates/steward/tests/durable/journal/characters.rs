//! Characters of several bytes: a chunk doesn't end inside one.

use super::info;
use crate::rig::{Gate, Rig, Rng, TestShell, kill, kill_steward, rounds, seeds, steward_of, wait_for};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stead_model::frame::Stream;
use stead_model::ids::CommandId;
use stead_steward::client::Told;

/// The pieces of standard output.
fn chunks(rig: &Rig, command: &CommandId) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    rig.client()
        .follow_from(command, 0, true, &mut |told| {
            if let Told::Output(chunk) = told
                && chunk.stream == Stream::Stdout
            {
                chunks.push(chunk.bytes);
            }
        })
        .unwrap();
    chunks
}

#[track_caller]
fn are_whole(chunks: &[Vec<u8>], text: &[u8], what: &str) {
    assert!(chunks.concat() == text, "{what}: the bytes differ");
    let cut = chunks.iter().rev().skip(1).find(|chunk| std::str::from_utf8(chunk).is_err());
    assert!(cut.is_none(), "{what}: a chunk ends inside a character: {:?}", cut.map(|c| c[..c.len().min(20)].to_vec()));
}

#[test]
fn a_great_deal_of_text_is_cut_between_characters() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let text = "x".to_owned() + &"€".repeat(1_000_000);
    let path = rig.scratch().join("text");
    std::fs::write(&path, &text).unwrap();
    let command = shell.run(format!("cat '{}'", path.display())).info.command;
    are_whole(&chunks(&rig, &command), text.as_bytes(), "a great deal");
}

#[test]
fn the_beginning_of_a_character_waits_for_its_rest_or_for_the_end() {
    let rig = Rig::new();
    let mut gate = Gate::new(&rig, "gate");
    let mut shell = rig.shell();
    let text =
        format!("printf 'a\\xe2\\x82'; {0}; printf '\\xacb\\xf0\\x9f'; {0}; printf c; printf '\\xc3'", gate.wait());
    let exec = shell.exec(text);
    shell.submit(exec.clone());
    let noted = |shell: &mut TestShell, bytes: u64| {
        wait_for("what it wrote", || (info(&mut shell.client, &exec.command).stdout_bytes == bytes).then_some(()));
    };
    noted(&mut shell, 1);
    // Who comes next holds it back, too.
    kill_steward(&rig);
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    noted(&mut shell, 1);
    gate.release();
    noted(&mut shell, 5);
    gate.release();
    let outcome = shell.end_of(&exec.command);
    assert_eq!(outcome.stdout, b"a\xe2\x82\xacb\xf0\x9fc\xc3");
    let chunks = chunks(&rig, &exec.command);
    assert_eq!(chunks[..2], [b"a".to_vec(), "€b".into()], "{chunks:?}");
}

#[test]
fn what_was_held_back_is_told_when_the_last_who_could_go_on_is_gone() {
    let rig = Rig::new();
    let mut gate = Gate::new(&rig, "gate");
    let mut shell = rig.shell();
    let late = shell.exec(format!("{{ {}; printf 'l\\xe2\\x82'; }} & printf 'n\\xc3'", gate.wait()));
    let outcome = shell.run_exec(late.clone());
    assert_eq!(outcome.stdout, b"n\xc3");
    gate.release();
    assert_eq!(shell.silence_of(&late.command).stdout, b"n\xc3l\xe2\x82");
    // A shell that is killed with it, and one that dies with everybody.
    let died = shell.exec("printf 'd\\xc3'; kill -9 $$");
    assert_eq!(shell.run_exec(died).stdout, b"d\xc3");
    let lost = shell.exec("printf 'l\\xc3'; sleep 1000");
    shell.submit(lost.clone());
    wait_for("its first byte", || (info(&mut shell.client, &lost.command).stdout_bytes == 1).then_some(()));
    crate::rig::kill_both(&rig);
    let mut shell = TestShell { client: rig.client(), id: shell.id };
    assert_eq!(shell.end_of(&lost.command).stdout, b"l\xc3");
}

/// Characters of all lengths.
fn text(rng: &mut Rng, length: u64) -> String {
    let ranges = [(0x20, 0x7e), (0xa0, 0x7ff), (0x800, 0xd7ff), (0x1_0000, 0x10_ffff)];
    let character = |rng: &mut Rng| {
        let (from, to) = ranges[usize::try_from(rng.below(4)).unwrap()];
        char::from_u32(from + u32::try_from(rng.below(u64::from(to - from))).unwrap()).unwrap()
    };
    (0..length).map(|_| character(rng)).collect()
}

#[test]
fn text_in_random_pieces_is_cut_between_characters_however_often_the_steward_dies() {
    for seed in seeds() {
        let rig = Rig::new();
        let shell = rig.shell();
        let keeper = rig.keeper_pid();
        let mut rng = Rng::new(seed);
        for _ in 0..rounds(4) {
            let text = text(&mut rng, 300);
            let path = rig.scratch().join("text");
            std::fs::write(&path, &text).unwrap();
            let (mut pieces, mut left) = (String::new(), text.len() as u64);
            while left > 0 {
                let piece = (1 + rng.below(12)).min(left);
                let to = if rng.below(8) == 0 { "; printf e >&2" } else { "" };
                write!(pieces, "head -c {piece}{to}; ").unwrap();
                left -= piece;
            }
            let exec = shell.exec(format!("{{ {pieces} }} < '{}'", path.display()));
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut rng = Rng::new(seed + 1);
                    while !over.load(Ordering::Relaxed) {
                        std::thread::park_timeout(Duration::from_millis(rng.below(30)));
                        steward_of(keeper).into_iter().for_each(kill);
                    }
                });
                while rig.client().exec(exec.clone()).is_err() {}
                over.store(true, Ordering::Relaxed);
            });
            are_whole(&chunks(&rig, &exec.command), text.as_bytes(), &format!("seed {seed}"));
        }
    }
}
