//! All of it again, started by a user without any right.

use crate::cell::{possible, skipped};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A user who is nobody, on any system.
const NOBODY: u32 = 65534;

#[test]
fn all_of_it_holds_when_an_ordinary_user_starts_it() {
    if !rustix::process::geteuid().is_root() {
        skipped("this is an ordinary user already");
        return;
    }
    if !possible() {
        return;
    }
    let dir = tempfile::Builder::new().prefix("ordinary-").tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let copy = |from: &Path, name: &str| {
        let to = dir.path().join(name);
        std::fs::copy(from, &to).unwrap();
        to
    };
    let tests = copy(&std::env::current_exe().unwrap(), "tests");
    let steward = copy(crate::rig::binary(), "steward");
    let user = NOBODY.to_string();
    let output = Command::new("setpriv")
        .args(["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"])
        .arg(tests)
        .args(["--test-threads=2", "--nocapture", "--skip", "ordinary::"])
        .env("STEWARD_UNDER_TEST", steward)
        .env("TMPDIR", dir.path())
        .current_dir("/")
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            skipped(&format!("can't become an ordinary user with setpriv(1): {error}"));
            return;
        }
    };
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for line in text.lines().filter(|line| line.contains("SKIPPED")) {
        skipped(&format!("for an ordinary user: {}", line.replace("SKIPPED: ", "")));
    }
    assert!(output.status.success(), "{text}");
}
