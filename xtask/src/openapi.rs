//! `cargo xtask openapi`: the description of the HTTP interface, from the code, into the repository. A test compares.

use crate::cargo::{Workspace, output};
use crate::failed::{Result, While};

pub(crate) fn write() -> Result {
    let workspace = Workspace::load()?;
    let arguments = ["run", "--quiet", "--package", "stead-server", "--example", "openapi"];
    let text = output(&mut workspace.cargo(&arguments))?;
    let file = workspace.root.join("openapi.json");
    std::fs::write(&file, text).or_failed(format!("can't write `{}`", file.display()))?;
    println!("wrote {}", file.display());
    Ok(())
}
