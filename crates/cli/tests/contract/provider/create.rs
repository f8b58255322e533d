//! Instances come to be: one for each name, whatever happens meanwhile.

use crate::bench::{Bench, groups_named, handle, until};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use stead_model::lease::Seen;
use stead_server::provider::{Availability, Effect, Handle, Program, Trouble};
use stead_term::proc;

/// How many stewards and keepers there are.
fn of_our_program(bench: &Bench) -> usize {
    bench.playing("keep").len() + bench.playing("run").len()
}

pub(crate) async fn creating_makes_one_running_instance(bench: &Bench) {
    let blueprint = bench.blueprint("one");
    let created = bench.provider.create(&blueprint).await.unwrap();
    assert!(!created.reference.is_empty());
    let handle = handle(&blueprint, &created);
    assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
    let listed = bench.provider.list().await.unwrap();
    assert_eq!(listed.iter().map(|found| &found.handle).collect::<Vec<_>>(), [&handle]);
    if bench.lives() {
        assert_eq!(of_our_program(bench), 2, "a keeper and a steward");
    }
}

pub(crate) async fn creating_again_by_the_same_name_finds_the_same_instance(bench: &Bench) {
    let blueprint = bench.blueprint("again");
    let first = bench.provider.create(&blueprint).await.unwrap();
    let shell = bench.shell(&handle(&blueprint, &first), "main").await;
    let pid = shell.out("v=1; echo $$").await;
    let residents = || bench.residents().iter().map(|stat| stat.pid).collect::<Vec<_>>();
    let pids = residents();
    let second = bench.provider.create(&blueprint).await.unwrap();
    assert_eq!(first, second);
    until("the same processes", || residents() == pids).await;
    if bench.lives() {
        assert_eq!(shell.out("echo $v $$").await, format!("1 {pid}"));
    }
    assert_eq!(bench.provider.list().await.unwrap().len(), 1);
}

pub(crate) async fn creating_at_the_same_time_by_the_same_name_makes_one_instance(bench: &Bench) {
    for _ in 0..3 {
        let blueprint = bench.blueprint("together");
        let tasks: Vec<_> = (0..8)
            .map(|n| {
                // Every other one is of another server.
                let provider = if n % 2 == 0 || !bench.lives() { bench.provider.clone() } else { bench.successor() };
                let blueprint = blueprint.clone();
                tokio::spawn(async move { provider.create(&blueprint).await })
            })
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            all.push(task.await.unwrap().unwrap());
        }
        assert!(all.iter().all(|created| created == all.first().unwrap()), "{all:#?}");
        let handle = handle(&blueprint, all.first().unwrap());
        assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
        if bench.lives() {
            assert_eq!(of_our_program(bench), 2);
        }
        bench.provider.destroy(&handle).await.unwrap();
        assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
    }
}

/// Where the data directory keeps which instance it is.
fn note_of(bench: &Bench, handle: &Handle) -> PathBuf {
    bench.data().join("leases").join(handle.lease.as_str()).join("instance")
}

pub(crate) async fn creating_goes_on_where_a_server_was_killed(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    // As it is when the steward has been started and whoever did it was killed before it wrote down which it is.
    let blueprint = bench.blueprint("half");
    let whole = bench.provider.create(&blueprint).await.unwrap();
    let handle = handle(&blueprint, &whole);
    fs::write(note_of(bench, &handle), format!("{} 0 0 half\n", handle.instance)).unwrap();
    let provider = bench.successor();
    assert_eq!(provider.status(&handle).await, Ok(Seen::Running));
    assert_eq!(provider.create(&blueprint).await, Ok(whole.clone()));
    assert_eq!(of_our_program(bench), 2);
    // And as it is before the steward has been started.
    bench.massacre().await;
    assert_eq!(provider.status(&handle).await, Ok(bench.ended()));
    fs::write(note_of(bench, &handle), format!("{} 0 0 half\n", handle.instance)).unwrap();
    assert_eq!(provider.status(&handle).await, Ok(bench.ended()));
    let again = provider.create(&blueprint).await.unwrap();
    // A cloud names what it makes, and what is gone there is made under another name.
    assert!(again.reference == whole.reference || bench.is_afar() && bench.ended() == Seen::Gone, "{again:?}");
    let handle = crate::bench::handle(&blueprint, &again);
    assert_eq!(provider.status(&handle).await, Ok(Seen::Running));
    assert_eq!(of_our_program(bench), 2);
    // What is asleep or to be destroyed half-way works all the same.
    fs::write(note_of(bench, &handle), format!("{} 0 0 half\n", handle.instance)).unwrap();
    provider.pause(&handle).await.unwrap();
    assert_eq!(provider.status(&handle).await, Ok(Seen::Paused));
    provider.destroy(&handle).await.unwrap();
    assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
}

pub(crate) async fn another_instance_over_the_same_lease_takes_the_place_of_the_first(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let blueprint = bench.blueprint("place");
    let first = bench.create(&blueprint).await;
    let shell = bench.shell(&first, "main").await;
    shell.run("v=kept; sleep 1000 & setsid sleep 1000 >/dev/null 2>&1 &").await;
    let before = bench.processes();
    let second = bench.create(&bench.next(&blueprint)).await;
    assert_eq!(bench.provider.status(&first).await, Ok(Seen::Gone));
    assert_eq!(bench.provider.status(&second).await, Ok(Seen::Running));
    assert_eq!(of_our_program(bench), 2);
    let stayed: Vec<_> = bench.processes().into_iter().filter(|stat| before.contains(stat)).collect();
    assert_eq!(stayed, Vec::new(), "processes of the first live on");
    let shell = bench.heir(&first, &second, "main").await;
    assert_eq!(shell.out("echo $v").await, "kept\n", "what was said is the lease's");
    let listed = bench.provider.list().await.unwrap();
    assert_eq!(listed.iter().map(|found| &found.handle).collect::<Vec<_>>(), [&second]);
}

pub(crate) async fn an_instance_that_died_is_followed_by_another_over_the_same_lease(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let blueprint = bench.blueprint("died");
    let first = bench.create(&blueprint).await;
    let shell = bench.shell(&first, "main").await;
    shell.run("setsid sleep 1000 </dev/null >/dev/null 2>&1 & disown; cd /usr; export V=1; f() { echo f; }").await;
    let ends_as_one = bench.ends_with_its_keeper();
    // Its own are killed, not what runs in it: a daemon may be left.
    bench.kill_all(|| [bench.playing("keep"), bench.playing("run"), bench.playing("inherit")].concat()).await;
    if ends_as_one {
        // The kernel ends whoever was in the world of its first process, and takes a moment for it.
        until("all to be dead", || bench.processes().is_empty()).await;
    }
    let left = bench.processes();
    assert_eq!(left.is_empty(), ends_as_one, "{left:?}");
    let second = bench.create(&bench.next(&blueprint)).await;
    assert_eq!(bench.provider.status(&first).await, Ok(Seen::Gone));
    let stayed: Vec<_> = bench.processes().into_iter().filter(|stat| left.contains(stat)).collect();
    assert_eq!(stayed, Vec::new(), "processes of the first live on beside the second");
    let shell = bench.heir(&first, &second, "main").await;
    assert_eq!(shell.out("pwd; echo $V; f").await, "/usr\n1\nf\n");
}

pub(crate) async fn an_instance_that_died_asleep_is_followed_by_one_that_runs(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let blueprint = bench.blueprint("asleep");
    let first = bench.create(&blueprint).await;
    bench.provider.pause(&first).await.unwrap();
    // Where frozen processes can't die, they are killed as soon as they wake; it is no matter here.
    for stat in bench.processes() {
        proc::signal(stat.pid, Signal::KILL);
    }
    let second = bench.create(&bench.next(&blueprint)).await;
    assert_eq!(bench.provider.status(&second).await, Ok(Seen::Running));
    assert_eq!(bench.shell(&second, "main").await.out("echo here").await, "here\n");
}

pub(crate) async fn an_unusable_data_directory_is_an_error_that_did_nothing(bench: &Bench) {
    let file = bench.path().join("file");
    fs::write(&file, "").unwrap();
    let provider = bench.changed(|wish| wish.data = file.join("below"));
    let blueprint = bench.blueprint("nowhere");
    let error = provider.create(&blueprint).await.unwrap_err();
    assert_eq!(error.effect, Effect::None, "{error:?}");
    if bench.lives() {
        assert!(matches!(provider.availability().await, Availability::Missing { .. }));
        assert_eq!(bench.leftovers(&blueprint.lease), Vec::<String>::new());
    }
    if rustix::process::geteuid().is_root() {
        let mount = Mount::new(&bench.path().join("sealed"), "ro");
        let provider = bench.changed(|wish| wish.data = mount.0.join("data"));
        let error = provider.create(&blueprint).await.unwrap_err();
        assert_eq!(error.effect, Effect::None, "{error:?}");
        if bench.lives() {
            assert!(matches!(provider.availability().await, Availability::Missing { .. }));
        }
    } else {
        println!("SKIPPED: no right to mount");
    }
}

pub(crate) async fn a_missing_program_is_an_error_that_leaves_nothing_running(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let program = Program { path: bench.path().join("missing"), call: Vec::new() };
    let provider = bench.changed(|wish| wish.program = program);
    assert!(matches!(provider.availability().await, Availability::Missing { .. }));
    let blueprint = bench.blueprint("program");
    let error = provider.create(&blueprint).await.unwrap_err();
    assert_eq!(error.trouble, Trouble::Unavailable, "{error:?}");
    let handle = handle(&blueprint, &stead_server::provider::Created::default());
    assert_eq!(provider.status(&handle).await, Ok(Seen::Gone));
    assert_eq!(provider.list().await, Ok(Vec::new()));
    provider.destroy(&handle).await.unwrap();
    assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
    // When the program is there again, the same name can be asked for.
    bench.create(&blueprint).await;
    assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
}

/// A small file system of its own, gone with the value.
struct Mount(PathBuf);

impl Mount {
    fn new(path: &Path, options: &str) -> Self {
        fs::create_dir_all(path).unwrap();
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(path)
            .status()
            .unwrap();
        assert!(mount.success());
        Self(path.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

pub(crate) async fn a_full_disk_is_told_as_no_space(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: no right to mount");
        return;
    }
    for options in ["size=64k,nr_inodes=4,mode=700", "size=4k,mode=700"] {
        let mount = Mount::new(&bench.path().join("tiny"), options);
        let _ = fs::write(mount.0.join("ballast"), vec![0; 1 << 16]);
        let provider = bench.changed(|wish| wish.data.clone_from(&mount.0));
        let blueprint = bench.blueprint("full");
        let error = provider.create(&blueprint).await.unwrap_err();
        assert_eq!((error.trouble, error.effect), (Trouble::NoSpace, Effect::None), "{options}: {error:?}");
        let handle = handle(&blueprint, &stead_server::provider::Created::default());
        assert_eq!(provider.status(&handle).await, Ok(Seen::Gone));
        assert_eq!(groups_named(&[blueprint.lease.to_string()]), Vec::<PathBuf>::new(), "{options}");
    }
}
