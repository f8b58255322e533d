//! A quick command whose every answer is known beforehand, and whether an answer is that.

use crate::campaign::chance::Chance;
use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) text: String,
    code: u8,
    stdout: String,
    stderr: String,
    /// It ends its shell.
    exits: bool,
    signal: Option<&'static str>,
    cwd: Option<&'static str>,
}

/// A terminal as its commands have left it.
#[derive(Debug, Clone)]
pub(super) struct Shell {
    pub(super) last_code: u8,
    pub(super) cwd: String,
    pub(super) version: u64,
}

impl Case {
    /// One of many ways to come to an exit code. `tag` makes its output its own.
    pub(super) fn new(chance: &mut Chance, tag: &str, shell: &Shell) -> Self {
        let code = u8::try_from(chance.below(256)).unwrap_or(1);
        let plain = |text: String| Self {
            text,
            code,
            stdout: String::new(),
            stderr: String::new(),
            exits: false,
            signal: None,
            cwd: None,
        };
        let always = |text: &str, code: u8| Self { code, ..plain(text.to_owned()) };
        match chance.below(20) {
            0 => always("false", 1),
            1 => always("! true", 1),
            2 => always("no_such_command_here 2>/dev/null", 127),
            3 => plain(format!("(exit {code})")),
            4 => plain(format!("f() {{ return {code}; }}; f")),
            5 => plain(format!("( (exit {code}) & wait $! )")),
            6 => plain(format!("(set -o pipefail; (exit {code}) | true)")),
            7 => Self { stdout: format!("{tag}\n"), ..plain(format!("echo {tag} | (cat; exit {code})")) },
            8 => plain(format!("sh -c 'exit {code}'")),
            // The shell tells of a program that a signal ended.
            9 => Self { stderr: "Terminated\n".to_owned(), ..always("sh -c 'kill -TERM $$'", 143) },
            10 => Self { stderr: "Killed\n".to_owned(), ..always("sh -c 'kill -KILL $$'", 137) },
            11 => Self { exits: true, stdout: format!("{tag}\n"), ..plain(format!("echo {tag}; exit {code}")) },
            12 => Self { exits: true, ..plain(format!("exit {code}")) },
            13 => Self { exits: true, signal: Some("KILL"), ..always("kill -KILL $$", 137) },
            // An orphan with a status of its own, which is nobody's answer.
            14 => always(&format!("( (sleep 0.0{}; exit {code}) & ) >/dev/null 2>&1", chance.below(10)), 0),
            15 => Self { stdout: format!("{}\n", shell.last_code), ..always("echo $?", 0) },
            16 => Self { cwd: Some("/"), ..always("cd /", 0) },
            17 => Self { cwd: Some("/usr"), ..always("cd /usr", 0) },
            18 => {
                let lines = chance.between(1, 200);
                let stdout = (1..=lines).flat_map(|line| format!("{tag} {line}\n").into_bytes()).collect();
                let stdout = String::from_utf8(stdout).unwrap_or_default();
                Self { stdout, ..plain(format!("for i in $(seq {lines}); do echo {tag} $i; done; (exit {code})")) }
            }
            _ => {
                let text = format!("echo out {tag}; echo err {tag} >&2; (exit {code})");
                Self { stdout: format!("out {tag}\n"), stderr: format!("err {tag}\n"), ..plain(text) }
            }
        }
    }

    /// Fields of an answer that are not what they must be. The shell goes on as the command left it.
    pub(super) fn check(&self, answer: &Value, id: &str, thread: &str, shell: &mut Shell) -> Vec<String> {
        shell.version += 1;
        shell.last_code = if self.exits { 0 } else { self.code };
        // These set a function or a variable (`cd` sets OLDPWD), or end their shell, which says what it leaves.
        let may_change = self.exits || ["f()", "for ", "cd "].iter().any(|start| self.text.starts_with(start));
        let moves = self.cwd.is_some_and(|cwd| cwd != shell.cwd);
        if let Some(cwd) = self.cwd {
            cwd.clone_into(&mut shell.cwd);
        }
        let wanted = json!({
            "id": id, "thread_id": thread, "command": self.text, "status": "exited", "exit_code": self.code,
            "signal": self.signal, "timed_out": false, "shell_exited": self.exits, "shell_replaced": false,
            "warnings": [], "stdout": self.stdout, "stderr": self.stderr, "stdout_bytes": self.stdout.len(),
            "stderr_bytes": self.stderr.len(), "truncated": false, "streams_open": false, "error": null,
            "cwd": shell.cwd, "state_version": shell.version,
        });
        let fields = wanted.as_object().into_iter().flatten();
        let wrong = fields.filter(|(name, value)| answer[name.as_str()] != **value);
        let mut told: Vec<String> =
            wrong.map(|(name, value)| format!("{name} is {}, not {value}", answer[name.as_str()])).collect();
        let changed = &answer["state_changed"];
        if !changed.is_boolean() || *changed == false && moves || *changed == true && !may_change {
            told.push(format!("state_changed is {changed}, where the directory changed: {moves}"));
        }
        if answer["oom_killed"] == true {
            told.push("oom_killed, though there was memory".to_owned());
        }
        for name in ["created_at", "started_at", "ended_at", "duration_ms", "session_id", "terminal_id"] {
            if answer[name].is_null() {
                told.push(format!("{name} is null"));
            }
        }
        shell.version = answer["state_version"].as_u64().unwrap_or(shell.version);
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell() -> Shell {
        Shell { last_code: 0, cwd: "/workspace".to_owned(), version: 3 }
    }

    #[test]
    fn each_wrong_field_is_told() {
        let case = Case {
            text: "exit 5".to_owned(),
            code: 5,
            stdout: String::new(),
            stderr: String::new(),
            exits: true,
            signal: None,
            cwd: None,
        };
        let right = json!({
            "id": "c", "thread_id": "t", "command": "exit 5", "status": "exited", "exit_code": 5, "signal": null,
            "timed_out": false, "shell_exited": true, "shell_replaced": false, "warnings": [], "stdout": "",
            "stderr": "", "stdout_bytes": 0, "stderr_bytes": 0, "truncated": false, "streams_open": false,
            "error": null, "cwd": "/workspace", "state_version": 4, "created_at": "x", "started_at": "x",
            "ended_at": "x", "duration_ms": 1, "session_id": "s", "terminal_id": "t", "state_changed": false,
        });
        assert_eq!(case.check(&right, "c", "t", &mut shell()), Vec::<String>::new());
        for name in right.as_object().unwrap().keys().filter(|name| !["signal", "error"].contains(&name.as_str())) {
            let mut wrong = right.clone();
            wrong[name] = Value::Null;
            assert_eq!(case.check(&wrong, "c", "t", &mut shell()).len(), 1, "{name}");
        }
    }

    #[test]
    fn a_seed_is_one_sequence_of_commands() {
        let texts = |seed| {
            let mut chance = Chance::new(seed, 1);
            (0..50).map(|_| Case::new(&mut chance, "x", &shell()).text).collect::<Vec<_>>()
        };
        assert_eq!(texts(1), texts(1));
        assert_ne!(texts(1), texts(2));
    }
}
