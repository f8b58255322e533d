//! The ferry, as a cloud with nothing but short calls uses it: the real binary for every call.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use stead_model::ferry::{Accepted, Reader, Taken, encode};

struct Ferry {
    dir: PathBuf,
    _home: tempfile::TempDir,
}

impl Ferry {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        Self { dir: home.path().join("ferry"), _home: home }
    }

    fn open(words: &[&str]) -> Self {
        let ferry = Self::new();
        assert_eq!(ferry.said(&[&["open"], &["--"], words].concat()), "open\n");
        ferry
    }

    /// One call, with its standard streams closed to everything but us: it returns when nobody holds them.
    fn call(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
        let (verb, rest) = words.split_first().unwrap();
        command.args(["ferry", verb, "--dir"]).arg(&self.dir).args(rest);
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn said(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn refused(&self, words: &[&str]) -> String {
        let output = self.call(words);
        assert!(!output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }

    fn take(&self, from: u64, wait: u64) -> Taken {
        let text = self.said(&["take", "--from", &from.to_string(), "--wait", &wait.to_string()]);
        Taken::parse(&text).unwrap_or_else(|| panic!("{text:?}"))
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Accepted {
        let text = self.said(&["put", "--at", &at.to_string(), "--wait", "10000", &encode(bytes)]);
        Accepted::parse(&text).unwrap_or_else(|| panic!("{text:?}"))
    }

    fn put_all(&self, bytes: &[u8]) {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let accepted = self.put(at as u64, rest.chunks(24 << 10).next().unwrap());
            assert_eq!(accepted.reader, Reader::Open);
            at = usize::try_from(accepted.offset).unwrap();
        }
        let text = self.said(&["put", "--at", &at.to_string(), "--end"]);
        assert_eq!(text, format!("accepted {at} open\n"));
    }

    fn take_all(&self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let taken = self.take(all.len() as u64, 10_000);
            all.extend_from_slice(&taken.bytes);
            if taken.ended {
                return all;
            }
        }
    }
}

impl Drop for Ferry {
    fn drop(&mut self) {
        self.call(&["close"]);
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

/// Every value, not in step with any buffer.
fn many(count: usize) -> Vec<u8> {
    (0..count).map(|n| u8::try_from((n * 7 + n / 251) % 256).unwrap()).collect()
}

#[test]
fn a_mebibyte_goes_through_cat_and_comes_back_as_it_was() {
    let ferry = Ferry::open(&["cat"]);
    let whole = many((1 << 20) + 77);
    let back = thread::scope(|scope| {
        let back = scope.spawn(|| ferry.take_all());
        ferry.put_all(&whole);
        back.join().unwrap()
    });
    assert!(back == whole, "{} of {} bytes, or others", back.len(), whole.len());
}

#[test]
fn what_is_taken_again_is_the_same_and_what_is_put_again_is_not_put_twice() {
    let ferry = Ferry::open(&["cat"]);
    assert_eq!(ferry.put(0, b"hello "), Accepted { offset: 6, reader: Reader::Open });
    assert_eq!(ferry.put(0, b"hello "), Accepted { offset: 6, reader: Reader::Open });
    assert_eq!(ferry.put(3, b"lo world"), Accepted { offset: 11, reader: Reader::Open });
    until("all of it is there", || ferry.take(0, 10_000).bytes == b"hello world");
    assert_eq!(ferry.take(0, 0), Taken { from: 0, bytes: b"hello world".to_vec(), ended: false });
    assert_eq!(ferry.take(6, 0), Taken { from: 6, bytes: b"world".to_vec(), ended: false });
    assert!(ferry.refused(&["take", "--from", "2"]).contains("output at 2 isn't here"));
    assert!(ferry.refused(&["put", "--at", "12", "AA=="]).contains("input up to 12 never came"));
}

#[test]
fn a_take_waits_for_output_and_says_the_end_when_all_was_taken() {
    let ferry = Ferry::open(&["sh", "-c", "read line; printf '%s!' \"$line\""]);
    assert_eq!(ferry.take(0, 50), Taken { from: 0, bytes: Vec::new(), ended: false });
    thread::scope(|scope| {
        let taken = scope.spawn(|| ferry.take(0, 20_000));
        ferry.put(0, b"yes\n");
        assert_eq!(taken.join().unwrap().bytes, b"yes!");
    });
    until("it ends", || ferry.take(4, 10_000) == Taken { from: 4, bytes: Vec::new(), ended: true });
    assert_eq!(ferry.take(4, 0).bytes, b"", "and says so again");
}

#[test]
fn a_program_waits_when_nobody_takes_what_it_writes() {
    let ferry = Ferry::new();
    let count = ferry.dir.with_extension("count");
    // A line for each 64 KiB that it could write.
    let script = format!(
        "for n in $(seq 100); do head -c 65536 /dev/zero; echo $n >> {0}; done; echo done >> {0}",
        count.display()
    );
    assert_eq!(ferry.said(&["open", "--", "sh", "-c", &script]), "open\n");
    let lines = || std::fs::read_to_string(&count).unwrap_or_default().lines().count();
    until("it has written what fits", || lines() >= 16);
    // 1 MiB in the ferry's hands and 64 KiB in the pipe.
    assert!(lines() <= 18, "{}", lines());
    assert_eq!(ferry.take_all().len(), 100 << 16);
    assert!(std::fs::read_to_string(&count).unwrap().ends_with("100\ndone\n"));
}

#[test]
fn input_waits_when_the_program_does_not_read() {
    let ferry = Ferry::open(&["sh", "-c", "sleep 3600"]);
    let mut at = 0;
    loop {
        let text = ferry.said(&["put", "--at", &at.to_string(), &encode(&vec![1; 90 << 10])]);
        let accepted = Accepted::parse(&text).unwrap();
        if accepted.offset == at {
            break;
        }
        at = accepted.offset;
    }
    assert!((1 << 20..=(1 << 20) + (64 << 10)).contains(&at), "{at}");
}

#[test]
fn opening_again_finds_the_same_program() {
    let ferry = Ferry::open(&["sh", "-c", "echo $$; exec cat"]);
    let first = ferry.take(0, 10_000).bytes;
    assert_eq!(ferry.said(&["open", "--", "sh", "-c", "echo another"]), "open\n");
    assert_eq!(ferry.take(0, 0).bytes, first);
}

#[test]
fn a_program_that_stops_reading_is_told_of() {
    let ferry = Ferry::open(&["sh", "-c", "exec <&-; sleep 3600"]);
    until("it is seen", || ferry.put(0, b"x").reader == Reader::Closed);
}

#[test]
fn nothing_is_left_behind() {
    let ferry = Ferry::open(&["sh", "-c", "echo $$; exec cat"]);
    let mode = std::fs::metadata(&ferry.dir).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let pid = String::from_utf8(ferry.take(0, 10_000).bytes).unwrap();
    let process = PathBuf::from(format!("/proc/{}", pid.trim()));
    assert!(process.exists());
    assert_eq!(ferry.said(&["close"]), "closed\n");
    until("the program ends", || !process.exists());
    until("the directory goes", || !ferry.dir.exists());
    assert_eq!(ferry.said(&["close"]), "closed\n", "again");
    assert!(ferry.refused(&["take", "--from", "0"]).contains("no ferry holds a program"));
}

#[test]
fn a_ferry_that_nobody_asks_ends_by_itself() {
    let ferry = Ferry::new();
    assert_eq!(ferry.said(&["open", "--idle", "1", "--", "sh", "-c", "sleep 3600 & echo $!; wait"]), "open\n");
    let child = String::from_utf8(ferry.take(0, 10_000).bytes).unwrap();
    until("it ends", || !ferry.dir.exists());
    until("all of the program ends", || !PathBuf::from(format!("/proc/{}", child.trim())).exists());
}

#[test]
fn a_program_that_is_not_there_is_told_of() {
    let ferry = Ferry::new();
    let said = ferry.refused(&["open", "--", "/nowhere/at/all"]);
    assert!(said.contains("can't start `/nowhere/at/all`"), "{said}");
    until("the directory goes", || !ferry.dir.exists());
    std::fs::create_dir(&ferry.dir).unwrap();
    std::fs::set_permissions(&ferry.dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(ferry.refused(&["open", "--", "cat"]).contains("open to other users"));
}

#[test]
fn the_program_has_nothing_of_the_caller_but_its_place() {
    let ferry = Ferry::open(&["sh", "-c", "ls /proc/self/fd | wc -l; ps -o sid= -p $$; ps -o tty= -p $$; pwd"]);
    let said = String::from_utf8(ferry.take_all()).unwrap();
    let lines: Vec<_> = said.lines().map(str::trim).collect();
    // 0 where our session began outside of the pid namespace that we are in.
    let ours = stead_term::proc::stat(rustix::process::getpid().as_raw_nonzero().get()).unwrap().session.to_string();
    // Three streams and the one that `ls` reads.
    assert_eq!((lines[0], lines[2]), ("4", "?"), "{said}");
    assert_ne!(lines[1], ours);
    assert_eq!(lines[3], std::env::current_dir().unwrap().to_str().unwrap());
}
