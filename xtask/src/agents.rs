//! Terminal agents for the tests: installed once, in the versions that are tested against, and then run where there is no
//! network.

use crate::cargo::{self, Workspace};
use crate::failed::{Failed, Result, While};
use crate::gate::Depth;
use crate::gate::tally::Tally;
use std::path::PathBuf;
use std::process::Command;

/// Name, package and version. Each has a directory of its own, so that names don't collide.
const AGENTS: [(&str, &str, &str); 5] = [
    ("codex", "@openai/codex", "0.166.0"),
    ("claude", "@anthropic-ai/claude-code", "2.1.325"),
    ("gemini", "@google/gemini-cli", "0.61.0"),
    ("auggie", "@augmentcode/auggie", "0.36.0"),
    ("opencode", "opencode-ai", "1.18.33"),
];

/// How many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    /// Two that start quickly.
    Quick,
}

/// How many of their tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tests {
    All,
    /// Those that no other step has run.
    WithThem,
}

impl Which {
    pub(crate) fn of(depth: Depth) -> Self {
        match depth {
            Depth::Full => Self::All,
            Depth::Quick => Self::Quick,
        }
    }

    fn has(self, name: &str) -> bool {
        self == Self::All || ["codex", "claude"].contains(&name)
    }
}

fn cache() -> Result<PathBuf> {
    if let Some(cache) = std::env::var_os("STEAD_AGENTS_CACHE") {
        return Ok(PathBuf::from(cache));
    }
    let home = std::env::var_os("HOME").or_failed("there is no HOME to keep agents below")?;
    Ok(PathBuf::from(home).join(".cache/stead/agents"))
}

/// Installs what is missing.
pub(crate) fn install(which: Which) -> Result<String> {
    let cache = cache()?;
    let mut new = Vec::new();
    for (name, package, version) in AGENTS.into_iter().filter(|(name, ..)| which.has(name)) {
        let dir = cache.join(format!("{name}-{version}"));
        if dir.join("node_modules/.bin").join(name).exists() {
            continue;
        }
        std::fs::create_dir_all(&dir).or_failed(format!("can't make `{}`", dir.display()))?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-fund", "--no-audit", "--prefix"]).arg(&dir).arg(format!("{package}@{version}"));
        cargo::run(&mut npm)
            .or_failed(format!("`{package}` can't be installed; the tests need npm and its registry"))?;
        new.push(name);
    }
    Ok(if new.is_empty() { "all are there".to_owned() } else { format!("installed {}", new.join(", ")) })
}

/// Runs the tests that need them, in a network namespace that has nothing but a loopback interface where that can be had.
pub(crate) fn test(workspace: &Workspace, which: Which, tests: Tests) -> Result<(String, Tally)> {
    install(which)?;
    let filter = match which {
        Which::All => "not test(/^bench::/)",
        Which::Quick => "not test(/^bench::|gemini|auggie|opencode|all_five/)",
    };
    let build = ["nextest", "run", "--package", "stead", "--test", "agents", "--no-run"];
    cargo::run(&mut workspace.cargo(&build))?;
    let ignored = match tests {
        Tests::All => "all",
        Tests::WithThem => "only",
    };
    let words = [
        "nextest",
        "run",
        "--retries",
        "0",
        "--package",
        "stead",
        "--test",
        "agents",
        "--run-ignored",
        ignored,
        "-E",
        filter,
    ];
    let tests = workspace.cargo(&words);
    let enclosed = Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success());
    if !enclosed {
        return Err(Failed::new(
            "no network namespace can be made here (`unshare --net`), and the tests want an empty one",
        ));
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    command.arg(tests.get_program()).args(tests.get_args()).current_dir(&workspace.root);
    command.envs(tests.get_envs().filter_map(|(name, value)| Some((name, value?))));
    cargo::run(&mut command)?;
    let did = match which {
        Which::All => "all agents do what they should",
        Which::Quick => "two agents do what they should; `cargo xtask test --agents` asks all",
    };
    Ok((did.to_owned(), Tally::of_last_run(workspace)?))
}

/// Measures; without `--quick` as a release build, and writes down what came of it. With `--quick` only if asked to.
pub(crate) fn bench(flags: &[&str]) -> Result {
    let workspace = Workspace::load()?;
    let mut words = vec!["test", "--package", "stead", "--test", "agents"];
    install(Which::Quick)?;
    let (mut quick, mut written) = (false, false);
    for flag in flags {
        match *flag {
            "--quick" => quick = true,
            "--write" => written = true,
            other => return Err(Failed::new(format!("`{other}` is no flag of this"))),
        }
    }
    words.extend((!quick).then_some("--release"));
    words.extend(["--", "--ignored", "--exact", "bench::overhead", "--nocapture"]);
    let mut command = workspace.cargo(&words);
    if quick {
        command.env("STEAD_BENCH_QUICK", "1");
    }
    if written || !quick {
        command.env("STEAD_BENCH_FILE", workspace.root.join("docs/benchmarks-agents.md"));
    }
    cargo::run(&mut command)
}
