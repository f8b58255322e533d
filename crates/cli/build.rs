//! Builds the static steward into the program when `STEAD_EMBED_STEWARD` names one, so that a single file is all that
//! has to be installed.

use std::error::Error;
use std::path::PathBuf;

const VARIABLE: &str = "STEAD_EMBED_STEWARD";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let value = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = PathBuf::from(path).canonicalize().map_err(|error| format!("{VARIABLE}: {error}"))?;
            println!("cargo::rerun-if-changed={}", path.display());
            format!("Some(include_bytes!({:?}))", path.display().to_string())
        }
        None => "None".to_owned(),
    };
    let out = std::env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    let text = format!("const EMBEDDED_STEWARD: Option<&'static [u8]> = {value};\n");
    std::fs::write(PathBuf::from(out).join("embedded_steward.rs"), text)?;
    Ok(())
}
