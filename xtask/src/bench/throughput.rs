//! How fast a command's output gets to disk: a gibibyte into a file by `cat`, and the same into our journal.

use super::place::Place;
use super::sample::median;
use super::steward::Steward;
use super::{Effort, Subjects};
use crate::cargo;
use crate::failed::{Failed, Result, While};
use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};
use stead_model::proto::Request;

#[derive(Debug)]
pub(super) struct Throughput {
    pub(super) mebibytes: u32,
    /// `head | cat > file`.
    pub(super) to_file: Duration,
    /// `head | cat` in our shell: a process and a pipe more than the above.
    pub(super) to_journal: Duration,
    /// `head` in our shell: the steward takes the place of `cat`.
    pub(super) in_place_of_cat: Duration,
}

impl Throughput {
    pub(super) fn rate(&self, taken: Duration) -> f64 {
        f64::from(self.mebibytes) / taken.as_secs_f64()
    }
}

const ROUNDS: u32 = 3;

/// Place in a sequence that no command reaches: who follows from there is told of the end alone.
const BEHIND_EVERYTHING: u64 = u64::MAX;

pub(super) fn measure(subjects: &Subjects, effort: Effort) -> Result<Throughput> {
    let mebibytes = effort.choose(1024, 128);
    let steward = Steward::start(&subjects.steward, &Place::unpinned()?, &subjects.scratch)?;
    let bench = Bench { subjects, steward, mebibytes };
    let (mut to_file, mut to_journal, mut in_place_of_cat) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        eprintln!("throughput: round {round} of {ROUNDS}");
        to_file.push(bench.file()?);
        to_journal.push(bench.journal(&format!("cat-{round}"), " | cat")?);
        in_place_of_cat.push(bench.journal(&format!("head-{round}"), "")?);
    }
    Ok(Throughput {
        mebibytes,
        to_file: median(to_file),
        to_journal: median(to_journal),
        in_place_of_cat: median(in_place_of_cat),
    })
}

struct Bench<'a> {
    subjects: &'a Subjects,
    steward: Steward,
    mebibytes: u32,
}

impl Bench<'_> {
    fn generator(&self) -> String {
        format!("head -c {}M /dev/zero", self.mebibytes)
    }

    fn file(&self) -> Result<Duration> {
        let path = self.subjects.scratch.join("throughput");
        let script = format!("{} | cat >'{}'", self.generator(), path.display());
        self.settle()?;
        let begun = Instant::now();
        cargo::run(Command::new("bash").arg("-c").arg(script))?;
        let taken = begun.elapsed();
        let written = fs::metadata(&path).or_failed("`cat` wrote no file")?.len();
        fs::remove_file(&path).or_failed("can't remove what `cat` wrote")?;
        whole(written, self.mebibytes)?;
        Ok(taken)
    }

    /// Nobody reads the output; we wait for the end only.
    fn journal(&self, name: &str, pipe: &str) -> Result<Duration> {
        let mut shell = self.steward.shell(name)?;
        shell.run("true")?;
        let exec = shell.command(&format!("{}{pipe}", self.generator()))?;
        let id = exec.command.clone();
        self.settle()?;
        let begun = Instant::now();
        let request = Request::Exec(Box::new(exec));
        let client = shell.client();
        client.request(&request).or_failed("can't run the generator")?;
        let info = client.follow_from(&id, BEHIND_EVERYTHING, false, &mut drop);
        let taken = begun.elapsed();
        whole(info.or_failed("the generator is lost")?.stdout_bytes, self.mebibytes)?;
        shell.close()?;
        Ok(taken)
    }

    /// Lets the disk finish with what was written before, so that nobody pays for another's bytes.
    fn settle(&self) -> Result {
        let directory = File::open(&self.subjects.scratch).or_failed("can't open the directory")?;
        rustix::fs::syncfs(&directory).or_failed("can't sync the file system")
    }
}

fn whole(bytes: u64, mebibytes: u32) -> Result {
    let want = u64::from(mebibytes) << 20;
    if bytes == want { Ok(()) } else { Err(Failed::new(format!("{bytes} bytes arrived instead of {want}"))) }
}
