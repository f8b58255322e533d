//! With real processes in real groups, where the machine allows it.

use super::*;
use crate::poll;
use std::process::{Child, Command, ExitStatus, Stdio};

const SOON: Duration = Duration::from_secs(20);

/// A group that is killed and removed when the test ends, however it ends.
struct Cell(Group);

impl Drop for Cell {
    fn drop(&mut self) {
        let _ = self.0.thaw(SOON);
        let _ = self.0.kill(SOON);
        let removed = self.0.remove(SOON);
        if !std::thread::panicking() {
            removed.unwrap();
        }
    }
}

impl Cell {
    /// Starts a script that has joined the group before its first command; `$0` is `file`.
    fn start(&self, script: &str, file: &Path) -> Child {
        let join = "IFS=:; for file in $PROCS; do echo 0 > \"$file\" || exit 99; done; unset IFS; exec sh -c \"$SCRIPT\" \"$0\"";
        let files: Vec<String> = self.0.procs_files().iter().map(|path| path.to_str().unwrap().to_owned()).collect();
        let mut command = Command::new("sh");
        command.args(["-c", join]).arg(file).env("PROCS", files.join(":")).env("SCRIPT", script);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn run(&self, script: &str, file: &Path) -> ExitStatus {
        self.start(script, file).wait().unwrap()
    }
}

/// The cgroups, if they serve all of this here.
fn cgroups(needs: &[Need]) -> Option<Cgroups> {
    let cgroups = Cgroups::detect();
    let missing: Vec<String> = needs.iter().filter(|need| !cgroups.can(**need)).map(ToString::to_string).collect();
    if missing.is_empty() {
        return Some(cgroups);
    }
    println!("SKIPPED: no cgroup serves {}: {:#?}", missing.join(", "), cgroups.describe());
    None
}

fn name(test: &str) -> String {
    format!("test-{}-{test}", std::process::id())
}

fn cell(cgroups: &Cgroups, test: &str, limits: Limits) -> Cell {
    let (group, warnings) = cgroups.create(&name(test), &limits).unwrap();
    let cell = Cell(group);
    assert_eq!(warnings, []);
    cell
}

fn wait_for(what: &str, look: impl Fn() -> bool) {
    assert!(poll::until(Instant::now() + SOON, || Ok(look())).unwrap(), "{what}");
}

fn length(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.len())
}

fn grows(file: &Path, within: Duration) -> bool {
    let before = length(file);
    poll::until(Instant::now() + within, || Ok(length(file) > before)).unwrap()
}

#[test]
fn what_is_left_of_a_group_that_was_half_made_or_removed_is_killed_and_removed() {
    let Some(cgroups) = cgroups(&[Need::Kill]) else { return };
    let name = name("half");
    for left in 0..cgroups.homes.len() {
        let whole = cell(&cgroups, "half", Limits::default());
        for (place, file) in whole.0.procs_files().into_iter().enumerate() {
            if place != left {
                fs::remove_dir(file.parent().unwrap()).unwrap();
            }
        }
        let half = cgroups.find(&name).unwrap();
        half.kill(SOON).unwrap();
        half.remove(SOON).unwrap();
        assert!(cgroups.find(&name).is_none(), "hierarchy {left}");
    }
}

#[test]
fn memory_beyond_the_limit_kills() {
    let Some(cgroups) = cgroups(&[Need::Memory]) else { return };
    let cell = cell(&cgroups, "memory", Limits { memory: Some(64 << 20), ..Limits::default() });
    // A line of 200 MiB, all of which `tail` must hold.
    let script = "head -c 209715200 /dev/zero | tail -n 1 > /dev/null; exit $?";
    assert_eq!(cell.run(script, Path::new("x")).code(), Some(128 + 9));
    let usage = cell.0.usage();
    println!("{usage:?}");
    assert_eq!(usage.memory_limit, Some(64 << 20));
    assert!(usage.oom_kills != Some(0), "{usage:?}");
    assert!(cell.run("head -c 8388608 /dev/zero | tail -n 1 > /dev/null", Path::new("x")).success());
}

#[test]
fn a_fork_beyond_the_limit_is_refused() {
    let Some(cgroups) = cgroups(&[Need::Processes, Need::Kill]) else { return };
    let cell = cell(&cgroups, "pids", Limits { processes: Some(5), ..Limits::default() });
    let script = |processes: u32| format!("for i in $(seq {processes}); do sleep 1000 & done; kill $(jobs -p); exit 0");
    assert!(!cell.run(&script(10), Path::new("x")).success());
    cell.0.kill(SOON).unwrap();
    // Zombies count until they are reaped.
    wait_for("all are reaped", || cell.0.usage().tasks == Some(0));
    assert!(cell.run(&script(3), Path::new("x")).success());
    assert_eq!(cell.0.usage().tasks_limit, Some(5));
}

#[test]
fn processor_time_is_limited_and_counted() {
    let Some(cgroups) = cgroups(&[Need::Cpu, Need::CpuTime, Need::Kill]) else { return };
    let cell = cell(&cgroups, "cpu", Limits { cpu_millis: Some(200), ..Limits::default() });
    let mut child = cell.start("while :; do :; done", Path::new("x"));
    let used = || cell.0.usage().cpu_micros.unwrap();
    wait_for("it computes", || used() > 50_000);
    let (before, start) = (used(), Instant::now());
    poll::nap(Duration::from_secs(1));
    let (share, seconds) = (used() - before, start.elapsed().as_secs_f64());
    println!("{share} µs of processor time in {seconds:.3} s with a limit of 0.2");
    assert!(Duration::from_micros(share).as_secs_f64() < 0.5 * seconds);
    assert_eq!(cell.0.usage().cpu_limit_millis, Some(200));
    cell.0.kill(SOON).unwrap();
    child.wait().unwrap();
}

/// Both versions can freeze on a machine that has both.
fn freezers() -> Vec<Cgroups> {
    let read = |path| fs::read_to_string(path).unwrap();
    let all = detect::hierarchies(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
    let by = |version| {
        let some: Vec<_> = all.iter().filter(|hierarchy| hierarchy.version == version).cloned().collect();
        detect::choose(&some, probe::probe)
    };
    let able: Vec<Cgroups> =
        [by(Version::V1), by(Version::V2)].into_iter().filter(|cgroups| cgroups.can(Need::Freeze)).collect();
    if able.is_empty() {
        println!("SKIPPED: no cgroup freezes: {:#?}", Cgroups::detect().describe());
    }
    able
}

#[test]
fn a_frozen_group_stands_still_until_it_is_thawed() {
    let dir = tempfile::tempdir().unwrap();
    for (at, cgroups) in freezers().iter().enumerate() {
        println!("{:#?}", cgroups.describe());
        let file = dir.path().join(format!("count-{at}"));
        let cell = cell(cgroups, &format!("freeze-{at}"), Limits::default());
        let mut child = cell.start("while :; do echo >> \"$0\"; done", &file);
        assert!(grows(&file, SOON));
        for _ in 0..5 {
            let start = Instant::now();
            cell.0.freeze(SOON).unwrap();
            println!("frozen after {:?}", start.elapsed());
            assert!(cell.0.is_frozen().unwrap());
            assert!(!grows(&file, Duration::from_millis(50)), "a frozen group goes on");
            cell.0.thaw(SOON).unwrap();
            assert!(!cell.0.is_frozen().unwrap());
            assert!(grows(&file, SOON), "a thawed group doesn't go on");
        }
        // What is frozen can be killed, and leaves nothing frozen for who comes next.
        cell.0.freeze(SOON).unwrap();
        cell.0.kill(SOON).unwrap();
        child.wait().unwrap();
        assert!(!cell.0.is_frozen().unwrap());
    }
}

#[test]
fn nothing_that_forks_escapes_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    for (at, cgroups) in freezers().iter().enumerate() {
        let file = dir.path().join(format!("count-{at}"));
        let cell = cell(cgroups, &format!("kill-{at}"), Limits::default());
        // Each starts its successor and ends, many at a time, all of them orphans.
        let script = "relay() { echo >> \"$0\"; (relay &); }; for i in 1 2 3 4 5 6 7 8; do relay; done";
        let mut child = cell.start(script, &file);
        wait_for("it forks", || length(&file) > 100);
        let start = Instant::now();
        cell.0.kill(SOON).unwrap();
        println!("{} killed after {:?}", cgroups.describe()[4], start.elapsed());
        assert_eq!(cell.0.pids().unwrap(), Vec::<i32>::new());
        assert!(!grows(&file, Duration::from_millis(50)), "something goes on");
        child.wait().unwrap();
    }
}

#[test]
fn a_group_is_found_again_by_name_and_limited_anew() {
    let Some(cgroups) = cgroups(&[Need::Memory, Need::Processes, Need::Cpu, Need::Kill]) else { return };
    let some = Limits { memory: Some(64 << 20), processes: Some(50), cpu_millis: Some(5) };
    let first = cell(&cgroups, "adopt", some);
    let mut child = first.start("exec sleep 1000", Path::new("x"));
    let pid = i32::try_from(child.id()).unwrap();
    wait_for("it joins", || first.0.pids().unwrap() == [pid]);

    // As a server that knows nothing.
    let cgroups = Cgroups::detect();
    let found = cgroups.find(&name("adopt")).unwrap();
    assert_eq!((found.name(), found.pids().unwrap()), (name("adopt").as_str(), vec![pid]));
    assert!(cgroups.find(&name("none")).is_none());
    let listed: Vec<String> = cgroups.list(&name("adopt")).iter().map(|group| group.name().to_owned()).collect();
    assert_eq!(listed, [name("adopt")]);
    let limits_of = |group: &Group| {
        let usage = group.usage();
        Limits { memory: usage.memory_limit, processes: usage.tasks_limit, cpu_millis: usage.cpu_limit_millis }
    };
    assert_eq!(limits_of(&found), some);
    let more = Limits { memory: Some(128 << 20), processes: Some(60), cpu_millis: Some(2500) };
    for limits in [more, some, Limits::default(), more] {
        let (again, warnings) = cgroups.create(&name("adopt"), &limits).unwrap();
        assert_eq!((limits_of(&again), warnings), (limits, vec![]));
    }
    assert_eq!(found.usage().processes, Some(1));
    assert_eq!(found.remove(Duration::ZERO).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    found.kill(SOON).unwrap();
    child.wait().unwrap();
    found.remove(SOON).unwrap();
    found.remove(SOON).unwrap();
    assert!(cgroups.find(&name("adopt")).is_none());
}

#[test]
fn a_process_is_put_in_from_outside_and_groups_below_go_along() {
    let Some(cgroups) = cgroups(&[Need::Kill]) else { return };
    let cell = cell(&cgroups, "add", Limits::default());
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    cell.0.add(pid).unwrap();
    assert_eq!(cell.0.pids().unwrap(), [pid]);
    for file in cell.0.procs_files() {
        assert_eq!(fs::read_to_string(&file).unwrap().trim(), pid.to_string(), "{}", file.display());
        let below = file.parent().unwrap().join("below");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("cgroup.procs"), pid.to_string()).unwrap();
    }
    assert_eq!(cell.0.pids().unwrap(), [pid]);
    cell.0.kill(SOON).unwrap();
    child.wait().unwrap();
}

#[test]
fn we_neither_freeze_nor_kill_ourselves() {
    // To be listed is enough, and a group that lists us is easily faked.
    let dir = tempfile::tempdir().unwrap();
    let group = fake(dir.path(), Version::V2, "self").0;
    fs::write(dir.path().join("stead/self/cgroup.procs"), std::process::id().to_string()).unwrap();
    for refused in [group.freeze(SOON), group.kill(SOON)] {
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn a_limit_that_nothing_enforces_is_told() {
    let nowhere = detect::choose(&detect::hierarchies("", ""), probe::probe);
    let limits = Limits { memory: Some(1 << 30), processes: Some(10), cpu_millis: Some(500) };
    let (group, warnings) = nowhere.create("x", &limits).unwrap();
    let codes: Vec<&str> = warnings.iter().map(|warning| warning.code).collect();
    assert_eq!(codes, ["memory-not-limited", "processes-not-limited", "cpu-not-limited"]);
    assert_eq!(warnings[0].message, "memory of `x` is not limited: no cgroup hierarchy that could do it is mounted");
    assert_eq!((group.procs_files(), group.pids().unwrap(), group.usage()), (vec![], vec![], Usage::default()));
    assert_eq!(group.freeze(SOON).unwrap_err().kind(), io::ErrorKind::Unsupported);
    group.remove(SOON).unwrap();
    assert_eq!(nowhere.create("x", &Limits::default()).unwrap().1, []);
}

#[test]
fn names_and_limits_are_checked() {
    let nowhere = detect::choose(&[], probe::probe);
    for name in ["", "A", "a/b", "..", "a.b", "a b", "ä"] {
        assert_eq!(nowhere.create(name, &Limits::default()).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
        assert!(nowhere.find(name).is_none());
    }
    nowhere.create("a-0", &Limits::default()).unwrap();
    let zero = Limits { cpu_millis: Some(0), ..Limits::default() };
    assert_eq!(nowhere.create("a", &zero).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_name_that_a_file_has_is_refused() {
    let Some(cgroups) = cgroups(&[Need::Memory]) else { return };
    if cgroups.homes.iter().all(|home| home.version == Version::V2) {
        println!("SKIPPED: only version 1 has a file called `tasks`");
        return;
    }
    assert_eq!(cgroups.create("tasks", &Limits::default()).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

/// A group in a directory that only looks like a hierarchy; for what this machine's kernel can't show.
fn fake(parent: &Path, version: Version, name: &str) -> (Group, Cgroups) {
    let directory = parent.join(DIRECTORY).join(name);
    fs::create_dir_all(&directory).unwrap();
    for file in ["memory.max", "memory.swap.max", "pids.max", "cpu.max", "cgroup.procs", "cgroup.freeze"] {
        fs::write(directory.join(file), "").unwrap();
    }
    fs::write(parent.join("cgroup.controllers"), "cpuset cpu memory io\n").unwrap();
    for place in [parent, &parent.join(DIRECTORY)] {
        fs::write(place.join("cgroup.subtree_control"), "cpu memory\n").unwrap();
    }
    let home = Home { version, parent: parent.to_owned(), needs: Need::ALL.to_vec() };
    let cgroups = Cgroups { homes: vec![home], missing: BTreeMap::new() };
    (cgroups.find(name).unwrap(), cgroups)
}

#[test]
fn version_2_is_written_as_its_manual_says() {
    let dir = tempfile::tempdir().unwrap();
    let (group, cgroups) = fake(dir.path(), Version::V2, "x");
    let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
    let limits = Limits { memory: Some(1 << 20), processes: Some(7), cpu_millis: Some(1500) };
    let (_, warnings) = cgroups.create("x", &limits).unwrap();
    assert_eq!(read("stead/x/memory.max"), "1048576");
    assert_eq!(read("stead/x/memory.swap.max"), "0");
    assert_eq!(read("stead/x/cpu.max"), "150000 100000");
    let codes: Vec<&str> = warnings.iter().map(|warning| warning.code).collect();
    assert_eq!(codes, ["processes-not-limited"]);
    assert!(warnings[0].message.ends_with("has no pids controller to give"), "{}", warnings[0].message);
    assert_eq!(group.usage().cpu_limit_millis, Some(1500));
    cgroups.create("x", &Limits { cpu_millis: Some(5), ..Limits::default() }).unwrap();
    assert_eq!((read("stead/x/memory.max"), read("stead/x/memory.swap.max")), ("max".into(), "max".into()));
    assert_eq!(read("stead/x/cpu.max"), "5000 1000000");
    // Where swap isn't counted the rest holds all the same.
    fs::remove_file(dir.path().join("stead/x/memory.swap.max")).unwrap();
    let (_, warnings) = cgroups.create("x", &Limits { memory: Some(4096), ..Limits::default() }).unwrap();
    assert_eq!(warnings.iter().map(|warning| warning.code).collect::<Vec<_>>(), ["swap-not-limited"]);
}

#[test]
fn a_controller_is_enabled_at_both_levels_unless_it_is() {
    let dir = tempfile::tempdir().unwrap();
    fake(dir.path(), Version::V2, "x");
    let control =
        || ["", DIRECTORY].map(|at| fs::read_to_string(dir.path().join(at).join("cgroup.subtree_control")).unwrap());
    files::enable(dir.path(), "memory").unwrap();
    assert_eq!(control(), ["cpu memory\n", "cpu memory\n"]);
    files::enable(dir.path(), "io").unwrap();
    assert_eq!(control(), ["+io", "+io"]);
    assert_eq!(files::enable(dir.path(), "pids").unwrap_err().kind(), io::ErrorKind::Unsupported);
}

#[test]
fn the_kernel_passes_controllers_on_only_where_no_process_lives() {
    let Some(cgroups) = cgroups(&[Need::Kill]) else { return };
    let Some(home) = cgroups.homes.iter().find(|home| home.version == Version::V2) else {
        println!("SKIPPED: no cgroup of version 2");
        return;
    };
    let words = |path: PathBuf| -> Vec<String> {
        fs::read_to_string(path).unwrap().split_whitespace().map(str::to_owned).collect()
    };
    // Any will do to see the rule, even one that we don't use.
    let Some(controller) = words(home.parent.join("cgroup.controllers")).pop() else {
        println!("SKIPPED: cgroup v2 at {} has no controllers", home.parent.display());
        return;
    };
    let cell = cell(&cgroups, "inner", Limits::default());
    let all = home.parent.join(DIRECTORY);
    let group = all.join(name("inner"));
    let before = [&all, &home.parent].map(|place| (place, words(place.join("cgroup.subtree_control"))));
    let undo = || {
        for (place, enabled) in &before {
            if !enabled.contains(&controller) {
                let _ = files::write(&place.join("cgroup.subtree_control"), &format!("-{controller}"));
            }
        }
    };
    let enabled = files::enable(&home.parent, &controller);
    let given = words(group.join("cgroup.controllers"));
    let mut child = cell.start("exec sleep 1000", Path::new("x"));
    wait_for("it joins", || cell.0.pids().unwrap().len() == 1);
    fs::create_dir(group.join(DIRECTORY)).unwrap();
    let refused = files::enable(&group, &controller);
    cell.0.kill(SOON).unwrap();
    child.wait().unwrap();
    undo();
    enabled.unwrap();
    assert!(given.contains(&controller), "{given:?}");
    let refused = refused.unwrap_err();
    println!("{refused}");
    assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
}
