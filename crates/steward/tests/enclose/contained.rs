//! What can't be reached from inside.

use crate::cell::{Cell, owners, skipped};
use crate::rig::{code, seen};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

#[test]
fn another_enclosure_and_the_directory_of_all_are_not_there() {
    for owner in owners() {
        let Some(cell) = Cell::with(|spec| spec.owner = owner) else { return };
        let Some(other) = Cell::with(|spec| spec.owner = owner) else { return };
        std::fs::write(other.work().join("secret"), "of another").unwrap();
        let mut shell = cell.shell();
        for path in [other.work(), other.place(), cell.dir.path().to_owned(), "/root".into(), "/sys".into()] {
            let outcome = shell.run(format!("ls '{}'", path.display()));
            let stderr = String::from_utf8_lossy(&outcome.stderr).into_owned();
            assert!(code(&outcome) == Some(2) && stderr.contains("No such file"), "{}: {stderr}", path.display());
        }
        assert_eq!(shell.out("ls /tmp; ls -A /home /run/stead /run/stead/place/.."), {
            "/home:\nagent\n\n/run/stead:\nplace\nstead\n\n/run/stead/place/..:\nplace\nstead\n"
        });
        assert_eq!(shell.out("cat /proc/*/mountinfo | grep -c /old; true"), "0\n");
    }
}

/// Which of the host's paths it was made from is nobody's business inside, and who is inside not theirs to say.
#[test]
fn what_the_host_notes_of_an_enclosure_can_be_neither_read_nor_replaced() {
    for owner in owners() {
        let Some(cell) = Cell::with(|spec| spec.owner = owner) else { return };
        let mut shell = cell.shell();
        for file in ["spec", "enclosed"] {
            let path = format!("/run/stead/place/{file}");
            for deed in
                [format!("cat {path}"), format!("rm -f {path}"), format!("mv {path} /tmp"), format!("echo 1 >{path}")]
            {
                assert_ne!(code(&shell.run(deed.clone())), Some(0), "{deed}");
            }
        }
        assert_ne!(code(&shell.run("mv /run/stead /run/gone || rm -rf /run/stead/stead")), Some(0));
    }
}

#[test]
fn processes_of_the_host_can_be_neither_seen_nor_signalled_nor_traced() {
    for owner in owners() {
        let Some(cell) = Cell::with(|spec| spec.owner = owner) else { return };
        let mut shell = cell.shell();
        let me = std::process::id();
        let names = shell.out("ps -eo comm= | sort -u");
        assert_eq!(names, "bash\nps\nsort\nstead\n");
        assert!(me > 300, "a process of the enclosure may have the number {me} too");
        let outcome = shell.run(format!("kill -0 {me}"));
        assert!(String::from_utf8_lossy(&outcome.stderr).contains("No such process"), "{outcome:?}");
        assert_eq!(shell.out(&format!("ls -d /proc/{me} 2>/dev/null; true")), "");
        assert_eq!(shell.out("[ /proc/1/root/ -ef / ] && readlink /proc/1/root /proc/1/exe"), "/\n/run/stead/stead\n");
        let attach = format!("perl -e 'print syscall(101, 16, {me}, 0, 0), \" \", $!+0'");
        if cfg!(target_arch = "x86_64") {
            assert_eq!(shell.out(&attach), format!("-1 {}", libc_errno::ESRCH));
        }
    }
}

/// The numbers of errors that perl is asked for.
mod libc_errno {
    pub(super) const EPERM: i32 = 1;
    pub(super) const ESRCH: i32 = 3;
}

#[test]
fn a_child_of_its_own_can_be_traced() {
    let Some(cell) = Cell::new() else { return };
    let mut shell = cell.shell();
    if code(&shell.run("command -v strace")) != Some(0) {
        skipped("there is no strace");
        return;
    }
    assert_eq!(code(&shell.run("strace -f -o /tmp/trace sh -c 'true; true' && grep -q exited /tmp/trace")), Some(0));
}

#[test]
fn mounting_and_making_namespaces_is_refused() {
    for owner in owners() {
        let Some(cell) = Cell::with(|spec| spec.owner = owner) else { return };
        let mut shell = cell.shell();
        for deed in [
            "mount -t tmpfs none /tmp",
            "mount --bind / /tmp",
            "umount /etc/shadow",
            "umount -l /proc/sys",
            "unshare --user true",
            "unshare --user --map-root-user --mount true",
            "unshare --mount true",
            "unshare --net true",
            "nsenter --target 1 --mount true",
            "chroot /tmp true",
        ] {
            let outcome = shell.run(deed);
            assert!(!matches!(code(&outcome), Some(0 | 127)), "{deed}: {outcome:?}");
        }
        let clone3 = "perl -e 'print syscall(435, 0, 0), \" \", $!+0'";
        assert_eq!(shell.out(clone3), "-1 38", "no such call");
    }
}

/// Called by number, past what the programs themselves would check.
#[test]
fn dangerous_calls_are_refused_by_their_number() {
    if !cfg!(target_arch = "x86_64") {
        skipped("the numbers here are those of x86_64");
        return;
    }
    let Some(cell) = Cell::new() else { return };
    let mut shell = cell.shell();
    let calls = [
        ("mount", 165),
        ("umount2", 166),
        ("pivot_root", 155),
        ("open_tree", 428),
        ("move_mount", 429),
        ("fsopen", 430),
        ("fsconfig", 431),
        ("fsmount", 432),
        ("fspick", 433),
        ("mount_setattr", 442),
        ("setns", 308),
        ("keyctl", 250),
        ("add_key", 248),
        ("request_key", 249),
        ("bpf", 321),
        ("perf_event_open", 298),
        ("userfaultfd", 323),
        ("io_uring_setup", 425),
        ("open_by_handle_at", 304),
        ("kexec_load", 246),
        ("init_module", 175),
        ("finit_module", 313),
        ("delete_module", 176),
        ("reboot", 169),
        ("syslog", 103),
        ("swapon", 167),
        ("acct", 163),
        ("quotactl", 179),
        ("settimeofday", 164),
        ("clock_settime", 227),
        ("vhangup", 153),
        ("iopl", 172),
        ("ioperm", 173),
    ];
    for (name, number) in calls {
        // The same one as the x32 interface numbers it, where there is that.
        for number in [number, number | 0x4000_0000] {
            let said = shell.out(&format!("perl -e 'print syscall({number}, 0, 0, 0, 0, 0), \" \", $!+0'"));
            assert_eq!(said, format!("-1 {}", libc_errno::EPERM), "{name} ({number:#x})");
        }
    }
    for (what, call) in [
        ("TIOCSTI", "open T, \"</dev/tty\"; print syscall(16, fileno(T), 0x5412, $x = \"x\")"),
        ("TIOCLINUX", "open T, \"</dev/tty\"; print syscall(16, fileno(T), 0x541c, $x = \"x\")"),
        ("an odd personality", "print syscall(135, 0x0400000)"),
        ("unshare of time", "print syscall(272, 0x80)"),
    ] {
        assert_eq!(shell.out(&format!("perl -e '{call}, \" \", $!+0'")), "-1 1", "{what}");
    }
    assert_eq!(shell.out("perl -e 'print syscall(135, 0xffffffff)'"), "0", "asking for the personality is harmless");
}

#[test]
fn the_system_is_read_only() {
    for owner in owners() {
        let Some(cell) = Cell::with(|spec| spec.owner = owner) else { return };
        let mut shell = cell.shell();
        for path in ["/usr/x", "/etc/x", "/bin/x", "/x", "/dev/x", "/opt/x", "/run/stead/x", "/proc/sys/x", "/home/x"] {
            let outcome = shell.run(format!("touch {path}"));
            let stderr = String::from_utf8_lossy(&outcome.stderr).into_owned();
            let refused = ["Read-only", "Permission denied", "No such file"].iter().any(|word| stderr.contains(word));
            assert!(code(&outcome) != Some(0) && refused, "{path}: {stderr}");
        }
        for deed in ["chmod 600 /dev/null", "chmod 600 /usr/bin/env", "chmod 644 /etc/shadow", "chown 1000 /usr"] {
            assert_ne!(code(&shell.run(deed)), Some(0), "{deed}");
        }
        // The host's own null device is that of whoever starts us; it must not be within reach by a descriptor either.
        assert_ne!(code(&shell.run("perl -e 'for (glob \"/proc/[0-9]*/fd/[012]\") { chmod 0666, $_ and readlink($_) eq \"/dev/null\" and exit 0 } exit 1'")), Some(0));
    }
}

/// If root starts it, then root's files are at stake, and settings that root may write without any capability.
#[test]
fn private_files_and_settings_of_the_host_are_out_of_reach_even_if_root_starts_it() {
    for owner in owners() {
        let Some(cell) = Cell::with(|spec| spec.owner = owner) else { return };
        let mut shell = cell.shell();
        for path in ["/etc/shadow", "/etc/gshadow", "/etc/ssl/private"] {
            if std::fs::symlink_metadata(path).is_ok() {
                let outcome = shell.run(format!("if [ -d {path} ]; then ls {path}; else cat {path}; fi"));
                assert!(code(&outcome) != Some(0) && outcome.stdout.is_empty(), "{owner:?} {path}: {outcome:?}");
            }
        }
        if std::fs::metadata("/etc/shadow").is_ok_and(|meta| meta.permissions().mode() & 0o004 == 0) {
            assert_eq!(shell.out("stat -c '%s %a' /etc/shadow"), "0 0\n", "{owner:?}: it is not covered");
        }
        let private = "find /etc ! -type l ! -perm -004 -readable 2>/dev/null; true";
        assert_eq!(shell.out(private), "", "{owner:?}");
        let owned = "find /usr /etc /opt -maxdepth 2 ! -type l ! -fstype tmpfs -user agent 2>/dev/null; true";
        assert_eq!(shell.out(owned), "", "{owner:?}: the covers are not all that keeps the system's files apart");
        // With what they have already: a test that fails must not change the machine.
        for setting in ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/printk", "/proc/sys/vm/swappiness"] {
            let text = format!("cat {setting} >/tmp/setting && cat /tmp/setting >{setting}");
            assert_ne!(code(&shell.run(text)), Some(0), "{owner:?} {setting}");
        }
        assert_ne!(code(&shell.run(": >>/proc/sysrq-trigger")), Some(0), "{owner:?}");
        assert_eq!(shell.out("cat /etc/passwd | cut -d: -f1"), "root\nagent\nnobody\n");
        assert_eq!(shell.out("id -un; id -u; cat /etc/hostname; hostname"), "agent\n1000\nstead\nstead\n");
    }
}

#[test]
fn no_right_is_left_and_none_comes_back_even_to_user_0() {
    for uid in [1000, 0] {
        let Some(cell) = Cell::with(|spec| spec.user.uid = uid) else { return };
        let mut shell = cell.shell();
        let rights =
            shell.out("id -u; grep -hE '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status /proc/1/status | sort -u");
        let none = "0000000000000000";
        let expected = format!(
            "{uid}\nCapAmb:\t{none}\nCapBnd:\t{none}\nCapEff:\t{none}\nCapInh:\t{none}\nCapPrm:\t{none}\n\
             NoNewPrivs:\t1\nSeccomp:\t2\n"
        );
        assert_eq!(rights, expected);
    }
}

#[test]
fn nothing_that_the_starter_has_open_or_set_comes_along() {
    let (directory, (leak, _write)) = (
        rustix::fs::open("/", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap(),
        rustix::pipe::pipe().unwrap(),
    );
    let Some(cell) = Cell::new() else { return };
    let mut shell = cell.shell();
    let mine = std::fs::read_link(format!("/proc/self/fd/{}", leak.as_raw_fd())).unwrap();
    let all = shell.out("for fd in /proc/[0-9]*/fd/*; do readlink $fd; done | sort -u");
    assert!(!all.contains(mine.to_str().unwrap()), "{mine:?} is in {all}");
    assert_eq!(shell.out("for fd in /proc/[0-9]*/fd/*; do [ -d $fd ] && readlink $fd; done; true"), "");
    assert_eq!(shell.out("readlink /proc/[0-9]*/cwd | sort -u"), "/\n/workspace\n");
    drop(directory);
    assert_eq!(
        shell.out("tr '\\0' '\\n' </proc/1/environ"),
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nHOME=/home/agent\nUSER=agent\n\
         LOGNAME=agent\nLANG=C.UTF-8\nTERM=xterm-256color\n"
    );
}

#[test]
fn terminals_and_job_control_work() {
    let Some(cell) = Cell::new() else { return };
    let mut shell = cell.shell();
    assert_eq!(shell.out("sleep 1000 & jobs -r | wc -l; kill %1; wait $! 2>/dev/null; echo $?"), "1\n143\n");
    assert_eq!(shell.out("ps -o tty= -p $$"), "pts/0\n");
    assert_eq!(shell.out("(exec </dev/tty; [ -t 0 ] && stty size)"), "24 80\n");
    if code(&shell.run("command -v script")) != Some(0) {
        skipped("there is no script(1)");
        return;
    }
    assert_eq!(
        seen(&shell.run("script -qec tty /dev/null </dev/null")),
        (Some(0), "/dev/pts/1\r\n".into(), String::new())
    );
}

#[test]
fn nobody_inside_can_kill_the_first_process() {
    let Some(cell) = Cell::new() else { return };
    let mut shell = cell.shell();
    let first = cell.first();
    shell.run("for s in TERM HUP INT QUIT USR1 USR2 ALRM PIPE SEGV KILL STOP; do kill -$s 1; done");
    assert_eq!(shell.out("echo alive"), "alive\n");
    assert_eq!(cell.first(), first);
}

/// An enclosure is itself a machine on which none can be made.
#[test]
fn a_machine_that_can_not_do_it_says_which_step_failed_and_why() {
    let dir = tempfile::Builder::new().prefix("probe-").tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let Some(cell) = Cell::with(|spec| spec.read_only = vec![program.clone()]) else { return };
    let outcome = cell.shell().run(format!("{} --exact limits::open_files_stop_at_their_limit", program.display()));
    let (code, stdout, stderr) = seen(&outcome);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let reason = "SKIPPED: can't make namespaces: Operation not permitted (os error 1) (this seems to be a container";
    assert!(stderr.contains(reason), "{stdout}{stderr}");
}
