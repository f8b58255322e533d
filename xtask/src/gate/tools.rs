//! Are the programs there that the tests run? What is missing is installed where we may, else named.

use super::static_steward;
use crate::cargo::{output, run};
use crate::failed::{Failed, Result, While};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Linked {
    Anyhow,
    /// It has to run in a root directory without libraries.
    Statically,
}

struct Tool {
    program: &'static str,
    /// The Debian package that has it.
    package: &'static str,
    linked: Linked,
}

const TOOLS: [Tool; 11] = [
    Tool { program: "bash", package: "bash", linked: Linked::Anyhow },
    Tool { program: "dash", package: "dash", linked: Linked::Anyhow },
    Tool { program: "busybox", package: "busybox-static", linked: Linked::Statically },
    Tool { program: "tmux", package: "tmux", linked: Linked::Anyhow },
    Tool { program: "ps", package: "procps", linked: Linked::Anyhow },
    Tool { program: "curl", package: "curl", linked: Linked::Anyhow },
    Tool { program: "faketime", package: "faketime", linked: Linked::Anyhow },
    Tool { program: "git", package: "git", linked: Linked::Anyhow },
    Tool { program: "openssl", package: "openssl", linked: Linked::Anyhow },
    Tool { program: "ip", package: "iproute2", linked: Linked::Anyhow },
    Tool { program: "unshare", package: "util-linux", linked: Linked::Anyhow },
];

pub(super) fn provide() -> Result<String> {
    let missing = missing()?;
    let target = static_steward::target();
    let target_is_missing = !is_target_installed(&target)?;
    if !missing.is_empty() {
        install_packages(&missing)?;
    }
    if target_is_missing {
        let mut rustup = Command::new("rustup");
        rustup.args(["target", "add", &target]);
        run(&mut rustup).or_failed(format!("the standard library for `{target}` is missing; install it"))?;
    }
    let nextest_is_missing = find("cargo-nextest").is_none();
    if nextest_is_missing {
        println!("   installing cargo-nextest, which runs the tests");
        run(Command::new("cargo").args(["install", "--locked", "cargo-nextest"]))?;
    }
    let mut installed = missing;
    installed.extend(target_is_missing.then_some(target.as_str()));
    installed.extend(nextest_is_missing.then_some("cargo-nextest"));
    let programs: Vec<_> = TOOLS.iter().map(|tool| tool.program).collect();
    Ok(match installed.as_slice() {
        [] => format!("found {} and the target `{target}`; installed nothing", programs.join(", ")),
        installed => format!("installed {}", installed.join(", ")),
    })
}

/// Packages of the tools that aren't there.
fn missing() -> Result<Vec<&'static str>> {
    let mut packages = Vec::new();
    for tool in TOOLS {
        let there = match (find(tool.program), tool.linked) {
            (None, _) => false,
            (Some(_), Linked::Anyhow) => true,
            (Some(path), Linked::Statically) => static_steward::is_static(&path)?,
        };
        if !there {
            packages.push(tool.package);
        }
    }
    Ok(packages)
}

/// The file that a program's name stands for.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

pub(crate) fn is_target_installed(target: &str) -> Result<bool> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]);
    Ok(Path::new(output(&mut rustc)?.trim()).is_dir())
}

/// A program that is good to have, from its Debian package if it isn't there.
pub(crate) fn provide_one(program: &str, package: &'static str) -> Result {
    if find(program).is_some() { Ok(()) } else { apt_install(&[package]) }
}

/// Packages that somebody turned out to need.
pub(super) fn install(packages: &[&'static str]) -> Result {
    apt_install(packages)
}

fn install_packages(packages: &[&'static str]) -> Result {
    apt_install(packages)?;
    let missing = missing()?;
    if missing.is_empty() {
        return Ok(());
    }
    let (names, missing) = (packages.join(" "), missing.join(" "));
    Err(Failed::new(format!("installed {names}, but what {missing} should have is still not there")))
}

fn apt_install(packages: &[&'static str]) -> Result {
    let names = packages.join(" ");
    if !rustix::process::geteuid().is_root() || find("apt-get").is_none() {
        return Err(Failed::new(format!(
            "we need what these Debian packages have: {names}; install them (`apt-get install {names}`)"
        )));
    }
    println!("   installing {names}");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    // Somebody else may be installing something; then it is our turn in a moment.
    let install = ["install", "--yes", "--no-install-recommends", "--option=DPkg::Lock::Timeout=300"];
    let install: Vec<_> = install.iter().chain(packages).copied().collect();
    // An image may come without package lists, or with old ones; fetching them takes time, so only then.
    if run(apt(&install).arg("--quiet")).is_err() {
        run(&mut apt(&["update", "--quiet"]))?;
        run(&mut apt(&install))?;
    }
    Ok(())
}
