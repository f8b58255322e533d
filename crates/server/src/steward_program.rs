//! Which file is put into a sandbox as its steward: static, because nothing of this machine is in there.
//!
//! Looked for in this order: the file that was named, `steward` beside the running program or in `../libexec/stead`,
//! what was built into the program. `cargo xtask steward` builds it and puts it where a build of this tree finds it.

use sha2::Digest;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Names the file, for tests and for people who know better.
pub const VARIABLE: &str = "STEAD_STATIC_STEWARD";

/// What to do when there is none.
pub const HINT: &str = "`cargo xtask steward` builds it; or put a static `steward` beside the program `stead`";

#[derive(Debug, Clone)]
pub struct StewardProgram {
    named: Option<PathBuf>,
    /// The program that runs.
    program: PathBuf,
    /// Built into the program.
    embedded: Option<&'static [u8]>,
    /// Where what is built in is written out.
    bin: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum StewardMissing {
    #[error("no static steward is at `{0}`, which {VARIABLE} names")]
    Named(PathBuf),
    #[error("there is no static steward to put into sandboxes")]
    Nowhere,
    #[error("can't write the steward to `{path}`")]
    Unwritable { path: PathBuf, source: io::Error },
}

impl StewardProgram {
    pub fn new(named: Option<PathBuf>, program: &Path, embedded: Option<&'static [u8]>, data: &Path) -> Self {
        Self { named, program: program.to_owned(), embedded, bin: data.join("bin") }
    }

    /// This file and no other.
    pub fn at(path: &Path) -> Self {
        Self { named: Some(path.to_owned()), program: PathBuf::new(), embedded: None, bin: PathBuf::new() }
    }

    /// Where it is; written out first if it is built in. Waits for the disk.
    pub fn find(&self) -> Result<PathBuf, StewardMissing> {
        if let Some(named) = &self.named {
            return if is_static(named) { Ok(named.clone()) } else { Err(StewardMissing::Named(named.clone())) };
        }
        let above = self.program.parent().and_then(Path::parent);
        let installed = above.map(|above| above.join("libexec/stead/steward"));
        // Beside a debug build there may be one that needs the C library of this machine.
        let beside = [Some(self.program.with_file_name("steward")), installed].into_iter().flatten();
        if let Some(path) = beside.into_iter().find(|path| is_static(path)) {
            return Ok(path);
        }
        self.embedded.map_or(Err(StewardMissing::Nowhere), |bytes| self.write_out(bytes))
    }

    /// Named by what it holds: another version never takes the place of one that runs.
    fn write_out(&self, bytes: &[u8]) -> Result<PathBuf, StewardMissing> {
        let digest = sha2::Sha256::digest(bytes);
        let sum = digest.iter().take(8).fold(String::new(), |sum, byte| sum + &format!("{byte:02x}"));
        let path = self.bin.join(format!("steward-{sum}"));
        let there = fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() == bytes.len() as u64);
        if there {
            return Ok(path);
        }
        let write = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.bin)?;
            // Another server may be at it as well: each has its own, and either may be the last.
            let temporary = self.bin.join(format!("steward-{sum}.{}", std::process::id()));
            let mut options = File::options();
            let mut file = options.write(true).create(true).truncate(true).mode(0o755).open(&temporary)?;
            file.write_all(bytes)?;
            drop(file);
            fs::rename(temporary, &path)
        };
        write().map_err(|source| StewardMissing::Unwritable { path: path.clone(), source })?;
        Ok(path)
    }
}

/// Whether a file is a program that asks for no dynamic loader (elf(5)).
pub fn is_static(path: &Path) -> bool {
    let head = || {
        let mut head = Vec::new();
        File::open(path)?.take(4096).read_to_end(&mut head)?;
        io::Result::Ok(head)
    };
    head().is_ok_and(|head| asks_for_loader(&head) == Some(false))
}

/// The program headers follow the file's own at once in everything that linkers make.
fn asks_for_loader(head: &[u8]) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(*head.get(at..)?.first_chunk()?)));
    if head.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = usize::try_from(u64::from_le_bytes(*head.get(32..)?.first_chunk()?)).ok()?;
    let (size, count) = (half(54)?, half(56)?);
    let kind = |number: usize| {
        let at = table.checked_add(number.checked_mul(size)?)?;
        Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?))
    };
    let kinds: Option<Vec<u32>> = (0..count).map(kind).collect();
    Some(kinds?.contains(&INTERPRETER))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program header table of one entry.
    fn elf(kind: u32) -> Vec<u8> {
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 1;
        elf.extend(kind.to_le_bytes());
        elf.resize(64 + 56, 0);
        elf
    }

    #[test]
    fn the_file_that_was_named_is_taken_or_told_to_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("it");
        assert!(matches!(StewardProgram::at(&file).find(), Err(StewardMissing::Named(_))));
        fs::write(&file, elf(3)).unwrap();
        assert!(StewardProgram::at(&file).find().is_err(), "it asks for a loader");
        fs::write(&file, elf(1)).unwrap();
        assert_eq!(StewardProgram::at(&file).find().unwrap(), file);
    }

    #[test]
    fn one_that_is_installed_comes_before_what_is_built_in() {
        let dir = tempfile::tempdir().unwrap();
        let (bin, data) = (dir.path().join("bin"), dir.path().join("data"));
        fs::create_dir_all(&bin).unwrap();
        let embedded: &'static [u8] = b"built in";
        let program = |embedded| StewardProgram::new(None, &bin.join("stead"), embedded, &data);
        assert!(matches!(program(None).find(), Err(StewardMissing::Nowhere)));
        let written = program(Some(embedded)).find().unwrap();
        assert_eq!(fs::read(&written).unwrap(), embedded);
        assert!(written.starts_with(data.join("bin")));
        assert_eq!(program(Some(embedded)).find().unwrap(), written, "once is enough");
        assert_eq!(fs::read_dir(data.join("bin")).unwrap().count(), 1);
        // A program of this machine is of no use in there.
        fs::write(bin.join("steward"), elf(3)).unwrap();
        assert_eq!(program(Some(embedded)).find().unwrap(), written);
        fs::write(bin.join("steward"), elf(1)).unwrap();
        assert_eq!(program(Some(embedded)).find().unwrap(), bin.join("steward"));
    }
}
