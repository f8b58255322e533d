//! `cargo xtask steward`: builds the static steward and puts it where a build of this tree looks for it.

use crate::cargo::Workspace;
use crate::failed::{Result, While};
use crate::gate::static_steward;
use std::fs;

pub(crate) fn provide() -> Result<String> {
    let workspace = Workspace::load()?;
    let built = static_steward::build(&workspace)?;
    // Beside `target/debug` and `target/release`, so that either finds it.
    let place = workspace.target.join("libexec/stead");
    fs::create_dir_all(&place).or_failed(format!("can't make `{}`", place.display()))?;
    let (path, new) = (place.join("steward"), place.join("steward.new"));
    // A container may have the old one mounted, and go on with it.
    fs::copy(&built.path, &new)
        .and_then(|_| fs::rename(&new, &path))
        .or_failed(format!("can't write `{}`", path.display()))?;
    Ok(format!("`{}` ({built})", path.display()))
}
