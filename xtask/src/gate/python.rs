//! Programs and libraries of Python's, each set in an environment of its own below the target directory.

use super::tools;
use crate::cargo::{self, output};
use crate::failed::{Result, While};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs packages of Python, unless just these are there. The environment's directory.
pub(super) fn provide(place: &Path, packages: &[&str]) -> Result<PathBuf> {
    let wanted = packages.join("\n");
    let note = place.join("installed");
    if std::fs::read_to_string(&note).is_ok_and(|installed| installed == wanted) {
        return Ok(place.to_owned());
    }
    println!("   installing {} into {}", packages.join(", "), place.display());
    let venv = || {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv", "--clear"]).arg(place);
        venv
    };
    if output(&mut venv()).is_err() {
        tools::install(&["python3", "python3-venv"])?;
        output(&mut venv())?;
    }
    let mut pip = Command::new(place.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages);
    cargo::run(&mut pip).or_failed("what comes from PyPI can't be installed")?;
    std::fs::write(&note, wanted).or_failed("can't note what is installed")?;
    Ok(place.to_owned())
}
