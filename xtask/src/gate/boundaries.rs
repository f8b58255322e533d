//! Does every crate depend only on what it may, and is `unsafe` only where it may be?
//!
//! The compiler can't tell a good dependency from a bad one, and a lint can be allowed away in the file that breaks
//! it; this looks from outside.

use super::source;
use crate::cargo::{Package, Workspace, output};
use crate::failed::{Failed, Result, While};
use std::fs;
use std::path::{Path, PathBuf};

enum May {
    DependOn(&'static [&'static str]),
    DependOnAnything,
}

/// `model <- term <- steward <- cli`. A crate that isn't here has to be given its place first.
const RULES: [(&str, May); 9] = [
    ("stead-model", May::DependOn(&[])),
    ("stead-agent", May::DependOn(&[])),
    ("stead-term", May::DependOn(&["stead-model"])),
    ("stead-steward", May::DependOn(&["stead-model", "stead-term"])),
    // The last two in its tests: the clouds to test against, and what is to run there.
    ("stead-clouds", May::DependOn(&["stead-model", "stead-testclouds", "stead-steward"])),
    ("stead-testclouds", May::DependOn(&[])),
    ("stead-server", May::DependOn(&["stead-model", "stead-agent", "stead-term", "stead-steward", "stead-clouds"])),
    ("stead", May::DependOnAnything),
    ("xtask", May::DependOnAnything),
];

/// The pure crates, and what would let them reach the world, however far down.
const PURE: [&str; 2] = ["stead-model", "stead-agent"];
const WORLDLY: [&str; 3] = ["tokio", "rustix", "libc"];

/// The only crate that may have `unsafe` code.
const MAY_BE_UNSAFE: &str = "stead-term";

pub(super) fn check(workspace: &Workspace) -> Result<String> {
    let mut broken = wrong_directions(&workspace.packages);
    for pure in PURE {
        let tree = ["tree", "--package", pure, "--edges", "normal", "--prefix", "none", "--format", "{p}"];
        broken.extend(worldly_packages(pure, &output(&mut workspace.cargo(&tree))?));
    }
    let mut files = 0;
    for package in workspace.packages.iter().filter(|package| package.name != MAY_BE_UNSAFE) {
        for file in rust_files(&package.directory)? {
            let text = fs::read_to_string(&file).or_failed(format!("can't read `{}`", file.display()))?;
            files += 1;
            if let Some(line) = source::line_of_word(&text, "unsafe") {
                let file = file.strip_prefix(&workspace.root).unwrap_or(&file);
                broken.push(format!("`{}:{line}` has `unsafe`, which belongs in `{MAY_BE_UNSAFE}`", file.display()));
            }
        }
    }
    if broken.is_empty() {
        let crates = workspace.packages.len();
        return Ok(format!(
            "{crates} crates point the right way, {files} files outside `{MAY_BE_UNSAFE}` are safe code"
        ));
    }
    Err(Failed::new(broken.join("\n")))
}

fn wrong_directions(packages: &[Package]) -> Vec<String> {
    let mut broken = Vec::new();
    for package in packages {
        let Some((_, may)) = RULES.iter().find(|(name, _)| *name == package.name) else {
            broken.push(format!("`{}` has no rule; say in xtask what it may depend on", package.name));
            continue;
        };
        let May::DependOn(allowed) = may else {
            continue;
        };
        let ours = |name: &&String| packages.iter().any(|other| other.name == **name);
        for name in package.dependencies.iter().filter(ours) {
            if !allowed.contains(&name.as_str()) {
                broken.push(format!("`{}` must not depend on `{name}`", package.name));
            }
        }
    }
    broken
}

/// `tree` has one package to a line: name, version, perhaps more.
fn worldly_packages(pure: &str, tree: &str) -> Vec<String> {
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let mut found: Vec<_> = names.filter(|name| WORLDLY.contains(name)).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|name| format!("`{pure}` must not depend on `{name}`, not even through others")).collect()
}

fn rust_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let failed = || format!("can't list `{}`", directory.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).or_failed(failed())? {
        let path = entry.or_failed(failed())?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies.iter().map(|name| (*name).to_owned()).collect();
        Package { name: name.to_owned(), directory: PathBuf::new(), dependencies }
    }

    #[test]
    fn a_crate_may_not_point_upwards_and_a_new_one_needs_a_rule() {
        let good = [
            package("stead-model", &["minicbor"]),
            package("stead-term", &["stead-model", "rustix"]),
            package("stead-steward", &["stead-term", "stead-model"]),
            package("stead", &["stead-steward"]),
        ];
        assert_eq!(wrong_directions(&good), Vec::<String>::new());
        let bad = [package("stead-model", &["stead-term"]), package("stead-term", &[]), package("extra", &[])];
        let said = [
            "`stead-model` must not depend on `stead-term`",
            "`extra` has no rule; say in xtask what it may depend on",
        ];
        assert_eq!(wrong_directions(&bad), said);
    }

    #[test]
    fn the_pure_crate_may_not_reach_the_world_through_others() {
        assert_eq!(
            worldly_packages("stead-model", "stead-model v0.1.0 (/x)\nminicbor v2.3.1\nlibcrux v1.0.0\n"),
            Vec::<String>::new()
        );
        let said = ["`stead-model` must not depend on `libc`, not even through others"];
        assert_eq!(
            worldly_packages("stead-model", "stead-model v0.1.0\nmio v1.0.0\nlibc v0.2.1\nlibc v0.2.1 (*)\n"),
            said
        );
    }
}
