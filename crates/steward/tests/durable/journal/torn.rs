//! A tail that was cut or overwritten while nobody was there: whole records count, the rest never happened.

use super::{info, printing, ran};
use crate::killing;
use crate::rig::{Rig, Rng, TestShell, kill, kill_steward, rounds, seeds, seen, wait_for};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use stead_model::ids::CommandId;
use stead_model::proto::{FaultCode, Request, Status};
use stead_model::record::{MAGIC, Record, Records};
use stead_steward::client::Told;

fn newest_log(rig: &Rig) -> PathBuf {
    let entries = std::fs::read_dir(rig.path().join("journal/1")).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "log")).max().unwrap()
}

fn records(path: &PathBuf) -> Vec<Record> {
    let bytes = std::fs::read(path).unwrap();
    Records::new(bytes.strip_prefix(MAGIC.as_slice()).unwrap()).map(|(record, _)| record).collect()
}

/// Whatever the log still says of a command is what the steward says of it.
#[track_caller]
fn says_what_the_log_says(shell: &mut TestShell, log: &[Record], commands: &[(CommandId, Vec<u8>)], case: &str) {
    for (command, output) in commands {
        let accepted = log.iter().find_map(|record| match record {
            Record::Accepted(accepted) if accepted.exec.command == *command => Some(accepted.number),
            _ => None,
        });
        let Some(number) = accepted else {
            let unknown = shell.client.request(&Request::Command(command.clone()));
            assert_eq!(unknown.unwrap_err().fault(), Some(FaultCode::NotFound), "{case}");
            continue;
        };
        let ended = log.iter().find_map(|record| match record {
            Record::Ended(ended) if ended.number == number => Some(ended),
            _ => None,
        });
        let told = shell.silence_of(command);
        assert!(told.info.status.is_final(), "{case}: nobody runs it any more");
        match ended {
            Some(ended) => {
                assert_eq!((told.info.ending.unwrap(), told.stdout == *output), (ended.ending.clone(), true), "{case}");
            }
            None => assert!(output.starts_with(&told.stdout), "{case}: bytes that it never wrote"),
        }
    }
}

#[test]
fn garbage_behind_the_log_is_cut_and_everything_before_it_is_there() {
    for garbage in [b"\0".as_slice(), &[0xff; 3], &[0; 4096], b"\0\0\0\x05\0\0\0\0hello", &vec![0x5a; 100_000]] {
        let rig = Rig::new();
        let mut shell = rig.shell();
        let commands: Vec<_> = (0..4)
            .map(|number| {
                (
                    ran(&mut shell, &format!("kept={number}; echo number {number}")),
                    format!("number {number}\n").into_bytes(),
                )
            })
            .collect();
        killing::everything(&rig, &mut shell);
        let log = records(&newest_log(&rig));
        File::options().append(true).open(newest_log(&rig)).unwrap().write_all(garbage).unwrap();
        rig.start();
        shell.client = rig.client();
        let case = format!("{} bytes of garbage", garbage.len());
        says_what_the_log_says(&mut shell, &log, &commands, &case);
        assert_eq!(shell.out("echo $kept"), "3\n", "{case}");
        assert_eq!(records(&newest_log(&rig))[..log.len()], log, "{case}: appending went on behind the garbage");
    }
}

#[test]
fn a_log_that_was_cut_anywhere_has_its_whole_records_and_the_shell_works() {
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        for round in 0..rounds(8) {
            let rig = Rig::new();
            let mut shell = rig.shell();
            let mut commands = Vec::new();
            for number in 0..3 {
                commands.push((
                    ran(&mut shell, &format!("kept={number}; echo number {number}")),
                    format!("number {number}\n").into_bytes(),
                ));
            }
            killing::everything(&rig, &mut shell);
            let path = newest_log(&rig);
            let length = path.metadata().unwrap().len();
            // The first record says what shell it is; without it there is none.
            let head = Records::new(&std::fs::read(&path).unwrap()[MAGIC.len()..]).next().unwrap().1 + MAGIC.len();
            let left = head as u64 + rng.below(length - head as u64);
            File::options().write(true).open(&path).unwrap().set_len(left).unwrap();
            let log = records(&path);
            rig.start();
            // The state that is named last may be gone: whoever opens the shell says what it goes on with.
            shell = rig.shell();
            let case = format!("seed {seed}, round {round}: {left} of {length} bytes");
            says_what_the_log_says(&mut shell, &log, &commands, &case);
            let after = shell.run("echo works; (exit 3)");
            assert_eq!(seen(&after), (Some(3), "works\n".to_owned(), String::new()), "{case}");
        }
    }
}

/// A place in the log behind its head, and in no length: one that is wrong may lead past more than its own record.
fn place_in_record(log: &[u8], rng: &mut Rng) -> usize {
    let mut start = MAGIC.len();
    let starts = Records::new(&log[start..]).map(|(_, size)| {
        start += size;
        (start - size, size)
    });
    let records: Vec<_> = starts.skip(1).collect();
    let (start, size) = records[usize::try_from(rng.below(records.len() as u64)).unwrap()];
    start + 4 + usize::try_from(rng.below(size as u64 - 4)).unwrap()
}

#[test]
fn a_flipped_bit_in_the_log_runs_nothing_again_and_hides_no_other_command() {
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        for round in 0..rounds(8) {
            let rig = Rig::new();
            let (mut shell, file) = (rig.shell(), rig.scratch().join("ran"));
            let text = |number: usize| format!("echo {number} >> {}; echo number {number}", file.display());
            let commands: Vec<_> = (0..4).map(|number| ran(&mut shell, &text(number))).collect();
            let path = newest_log(&rig);
            let bytes = std::fs::read(&path).unwrap();
            let at = place_in_record(&bytes, &mut rng);
            let flipped = bytes[at] ^ (1 << rng.below(8));
            File::options().write(true).open(&path).unwrap().write_all_at(&[flipped], at as u64).unwrap();
            kill_steward(&rig);
            shell.client = rig.client();
            let case = format!("seed {seed}, round {round}: byte {at} of {}", bytes.len());
            let after = shell.run("echo works; (exit 3)");
            assert_eq!(seen(&after), (Some(3), "works\n".to_owned(), String::new()), "{case}");
            let mut whole = 0;
            for (number, command) in commands.iter().enumerate() {
                let mut stdout = Vec::new();
                let told = shell.client.follow_from(command, 0, false, &mut |told| {
                    if let Told::Output(chunk) = told {
                        stdout.extend_from_slice(&chunk.bytes);
                    }
                });
                match told {
                    Ok(info) if info.status == Status::Exited => {
                        assert_eq!(stdout, format!("number {number}\n").into_bytes(), "{case}");
                        whole += 1;
                    }
                    Ok(info) => assert_eq!(info.status, Status::Lost, "{case}"),
                    Err(error) => {
                        let told = matches!(error.fault(), Some(FaultCode::Damaged | FaultCode::NotFound));
                        assert!(told, "{case}: {error}");
                    }
                }
            }
            assert!(whole >= 3, "{case}: {whole} of 4 are whole");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "0\n1\n2\n3\n", "{case}: each ran once");
        }
    }
}

#[test]
fn output_of_a_command_that_the_log_lost_never_becomes_that_of_another() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    ran(&mut shell, "echo first");
    let whole = newest_log(&rig).metadata().unwrap().len();
    ran(&mut shell, &printing(100_000));
    killing::everything(&rig, &mut shell);
    File::options().write(true).open(newest_log(&rig)).unwrap().set_len(whole).unwrap();
    rig.start();
    shell.client = rig.client();
    // It gets the number, and so the files, of the one that was lost; and its steward dies over it.
    let exec = shell.exec("echo short; read -r line; echo $line; (exit 2)");
    let exec = stead_model::proto::Exec { stdin: stead_model::proto::Stdin::Open, ..exec };
    let command = exec.command.clone();
    shell.submit(exec);
    wait_for("its first line", || (info(&mut shell.client, &command).stdout_bytes > 0).then_some(()));
    let steward = rig.steward_pid();
    kill(steward);
    wait_for("another steward", || (rig.steward_pid() != steward).then_some(()));
    shell.client = rig.client();
    let line = stead_model::proto::StdinBytes {
        command: command.clone(),
        bytes: stead_model::state::Bytes::from("typed\n"),
        eof: true,
        offset: None,
    };
    shell.client.request(&Request::Stdin(line)).unwrap();
    let outcome = shell.end_of(&command);
    assert!(outcome.stdout.len() < 100, "{} bytes, which another command had printed", outcome.stdout.len());
    assert_eq!(seen(&outcome), (Some(2), "short\ntyped\n".to_owned(), String::new()));
}
