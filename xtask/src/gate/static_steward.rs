//! The steward as it is put into sandboxes: does it build, is it really static, is it still small?

use crate::cargo::{self, Workspace};
use crate::failed::{Failed, Result, While};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// It is copied into every sandbox, so its size is part of what it promises.
const LARGEST: u64 = 3 << 20;

#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) path: PathBuf,
    size: u64,
}

impl fmt::Display for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "static, {} KiB of at most {} KiB", self.size.div_ceil(1 << 10), LARGEST >> 10)
    }
}

pub(crate) fn target() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

pub(crate) fn build(workspace: &Workspace) -> Result<Built> {
    let target = target();
    let arguments = ["build", "--profile", "dist", "--target", &target, "--package", "stead-steward"];
    cargo::run(&mut workspace.cargo(&arguments))?;
    let path = workspace.target.join(&target).join("dist/steward");
    let size = fs::metadata(&path).or_failed(format!("no `{}` after the build", path.display()))?.len();
    if !is_static(&path)? {
        return Err(Failed::new(format!("`{}` asks for a dynamic loader", path.display())));
    }
    if size > LARGEST {
        return Err(Failed::new(format!("`{}` has {size} bytes, more than {LARGEST}", path.display())));
    }
    Ok(Built { path, size })
}

/// Whether a program runs without a dynamic loader.
pub(crate) fn is_static(program: &Path) -> Result<bool> {
    let bytes = fs::read(program).or_failed(format!("can't read `{}`", program.display()))?;
    let asks = asks_for_loader(&bytes).or_failed(format!("`{}` is not a 64-bit ELF program", program.display()))?;
    Ok(!asks)
}

/// Looks for a `PT_INTERP` among the program headers (elf(5)).
fn asks_for_loader(elf: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?)));
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = usize::try_from(u64::from_le_bytes(elf.get(32..40)?.try_into().ok()?)).ok()?;
    let (size, count) = (half(54)?, half(56)?);
    for header in 0..count {
        let at = table.checked_add(header.checked_mul(size)?)?;
        let kind = u32::from_le_bytes(elf.get(at..at.checked_add(4)?)?.try_into().ok()?);
        if kind == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_is_seen_where_there_is_one() {
        // This test itself is linked against the C library.
        assert!(!is_static(&std::env::current_exe().unwrap()).unwrap());
        assert_eq!(asks_for_loader(b"#!/bin/sh\n"), None);
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert_eq!(asks_for_loader(&elf), Some(false));
    }
}
