//! After a round: everything that was told of every command, against what must be.

use super::command::{self, Observation, Seen as Look, look_closely};
use super::driver::{Fork, Hung, Work, insist};
use super::events;
use super::history::{History, Span};
use super::oracle::{self, Seen, Terminal};
use super::plan::Planned;
use super::script::Body;
use super::wire::Wire;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// How often each command ran, and in which order they began.
fn runs(work: &Work) -> Vec<String> {
    let text = std::fs::read_to_string(&work.runs).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Judges a thread and its forks by what was read while the round went on.
pub(super) fn judge(work: &Work, history: &History) -> Vec<String> {
    judge_from(work, history, &BTreeMap::new())
}

fn judge_from(work: &Work, history: &History, begin: &BTreeMap<String, Terminal>) -> Vec<String> {
    let mut violations: Vec<String> = work.violations.clone();
    let ran = runs(work);
    // Also those that nobody could ask about any more, because their thread was deleted under them.
    let observed: Vec<&str> = work.terminals.values().flatten().map(|seen| seen.planned.id.as_str()).collect();
    for id in ran.iter().filter(|id| !observed.contains(&id.as_str())) {
        let times = ran.iter().filter(|other| *other == id).count();
        if times > 1 {
            violations.push(format!("{id} ran {times} times, not at most once"));
        }
    }
    for (name, observations) in &work.terminals {
        let mut terminal = begin.get(name).cloned().unwrap_or_else(Terminal::fresh);
        let mut shell = Shell::default();
        for (number, observation) in observations.iter().enumerate() {
            // In the order in which they were sent: a fork comes after a batch, and an unanswered command in one.
            for unanswered in unanswered_at(work, name, number) {
                terminal.may_have_run(unanswered);
            }
            for fork in work.forks.iter().filter(|fork| name == "default" && fork.after == number) {
                violations.extend(judge_fork(fork, history, &terminal));
            }
            let tell =
                |what: String| format!("{}: {what}; the record is {}", observation.planned.id, observation.record);
            let found = judge_one(work, history, observation, &ran, &mut terminal, shell);
            violations.extend(found.into_iter().map(tell));
            shell = shell.after(observation);
        }
        for unanswered in unanswered_at(work, name, observations.len()) {
            terminal.may_have_run(unanswered);
        }
        for fork in work.forks.iter().filter(|fork| name == "default" && fork.after == observations.len()) {
            violations.extend(judge_fork(fork, history, &terminal));
        }
        violations.extend(check_order(observations, &ran));
        violations.extend(check_owners(observations));
    }
    violations.into_iter().map(|what| format!("thread {}: {what}", work.thread)).collect()
}

/// Commands without an answer that were sent when so many of the terminal had been observed.
fn unanswered_at<'a>(work: &'a Work, terminal: &str, after: usize) -> impl Iterator<Item = &'a Planned> {
    let at = move |one: &&super::driver::Unanswered| one.after == after && one.terminal == terminal;
    work.unanswered.iter().filter(at).map(|one| &one.planned)
}

/// Since when a terminal's shell can have been harmed without being told of it.
#[derive(Debug, Clone, Copy, Default)]
struct Shell {
    was_well: Option<Instant>,
    began: Option<Instant>,
}

impl Shell {
    fn after(mut self, observation: &Observation) -> Self {
        let record = &observation.record;
        let warnings = record["warnings"].as_array();
        let restarted = warnings.is_some_and(|all| all.iter().any(|one| one["code"] == "shell_restarted"));
        let ended = record["shell_exited"] == true || record["shell_replaced"] == true || record["status"] == "lost";
        if ended || restarted {
            self.began = Some(observation.sent);
        }
        if record["status"] == "exited" && !ended {
            self.was_well = Some(observation.sent);
        }
        self
    }
}

/// A fork begins as its parent was.
fn judge_fork(fork: &Fork, history: &History, parent: &Terminal) -> Vec<String> {
    let begin = Terminal { version: 0, ..parent.clone() };
    let version = fork.work.terminals.get("default").and_then(|seen| seen.first()?.record["state_version"].as_u64());
    // Where its versions begin is its own affair: they only have to grow.
    let begin = Terminal { version: version.map_or(0, |version| version.saturating_sub(1)), ..begin };
    judge_from(&fork.work, history, &[("default".to_owned(), begin)].into())
}

fn judge_one(
    work: &Work,
    history: &History,
    observation: &Observation,
    ran: &[String],
    terminal: &mut Terminal,
    shell: Shell,
) -> Vec<String> {
    let Observation { planned, id, text, sent, acknowledged, ended, record, stdout, stderr, events, answer, heard } =
        observation;
    let (sent, acknowledged, ended) = (*sent, *acknowledged, *ended);
    let span = Span { sent, acknowledged, ended, shell_was_well: shell.was_well, shell_began: shell.began };
    let mut circumstances = history.circumstances(&work.leases, span);
    circumstances.cancel_asked = planned.cancel.is_some();
    let runs = ran.iter().filter(|id| **id == planned.id).count();
    let seen = Seen { record, stdout, stderr, runs };
    let mut violations = oracle::judge(planned, circumstances, seen, terminal);
    for (name, wanted) in [("id", id), ("thread_id", &work.thread), ("command", text)] {
        if record[name] != **wanted {
            violations.push(format!("{name} is {}", record[name]));
        }
    }
    violations.extend(events::check(events, record, stdout, stderr, circumstances.shell_killed));
    if let Some(answer) = answer {
        violations.extend(check_answer(answer, record, [stdout, stderr]));
    }
    let mut heard = heard.clone();
    for end in heard.iter_mut().flatten().filter(|event| events::is_last(event)) {
        end.data = once_closed(&end.data, record);
    }
    if let Some(heard) = heard
        && heard != *events
    {
        let differs = heard.iter().zip(events).find(|(heard, told)| heard != told);
        let (heard, told) = (heard.len(), events.len());
        violations.push(format!("{heard} events were heard, {told} are told now; the first that differ: {differs:?}"));
    }
    violations
}

/// What was told of an end as it is told since. Whoever held the streams then may have written more, and gone: those bytes
/// are late, and counted.
fn once_closed(told: &Value, record: &Value) -> Value {
    let mut told = told.clone();
    if told["streams_open"] == true {
        told["streams_open"] = record["streams_open"].clone();
        for name in ["stdout_bytes", "stderr_bytes"] {
            if told[name].as_u64() <= record[name].as_u64() {
                told[name] = record[name].clone();
            }
        }
    }
    told
}

fn check_answer(answer: &Value, record: &Value, outputs: [&[u8]; 2]) -> Vec<String> {
    let mut violations = events::differences("the answer", &once_closed(answer, record), "the record", record);
    if answer["truncated"] != false {
        violations.push(format!("truncated is {}, of little output", answer["truncated"]));
    }
    for (name, output) in ["stdout", "stderr"].into_iter().zip(outputs) {
        let output = String::from_utf8_lossy(output);
        let is_right = answer[name]
            .as_str()
            .is_some_and(|told| if answer["streams_open"] == true { output.starts_with(told) } else { output == told });
        if !is_right {
            violations.push(format!("the answer's {name} is not the output: {answer}"));
        }
    }
    violations
}

/// Each command is one of its terminal, in some session.
fn check_owners(observations: &[Observation]) -> Vec<String> {
    let terminal = observations.first().map(|first| first.record["terminal_id"].clone()).unwrap_or_default();
    let is_wrong = |observation: &&Observation| {
        let begins = |name: &str, with: &str| observation.record[name].as_str().is_some_and(|id| id.starts_with(with));
        observation.record["terminal_id"] != terminal
            || !begins("terminal_id", "term-")
            || !begins("session_id", "sess-")
    };
    let wrong = observations.iter().filter(is_wrong);
    wrong.map(|wrong| format!("not of terminal {terminal} and a session: the record is {}", wrong.record)).collect()
}

/// Commands of one terminal begin in the order in which they were sent.
fn check_order(observations: &[Observation], ran: &[String]) -> Vec<String> {
    let sent: Vec<&str> = observations.iter().map(|observation| observation.planned.id.as_str()).collect();
    let began: Vec<usize> = ran.iter().filter_map(|id| sent.iter().position(|sent| sent == id)).collect();
    if began.is_sorted() { Vec::new() } else { vec![format!("sent as {sent:?}, but run in the order {began:?}")] }
}

/// Reads everything a second time: what is final stays as it is, in every field and byte.
pub(super) fn read_again(wire: &Wire, work: &Work) -> Result<Vec<String>, Hung> {
    let mut violations = Vec::new();
    for observation in work.terminals.values().flatten().filter(|_| !work.deleted) {
        let Observation { planned, id, sent, .. } = observation;
        let again: Look = look_closely(wire, id, *sent)?;
        if observation.record["streams_open"] == true {
            continue;
        }
        let mut found = events::differences("a second look", &again.record, "the first", &observation.record);
        if (&again.stdout, &again.stderr) != (&observation.stdout, &observation.stderr) {
            found.push("its output changed after its end".to_owned());
        }
        if again.events != observation.events {
            found.push("its events changed after its end".to_owned());
        }
        violations.extend(found.into_iter().map(|what| format!("{}: {what}", planned.id)));
    }
    for fork in &work.forks {
        violations.extend(read_again(wire, &fork.work)?);
    }
    Ok(violations)
}

/// Asks for the same ids once more: the same record, and nothing runs.
pub(super) fn repeat(wire: &Wire, work: &Work) -> Result<Vec<String>, Hung> {
    let mut violations = Vec::new();
    if work.deleted {
        return Ok(violations);
    }
    let before = runs(work);
    for (terminal, observation) in work.terminals.iter().flat_map(|(name, all)| all.iter().map(move |one| (name, one)))
    {
        let Observation { planned, id, text, record, .. } = observation;
        let mut body = json!({ "command": text, "id": id, "create": false });
        if terminal != "default" {
            body["terminal"] = json!(terminal);
        }
        if let Some(timeout) = planned.timeout_ms {
            body["timeout_ms"] = json!(timeout);
        }
        let answer = insist(&planned.id, || wire.post(&format!("/api/threads/{}/exec", work.thread), &body))?;
        let mut found = events::differences("the answer to the same id again", &answer.json(), "the record", record);
        if record["streams_open"] == true {
            found.clear();
        }
        if answer.status != 200 {
            found = vec![format!("the same id again was refused: {}", answer.text())];
        }
        violations.extend(found.into_iter().map(|what| format!("{}: {what}", planned.id)));
    }
    let after = runs(work);
    if before != after {
        violations.push(format!("asking for ids again ran something: {before:?}, then {after:?}"));
    }
    for fork in &work.forks {
        violations.extend(repeat(wire, &fork.work)?);
    }
    Ok(violations)
}

/// What the terminals say of themselves, against what the last command left.
pub(super) fn check_terminals(wire: &Wire, work: &Work) -> Result<Vec<String>, Hung> {
    let mut violations = Vec::new();
    for (name, observations) in work.terminals.iter().filter(|_| !work.deleted) {
        let path = format!("/api/threads/{}/terminal?terminal={name}", work.thread);
        let terminal = insist("look at a terminal", || wire.get(&path))?.json();
        let is_run = |record: &&Value| {
            !matches!(record["status"].as_str(), Some("failed" | "lost")) && record["exit_code"] != -1
                || record["status"] == "timed_out"
        };
        let last = observations.iter().map(|observation| &observation.record).rfind(is_run);
        let is_known = work.unanswered.iter().all(|one| one.terminal != *name || one.after < observations.len());
        if let Some(last) = last
            && is_known
            && (terminal["version"] != last["state_version"] || terminal["cwd"] != last["cwd"])
        {
            violations.push(format!(
                "terminal {name} is at version {} in {}, the last command left version {} in {}; its record is {last}, the terminal is {terminal}",
                terminal["version"], terminal["cwd"], last["state_version"], last["cwd"]
            ));
        }
    }
    for fork in &work.forks {
        violations.extend(check_terminals(wire, &fork.work)?);
    }
    Ok(violations)
}

/// One more command in each terminal that was used, to be judged with the others: what the last one left must be there.
pub(super) fn probe(wire: &Wire, work: &mut Work) -> Result<(), Hung> {
    if work.deleted {
        return Ok(());
    }
    for (name, observations) in &mut work.terminals {
        let planned = Planned::new_answered(format!("{}-{name}-probe", work.thread), Body::Lines { count: 1, code: 3 });
        let text = planned.body.text(&planned.id, &work.place);
        let (sent, taken) = (Instant::now(), AtomicBool::new(false));
        let told = command::send(wire, &work.thread, Some(name), &planned, &text, &taken)?;
        let told = told.ok_or_else(|| Hung(format!("{} has no answer", planned.id)))?;
        observations.push(command::observe(wire, &planned, text, sent, told)?);
    }
    work.forks.iter_mut().try_for_each(|fork| probe(wire, &mut fork.work))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn differences(open: bool, output: &[u8]) -> usize {
        let told = json!({ "streams_open": open, "stdout_bytes": 1, "stderr_bytes": 0, "truncated": false,
            "stdout": "a", "stderr": "" });
        let record = json!({ "streams_open": false, "stdout_bytes": output.len(), "stderr_bytes": 0 });
        check_answer(&told, &record, [output, b""]).len()
    }

    #[test]
    fn an_answer_has_all_output_unless_somebody_went_on_writing() {
        assert_eq!((differences(false, b"a"), differences(true, b"a"), differences(true, b"ab")), (0, 0, 0));
        assert_eq!(differences(false, b"ab"), 2);
        assert_eq!((differences(true, b""), differences(true, b"b")), (2, 1));
    }
}
