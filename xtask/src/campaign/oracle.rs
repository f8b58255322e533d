//! What must be: which ends a command may have had, given what was done to it, and what its terminal is afterwards.
//! No input or output: everything that was seen is an argument.

use super::plan::Planned;
use super::script;
use serde_json::Value;
use std::collections::BTreeSet;

/// What was done while a command was between its first request and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Circumstances {
    /// Its instance died.
    pub(super) instance_killed: bool,
    /// It was killed before it had said that it has the command, which may never have run then.
    pub(super) server_killed_first: bool,
    pub(super) steward_killed: bool,
    /// A shell of its instance was killed.
    pub(super) shell_killed: bool,
    /// One may have ended by a kill, then or before: the next command tells of it.
    pub(super) shell_killed_before: bool,
    /// The keeper that was to see how shells end had been killed, then or before.
    pub(super) keeper_killed: bool,
    /// It was asked to be cancelled.
    pub(super) cancel_asked: bool,
}

/// What was seen of a command when all was over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) record: &'a Value,
    pub(super) stdout: &'a [u8],
    pub(super) stderr: &'a [u8],
    /// How often it ran, as it counted itself.
    pub(super) runs: usize,
}

/// What a terminal may be. A set has more than one element where a kill decided and nobody saw how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Terminal {
    /// The variable that each command adds one to.
    pub(super) counters: BTreeSet<u64>,
    pub(super) cwds: BTreeSet<String>,
    pub(super) version: u64,
    /// By how much the version may be higher: commands that nobody knows the end of.
    pub(super) unknown: u64,
}

impl Terminal {
    pub(super) fn fresh() -> Self {
        Self { counters: [0].into(), cwds: ["/workspace".to_owned()].into(), version: 0, unknown: 0 }
    }

    /// A command without an answer may have run or not.
    pub(super) fn may_have_run(&mut self, command: &Planned) {
        self.widen(command);
        self.unknown += 1;
    }

    /// Whether this may be its version after `more` commands that ended.
    fn may_have_version(&self, version: &Value, more: u64) -> bool {
        let least = self.version + more;
        version.as_u64().is_some_and(|version| (least..=least + self.unknown).contains(&version))
    }

    /// It may be as it was, or as the command left it.
    fn widen(&mut self, command: &Planned) {
        let more: Vec<u64> = self.counters.iter().map(|counter| counter + 1).collect();
        self.counters.extend(more);
        self.cwds.extend(command.body.cwd());
    }
}

/// Judges one command, and goes on from its terminal as it was before to as it may be afterwards.
pub(super) fn judge(
    command: &Planned,
    circumstances: Circumstances,
    seen: Seen<'_>,
    terminal: &mut Terminal,
) -> Vec<String> {
    let mut judge = Judge { command, circumstances, seen, violations: Vec::new() };
    judge.check(seen.runs <= 1, || format!("ran {} times, not at most once", seen.runs));
    judge.check_fields();
    judge.check_flags();
    let status = seen.record["status"].as_str().unwrap_or("no status at all");
    match status {
        "exited" => judge.exited(terminal),
        "cancelled" => judge.cancelled(terminal),
        "timed_out" => judge.timed_out(terminal),
        "failed" => judge.failed(),
        "lost" => judge.lost(terminal),
        other => judge.violations.push(format!("status `{other}`, which is no end")),
    }
    // Its time may be over before its shell has had it, while its steward is dead or hands over.
    let was_hindered = circumstances.steward_killed
        || circumstances.keeper_killed
        || circumstances.instance_killed
        || circumstances.shell_killed;
    let version = &seen.record["state_version"];
    let never_ran = status == "timed_out" && seen.runs == 0 && was_hindered && terminal.may_have_version(version, 0);
    let changes = matches!(status, "exited" | "timed_out") || status == "cancelled" && seen.record["exit_code"] == 130;
    if changes && !never_ran {
        judge.check(terminal.may_have_version(version, 1), || {
            let (version_was, unknown) = (terminal.version, terminal.unknown);
            format!("state_version {version} after {version_was} and {unknown} unknown: it grows by one with each command that ends")
        });
        // From here on as it was seen, so that one mistake is told once.
        terminal.version = version.as_u64().unwrap_or(terminal.version + 1);
        terminal.unknown = 0;
        judge.check_cwd(terminal);
    } else {
        // One that waited for another may have been ended before that one was.
        let most = terminal.version + terminal.unknown;
        judge.check(version.is_null() || version.as_u64().is_some_and(|version| version <= most), || {
            format!("state_version {version} after {} with a command that changed nothing", terminal.version)
        });
    }
    judge.violations
}

/// Every field of a record, in the order of their names.
const FIELDS: [&str; 24] = [
    "command",
    "created_at",
    "cwd",
    "duration_ms",
    "ended_at",
    "error",
    "exit_code",
    "id",
    "oom_killed",
    "session_id",
    "shell_exited",
    "shell_replaced",
    "signal",
    "started_at",
    "state_changed",
    "state_version",
    "status",
    "stderr_bytes",
    "stdout_bytes",
    "streams_open",
    "terminal_id",
    "thread_id",
    "timed_out",
    "warnings",
];

struct Judge<'a> {
    command: &'a Planned,
    circumstances: Circumstances,
    seen: Seen<'a>,
    violations: Vec<String>,
}

impl Judge<'_> {
    fn check(&mut self, holds: bool, violation: impl FnOnce() -> String) {
        if !holds {
            self.violations.push(violation());
        }
    }

    fn field(&self, name: &str) -> &Value {
        &self.seen.record[name]
    }

    fn is_true(&self, name: &str) -> bool {
        self.field(name) == true
    }

    /// A record has these fields and no others, and those that nothing happened to are empty.
    fn check_fields(&mut self) {
        let names: Vec<&str> =
            self.seen.record.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        self.check(names == FIELDS, || format!("its fields are {names:?}"));
        let status = self.field("status").clone();
        if status == "exited" {
            return;
        }
        let was_killed = self.circumstances.shell_killed || self.circumstances.instance_killed;
        let signal = self.field("signal").clone();
        self.check(signal.is_null() || was_killed && signal == "KILL", || format!("signal {signal} with {status}"));
        let may_end_shell = was_killed || self.command.body.ends_shell();
        for name in ["shell_exited", "shell_replaced"] {
            let told = self.field(name).clone();
            self.check(told == false || told == true && may_end_shell, || {
                format!("{name} {told} with {status}, though nothing ended its shell")
            });
        }
        if matches!(status.as_str(), Some("failed" | "lost")) {
            let changed = self.field("state_changed").clone();
            self.check(changed == false, || format!("state_changed {changed} with {status}"));
        }
        if status == "failed" {
            for name in ["started_at", "duration_ms", "signal"] {
                let told = self.field(name).clone();
                self.check(told.is_null(), || format!("{name} {told}, though it never ran"));
            }
        }
    }

    /// What holds of every end.
    fn check_flags(&mut self) {
        let status = self.field("status").clone();
        let timed_out = self.field("timed_out").clone();
        self.check(timed_out == (status == "timed_out"), || format!("timed_out {timed_out} with status {status}"));
        let error = self.field("error").clone();
        let never_ran = status == "failed";
        self.check(status == "lost" || error.is_null() != never_ran, || format!("error {error} with status {status}"));
        for (name, bytes) in [("stdout_bytes", self.seen.stdout.len()), ("stderr_bytes", self.seen.stderr.len())] {
            let told = self.field(name).clone();
            self.check(told == bytes, || format!("{name} {told}, but the output has {bytes}"));
        }
        let open = self.is_true("streams_open");
        let may = self.circumstances.shell_killed || self.circumstances.instance_killed;
        self.check(!open || may, || "streams_open, though it left nobody behind".to_owned());
        let oom = self.field("oom_killed").clone();
        self.check(oom != true, || "oom_killed, though there was memory".to_owned());
        self.check_times();
        self.check_warnings();
    }

    fn check_times(&mut self) {
        let time = |name: &str| self.seen.record[name].as_str().map(str::to_owned);
        let (created, started, ended) = (time("created_at"), time("started_at"), time("ended_at"));
        // Times of one form are in order when their texts are.
        let in_order = created.is_some()
            && ended.is_some()
            && created <= ended
            && started
                .as_ref()
                .is_none_or(|started| created.as_ref() <= Some(started) && Some(started) <= ended.as_ref());
        self.check(in_order, || {
            format!("times out of order: created {created:?}, started {started:?}, ended {ended:?}")
        });
        let ran = matches!(self.seen.record["status"].as_str(), Some("exited" | "timed_out"));
        self.check(!ran || started.is_some(), || "it ran, but has no started_at".to_owned());
        let duration = self.field("duration_ms").clone();
        self.check(duration.is_u64() == started.is_some(), || {
            format!("duration_ms {duration} with started_at {started:?}")
        });
    }

    fn check_warnings(&mut self) {
        let warnings = self.field("warnings").as_array().cloned();
        self.check(warnings.is_some(), || "warnings is no list".to_owned());
        for warning in warnings.unwrap_or_default() {
            let fair = match warning["code"].as_str() {
                Some("shell_restarted") => self.circumstances.shell_killed_before,
                // Its shell was just saying what it leaves when it was told to end, or killed.
                Some("state_not_captured") => {
                    let was_stopped = matches!(self.field("status").as_str(), Some("cancelled" | "timed_out"));
                    let was_killed = self.circumstances.shell_killed && *self.field("signal") == "KILL";
                    (was_stopped || was_killed) && self.command.body.ends_shell()
                }
                _ => false,
            };
            self.check(fair, || format!("a warning that nothing called for: {warning}"));
        }
    }

    fn exited(&mut self, terminal: &mut Terminal) {
        let code = self.field("exit_code").clone();
        let signal = self.field("signal").clone();
        let killed = code == 137 && signal == "KILL" && self.is_true("shell_exited");
        if killed && self.circumstances.shell_killed {
            self.check_cut(terminal);
            terminal.widen(self.command);
            return;
        }
        let wanted = self.command.body.code();
        self.check(wanted.is_some_and(|wanted| code == wanted), || {
            let wanted = wanted.map_or("no end at all".to_owned(), |wanted| wanted.to_string());
            format!("exited with {code} (signal {signal}), where its text says {wanted}")
        });
        self.check(signal.is_null(), || format!("signal {signal}, though no signal ended it"));
        let exits = self.command.body.ends_shell();
        let exited = self.is_true("shell_exited");
        self.check(exited == exits || exited && self.circumstances.shell_killed, || {
            format!("shell_exited {exited}, where its text says {exits}")
        });
        // Each exports a variable with another value than before.
        let changed = self.is_true("state_changed");
        let may_be_unseen = exited || self.circumstances.shell_killed;
        self.check(changed || may_be_unseen, || "state_changed is not true, though it set a variable".to_owned());
        let replaced = self.is_true("shell_replaced");
        self.check(!replaced, || "shell_replaced after a command that ended by itself".to_owned());
        let runs = self.seen.runs;
        self.check(runs == 1, || format!("exited after {runs} runs, not one"));
        let wanted = self.command.body.stdout(&self.command.id);
        self.check_bytes("stdout", &wanted, self.seen.stdout);
        let counter = terminal
            .counters
            .iter()
            .map(|counter| counter + 1)
            .find(|counter| script::stderr(*counter) == self.seen.stderr);
        let told = String::from_utf8_lossy(self.seen.stderr).into_owned();
        self.check(counter.is_some(), || {
            format!("stderr `{}`, where the counter was one of {:?}", told.trim(), terminal.counters)
        });
        if exited && !exits {
            // Its shell was killed between its report and what it left: that may be lost.
            terminal.widen(self.command);
            return;
        }
        let said = told.trim().strip_prefix("n=").and_then(|number| number.parse().ok());
        terminal.counters = counter.or(said).into_iter().collect();
        if let Some(cwd) = self.command.body.cwd() {
            terminal.cwds = [cwd].into();
        }
    }

    fn cancelled(&mut self, terminal: &mut Terminal) {
        let asked = self.circumstances.cancel_asked;
        self.check(asked, || "cancelled, though nobody asked for it".to_owned());
        let code = self.field("exit_code").clone();
        if code == -1 {
            let runs = self.seen.runs;
            self.check(runs == 0, || format!("cancelled with -1, which says that it never started, after {runs} runs"));
            self.check_silent();
        } else {
            self.check(code == 130, || format!("cancelled with {code}, not with 130 or -1"));
            self.stopped(terminal);
        }
    }

    fn timed_out(&mut self, terminal: &mut Terminal) {
        let limit = self.command.timeout_ms;
        self.check(limit.is_some(), || "timed_out, though it had no time-out".to_owned());
        let (code, duration) = (self.field("exit_code").clone(), self.field("duration_ms").clone());
        self.check(code == -1, || format!("timed_out with {code}, not with -1"));
        // The clocks of a record count milliseconds: one may be lost to rounding.
        let long_enough = duration.as_u64().is_some_and(|duration| duration + 1 >= limit.unwrap_or(0));
        self.check(long_enough, || format!("timed_out after {duration} ms, with {limit:?} ms to go by"));
        self.stopped(terminal);
    }

    /// It was stopped, and its shell lives on.
    fn stopped(&mut self, terminal: &mut Terminal) {
        self.check_cut(terminal);
        let replaced = self.is_true("shell_replaced") || self.is_true("shell_exited");
        let told = String::from_utf8_lossy(self.seen.stderr).into_owned();
        let counter = told.strip_prefix("n=").and_then(|rest| rest.strip_suffix('\n')?.parse::<u64>().ok());
        match counter {
            Some(counter) if !replaced && self.command.body.cwd().is_none() => terminal.counters = [counter].into(),
            _ => terminal.widen(self.command),
        }
    }

    fn failed(&mut self) {
        let fair = self.circumstances.instance_killed || self.circumstances.server_killed_first;
        self.check(fair, || {
            "failed, though its instance was not killed, nor the server before it had taken the command".to_owned()
        });
        let (code, runs) = (self.field("exit_code").clone(), self.seen.runs);
        self.check(code.is_null(), || format!("failed with {code}, where nothing can be known"));
        self.check(runs == 0, || format!("failed, which says that it never ran, after {runs} runs"));
        self.check_silent();
    }

    fn lost(&mut self, terminal: &mut Terminal) {
        let unseen = self.circumstances.shell_killed && self.circumstances.keeper_killed;
        let fair = self.circumstances.instance_killed || unseen;
        self.check(fair, || "lost, though its instance was never killed".to_owned());
        let code = self.field("exit_code").clone();
        self.check(code.is_null(), || format!("lost with {code}, where nothing can be known"));
        self.check_cut(terminal);
        terminal.widen(self.command);
    }

    /// What it wrote is a beginning of what it would have written.
    fn check_cut(&mut self, terminal: &Terminal) {
        let wanted = self.command.body.stdout(&self.command.id);
        let stdout = self.seen.stdout;
        self.check(wanted.starts_with(stdout), || {
            format!("stdout is no beginning of what its text writes: {}", difference(&wanted, stdout))
        });
        let stderr = self.seen.stderr;
        // A shell that is hung up while it waits for a program may say so with its last words.
        let complaint = |wanted: &[u8]| stderr.strip_prefix(wanted).is_some_and(|rest| rest.starts_with(b"bash: "));
        let hung_up = self.circumstances.instance_killed || self.circumstances.shell_killed;
        let fits = terminal
            .counters
            .iter()
            .map(|counter| script::stderr(counter + 1))
            .any(|wanted| wanted.starts_with(stderr) || hung_up && (complaint(&wanted) || complaint(b"")));
        self.check(fits, || {
            let told = String::from_utf8_lossy(stderr);
            format!("stderr `{}`, where the counter was one of {:?}", told.trim(), terminal.counters)
        });
    }

    fn check_silent(&mut self) {
        let silent = self.seen.stdout.is_empty() && self.seen.stderr.is_empty();
        self.check(silent, || "it wrote something, though it never ran".to_owned());
    }

    fn check_bytes(&mut self, name: &str, wanted: &[u8], seen: &[u8]) {
        self.check(wanted == seen, || format!("{name} is not what its text writes: {}", difference(wanted, seen)));
    }

    fn check_cwd(&mut self, terminal: &mut Terminal) {
        let cwd = self.field("cwd").clone();
        let known = cwd.as_str().is_some_and(|cwd| terminal.cwds.contains(cwd));
        self.check(known, || format!("cwd {cwd}, where it was one of {:?}", terminal.cwds));
        if let Some(cwd) = cwd.as_str().filter(|_| !self.is_true("shell_exited") || self.command.body.ends_shell()) {
            terminal.cwds = [cwd.to_owned()].into();
        }
    }
}

/// Where two texts begin to differ.
fn difference(wanted: &[u8], seen: &[u8]) -> String {
    let same = wanted.iter().zip(seen).take_while(|(one, other)| one == other).count();
    let rest = |bytes: &[u8]| {
        let rest: Vec<u8> = bytes.iter().skip(same).take(40).copied().collect();
        rest.escape_ascii().to_string()
    };
    format!("{} bytes, not {}; from byte {same} on `{}`, not `{}`", seen.len(), wanted.len(), rest(seen), rest(wanted))
}

#[cfg(test)]
mod tests;
