//! The pages that newcomers follow, followed to the letter: every `$` line is typed into one shell, and what is printed
//! has to be what the page says, but for names and times. `...` on a page stands for anything.

mod compare;

use crate::rig::{PATIENCE, Rig, text_of, wait, wait_for};
use crate::terminal::Terminal;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What comes between the output of two lines.
const NEXT: &str = "\u{1e}";

/// Around the lines of a page: it is a network of its own, so the ports that the page names are free, and what it kills
/// is looked for below its own home. The build that it asks for is there already.
const PRELUDE: &str = r#"
ip link set lo up
shopt -s expand_aliases
mkdir -p target/release && ln -s "$STEAD" target/release/stead
cargo() {
    [ "$*" = "run --release -- serve" ] || return 0
    (stead serve >serve.out 2>serve.err &)
    until [ -s serve.out ]; do read -r -t 0.05 <> <(:); done
    cat serve.out
}
ours() {
    local pid
    for pid in $(pgrep -f 'stead serve'); do
        if tr '\0' '\n' </proc/$pid/environ 2>/dev/null | grep -qx "HOME=$HOME"; then echo "$pid"; fi
    done
}
pkill() {
    [ "$*" = "-9 -f stead serve" ] || { echo "another pkill: $*"; return 1; }
    kill -9 $(ours)
}
"#;

/// Ends the server, which takes what it runs along.
const EPILOGUE: &str = "
stead version >/dev/null
pids=$(ours)
kill $pids
for pid in $pids; do tail --pid=$pid -f /dev/null; done
";

const CONFIG: &str = "\
[provider.namespace]
kind = 'namespace'
on_exit = 'destroy'
[provider.local]
kind = 'local'
on_exit = 'destroy'
";

/// A line of a page, and what it says will be printed.
struct Step {
    line: String,
    printed: Vec<String>,
}

fn steps(page: &Path) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in text_of(page).lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(line), _) => steps.push(Step { line: line.to_owned(), printed: Vec::new() }),
                (None, Some(step)) => step.printed.push(line.to_owned()),
                (None, None) => panic!("`{line}` is printed before anything is typed"),
            },
        }
    }
    assert!(steps.len() > 10, "{} has only {} steps", page.display(), steps.len());
    steps
}

/// A shell in which the steps are typed.
struct Follower {
    rig: Rig,
    child: Child,
    printed: BufReader<std::process::ChildStdout>,
    gate: crate::rig::Gate,
}

impl Follower {
    /// None, with a word about it, where a page can't be followed.
    fn new(steps: &[Step]) -> Option<Self> {
        let rig = Rig::new();
        let said = rig.run(rig.stead(["doctor"]));
        let may = Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success());
        if !may || !said.stdout.contains("threads that name no provider get `namespace`") {
            println!("SKIPPED: no namespaces here: {}", said.stdout);
            return None;
        }
        std::fs::write(rig.scratch().join("stead.toml"), CONFIG).unwrap();
        let gate = rig.gate("gate");
        // What is typed reads nothing of what is typed next.
        let typed = |step: &Step| {
            let line = if sits_down(step) { gate.wait() } else { step.line.clone() };
            format!("printf '{NEXT}\\n'\n{{ {line}\n}} </dev/null 2>&1\n")
        };
        let typed: String = steps.iter().map(typed).collect();
        let script = format!("{PRELUDE}{typed}printf '{NEXT}\\n'\n{{ {EPILOGUE} }} >/dev/null 2>&1\n");
        let file = rig.scratch().join("steps.sh");
        std::fs::write(&file, script).unwrap();
        let stead = rig.stead(["--version"]);
        let mut command = Command::new("unshare");
        command.args(["--net", "bash"]).arg(file).current_dir(rig.scratch()).env_clear();
        command.envs(stead.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let directory = Path::new(stead.get_program()).parent().unwrap();
        command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", directory.display()));
        command.env("STEAD", stead.get_program());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let printed = BufReader::new(child.stdout.take().unwrap());
        let mut follower = Self { rig, child, printed, gate };
        assert_eq!(follower.next(), Vec::<String>::new(), "before the first step");
        Some(follower)
    }

    /// What is printed until the next step begins.
    fn next(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            let read = self.printed.read_until(b'\n', &mut line).unwrap();
            let line = String::from_utf8_lossy(&line);
            assert!(read > 0, "the shell ended; before that it printed {lines:?}");
            // Behind what ends without one there is no new line.
            let Some(last) = line.strip_suffix(&format!("{NEXT}\n")) else {
                lines.push(line.trim_end_matches('\n').to_owned());
                continue;
            };
            lines.extend((!last.is_empty()).then(|| last.to_owned()));
            return lines;
        }
    }

    /// At the terminal of a person: `stead attach`, what the page says to type, and the keys that leave.
    fn sit_down(&mut self, typed: &str) {
        let mut command = self.rig.stead(["attach"]);
        command.env("TERM", "xterm");
        let mut terminal = Terminal::with(Rig::new(), &command);
        terminal.expect("attached to `default`; ");
        wait_for("the raw terminal", || (!terminal.is_sane()).then_some(()));
        terminal.type_in(&format!("{typed}\r"));
        // Put together by the shell: not what was typed, but what came of it.
        terminal.type_in("echo do''ne\r");
        terminal.expect("done\r\n");
        terminal.type_in("\x1c");
        terminal.expect("left `default`");
        assert_eq!(terminal.end(), Some(0));
        self.gate.release();
    }
}

fn sits_down(step: &Step) -> bool {
    step.line.starts_with("stead attach")
}

impl Drop for Follower {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.rig.scratch().join(".local/share/stead/server.log");
            eprintln!("--- the server's log:\n{}", text_of(&log));
            let _ = self.child.kill();
            let _ = self.child.wait();
            let end = format!("{}\n{EPILOGUE}", PRELUDE.replace("ip link set lo up", ""));
            let mut command = Command::new("timeout");
            command.arg(PATIENCE.as_secs().to_string()).args(["bash", "-c", &end]).current_dir(self.rig.scratch());
            let _ = command.env("HOME", self.rig.scratch()).output();
        }
    }
}

#[track_caller]
fn follow(page: &str, typed: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let steps = steps(&page);
    let Some(mut follower) = Follower::new(&steps) else { return };
    for step in &steps {
        if sits_down(step) {
            follower.sit_down(typed);
        }
        let printed = follower.next();
        if let Some(difference) = compare::difference(&step.printed, &printed) {
            panic!("$ {}\n{difference}", step.line);
        }
    }
    assert!(wait(&mut follower.child).success());
}

#[test]
fn the_readme_does_what_it_says() {
    follow("README.md", "");
}

#[test]
fn the_tutorial_does_what_it_says() {
    follow("docs/tutorial.md", "cd /usr");
}
