//! An image of this machine's own programs, each with the libraries that it needs.

use super::skeleton::Tree;
use super::{BuildError, output, which};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What people and agents expect beside a shell. What isn't here is left out; only a shell has to be.
const USUAL: &str = "bash sh awk base64 basename cat chgrp chmod chown clear cmp comm cp curl cut date dd df diff dirname du \
                     echo env expr false file find fold getent git grep groups gunzip gzip head hostname id install join \
                     kill less ln ls make md5sum mkdir mkfifo mktemp more mount mv nl nohup nproc od paste patch pgrep \
                     pkill printenv printf ps pwd readlink realpath rm rmdir sed seq setsid sha256sum sleep sort split \
                     stat stty sync tail tar tee test timeout touch tr true truncate tty uname uniq unxz unzip watch wc \
                     which whoami xargs xz yes zcat";

/// Files that programs look for by themselves, where they are there.
const DATA: [&str; 4] = [
    "/usr/share/terminfo/x/xterm-256color",
    "/lib/terminfo/x/xterm-256color",
    "/lib/terminfo/x/xterm",
    "/etc/ssl/certs/ca-certificates.crt",
];

pub(super) fn write(more: &[String], out: impl Write) -> Result<(), BuildError> {
    let mut programs = Vec::new();
    for name in USUAL.split_whitespace() {
        match which(name) {
            Some(path) => programs.push((name, path)),
            None if name == "bash" => return Err(BuildError::NoProgram(name.to_owned())),
            None => {}
        }
    }
    for name in more {
        programs.push((name, which(name).ok_or_else(|| BuildError::NoProgram(name.clone()))?));
    }
    let mut tree = Tree::begin(out)?;
    for (path, to) in [("bin", "usr/bin"), ("sbin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")] {
        tree.link(path, to)?;
    }
    let mut written = BTreeSet::new();
    let mut libraries = BTreeSet::new();
    for (name, path) in &programs {
        if written.insert(format!("usr/bin/{name}")) {
            tree.file(&format!("usr/bin/{name}"), path, 0o755)?;
        }
        libraries.extend(needed(path)?);
    }
    for library in libraries {
        place(&mut tree, &mut written, &library, 0o755)?;
    }
    for path in DATA.map(PathBuf::from).iter().filter(|path| path.is_file()) {
        place(&mut tree, &mut written, path, 0o644)?;
    }
    tree.end()
}

/// Puts a file where it is on this machine; `/lib` and `/lib64` are names for what is below `/usr`.
fn place<W: Write>(
    tree: &mut Tree<W>,
    written: &mut BTreeSet<String>,
    path: &Path,
    mode: u32,
) -> Result<(), BuildError> {
    let text = path.to_string_lossy();
    let text = text.trim_start_matches('/');
    let inside = if text.starts_with("lib") { format!("usr/{text}") } else { text.to_owned() };
    if !written.insert(inside.clone()) {
        return Ok(());
    }
    tree.file(&inside, path, mode)
}

/// The libraries of a program, and its loader.
fn needed(program: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let said = match output("ldd", Command::new("ldd").arg(program)) {
        // A script, or static.
        Err(BuildError::Failed { .. }) => return Ok(Vec::new()),
        said => said?,
    };
    Ok(libraries(&said))
}

/// `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x..)` and `/lib64/ld-linux-x86-64.so.2 (0x..)`.
fn libraries(said: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let path = line.split_once("=> ").map_or(line, |(_, path)| path);
        let path = path.trim().split(" (").next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    said.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_ldd_says() {
        let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\tlibgone.so => not found\n\tstatically linked\n";
        let want = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(libraries(said), want.map(PathBuf::from));
    }

    #[test]
    fn an_image_of_this_machine_has_a_shell_with_all_it_needs() {
        let mut bytes = Vec::new();
        write(&[], &mut bytes).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let names: BTreeSet<String> =
            archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
        assert!(names.contains("usr/bin/bash") && names.contains("etc/passwd"), "{names:?}");
        for library in needed(Path::new("/bin/bash")).unwrap() {
            let name = library.file_name().unwrap().to_string_lossy().into_owned();
            assert!(names.iter().any(|path| path.starts_with("usr/lib") && path.ends_with(&name)), "{name}: {names:?}");
        }
    }
}
