//! A user of this machine without any rights, for as long as an engine runs as one.

use super::leftover;
use crate::cargo::{output, run};
use crate::failed::{Failed, Result, While};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What most machines have, and some have for root alone: a device for networks, which gives nobody a right. It is seen
/// by who is started here, and by nobody else. Mounts spread among those as they do on a machine that has booted.
const SURROUNDINGS: &str = "set -e; dir=$1; user=$2; shift 2; ip link set lo up; mount --make-rshared /; \
                            mount -t tmpfs -o mode=755 tmpfs \"$dir/devices\"; \
                            mknod -m 666 \"$dir/devices/tun\" c 10 200; \
                            mount --bind \"$dir/devices/tun\" /dev/net/tun; cd /; \
                            exec setpriv --reuid \"$user\" --regid \"$user\" --init-groups \"$@\"";

#[derive(Debug)]
pub(super) struct OrdinaryUser {
    name: String,
    home: PathBuf,
}

impl OrdinaryUser {
    pub(super) fn make(home: &Path) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Failed::new("only root can make a user"));
        }
        let name = format!("stead-{}", std::process::id());
        let mut useradd = Command::new("useradd");
        run(useradd.args(["--no-create-home", "--user-group", "--home-dir"]).arg(home).arg(&name))?;
        let user = Self { name, home: home.to_owned() };
        for dir in [home.to_owned(), home.join("run"), home.join("devices")] {
            fs::create_dir_all(&dir).or_failed(format!("can't make `{}`", dir.display()))?;
            run(Command::new("chown").arg(format!("{0}:{0}", user.name)).arg(&dir))?;
        }
        Ok(user)
    }

    /// A program as this user, in a network and among mounts of its own.
    pub(super) fn apart(&self, program: &str) -> Result<Command> {
        let path = std::env::var_os("PATH").or_failed("there is no PATH")?;
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-c", SURROUNDINGS, "sh"]).arg(&self.home).arg(&self.name).arg(program);
        command.env_clear().env("PATH", path).env("HOME", &self.home).env("XDG_RUNTIME_DIR", self.home.join("run"));
        // The kernel's own, for which no other program is needed.
        command.env("STORAGE_DRIVER", "overlay");
        Ok(command)
    }
}

impl Drop for OrdinaryUser {
    /// Ends what the user still runs, which is what an engine leaves to be found again, and removes the user.
    fn drop(&mut self) {
        if let Ok(uid) = output(Command::new("id").args(["-u", &self.name])) {
            leftover::kill(|process| is_of(process, uid.trim()));
        }
        if let Err(error) = run(Command::new("userdel").args(["--force", &self.name])) {
            println!("   the user `{}` is left: {error}", self.name);
        }
    }
}

fn is_of(process: &Path, uid: &str) -> bool {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()) == Some(uid)
}
