//! Sandboxes on somebody else's machines: their files and their journal are here when they are needed.

use crate::bench::Bench;
use std::fs;
use std::time::{Duration, Instant};
use stead_model::lease::Seen;
use stead_model::project::Demands;
use stead_server::provider::Handle;

pub(crate) async fn an_instance_is_told_what_it_can(bench: &Bench) {
    let can = bench.provider.capabilities();
    assert!(can.steward && can.isolated && !can.durable_journal, "{can:?}");
    // How large a sandbox is comes with its template: what is asked for beside that is refused, not left out.
    let demands = [
        Demands { memory: Some(1 << 30), ..Demands::default() },
        Demands { processes: Some(100), ..Demands::default() },
        Demands { cpu_millis: Some(500), ..Demands::default() },
    ];
    let refused = demands.map(|demands| bench.provider.refuses(&demands));
    assert_eq!(refused, [Some("limits.memory"), Some("limits.processes"), Some("limits.cpu")]);
}

#[tokio::test]
async fn files_are_brought_here_before_the_end_of_what_its_cloud_does_not_know_the_state_of() {
    let Some(bench) = Bench::new(crate::sky::far).await else { return };
    let handle = bench.instance("blurred").await;
    bench.shell(&handle, "main").await.run("echo kept > file").await;
    crate::sky::blur(bench.path(), crate::bench::id_of(&handle));
    bench.provider.destroy(&handle).await.unwrap();
    assert_eq!(fs::read_to_string(bench.files("blurred").join("file")).unwrap(), "kept\n");
    assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
}

pub(crate) async fn another_instance_takes_the_place_of_the_first_with_its_files(bench: &Bench) {
    let blueprint = bench.blueprint("one");
    let first = bench.create(&blueprint).await;
    bench.shell(&first, "main").await.run("echo kept > file").await;
    let second = bench.create(&bench.next(&blueprint)).await;
    assert_eq!(bench.provider.status(&first).await, Ok(Seen::Gone));
    let found: Vec<_> = bench.provider.list().await.unwrap().into_iter().map(|found| found.handle).collect();
    assert_eq!(found, std::slice::from_ref(&second));
    assert_eq!(bench.shell(&second, "main").await.out("cat file").await, "kept\n");
}

pub(crate) async fn files_come_here_and_go_there(bench: &Bench) {
    let handle = bench.instance("both").await;
    let shell = bench.shell(&handle, "main").await;
    shell.run("mkdir -p a/b; echo one > a/b/f; chmod 640 a/b/f; ln -s b/f a/link; echo h > ~/at-home").await;
    bench.provider.fetch(&handle).await.unwrap();
    let here = bench.files("both");
    assert_eq!(fs::read_to_string(here.join("a/b/f")).unwrap(), "one\n");
    assert_eq!(fs::read_link(here.join("a/link")).unwrap().to_str(), Some("b/f"));
    let home = bench.provider.lasting("both").unwrap().home.unwrap();
    assert_eq!(fs::read_to_string(home.join("at-home")).unwrap(), "h\n");

    fs::write(here.join("a/b/f"), "two\n").unwrap();
    fs::write(here.join("new"), "new\n").unwrap();
    fs::remove_file(here.join("a/link")).unwrap();
    bench.provider.deliver(&handle).await.unwrap();
    assert_eq!(shell.out("cat a/b/f new; stat -c %a a/b/f; ls a").await, "two\nnew\n640\nb\n");

    shell.run("rm -r a; echo three > new").await;
    bench.provider.fetch(&handle).await.unwrap();
    assert!(!here.join("a").exists());
    assert_eq!(fs::read_to_string(here.join("new")).unwrap(), "three\n");
}

pub(crate) async fn what_was_written_here_while_it_slept_is_there_when_it_wakes(bench: &Bench) {
    if !bench.provider.capabilities().pause {
        return;
    }
    let handle = bench.instance("asleep").await;
    let shell = bench.shell(&handle, "main").await;
    shell.run("echo before > f; echo stays > g").await;
    drop(shell);
    bench.provider.pause(&handle).await.unwrap();
    let here = bench.files("asleep");
    assert_eq!(fs::read_to_string(here.join("f")).unwrap(), "before\n", "all is here before it sleeps");
    fs::write(here.join("f"), "meanwhile\n").unwrap();
    bench.provider.resume(&handle).await.unwrap();
    let shell = bench.shell(&handle, "main").await;
    assert_eq!(shell.out("cat f g").await, "meanwhile\nstays\n");
}

/// Takes a sandbox away behind everybody's back, and waits until that is seen: the line to it may not have broken yet.
async fn lose(bench: &Bench, handle: &Handle) {
    bench.lose(handle);
    let deadline = Instant::now() + Duration::from_mins(1);
    while bench.provider.status(handle).await != Ok(Seen::Gone) {
        assert!(Instant::now() < deadline, "it is still said to be there");
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn a_sandbox_that_is_lost_has_left_its_journal_and_its_files(bench: &Bench) {
    let blueprint = bench.blueprint("lost");
    let handle = bench.create(&blueprint).await;
    let shell = bench.shell(&handle, "main").await;
    let ran = shell.run("echo said; cd /usr; export LAST=1; echo kept > /workspace/kept").await;
    bench.provider.catch_up(&handle).await.unwrap();
    bench.provider.fetch(&handle).await.unwrap();
    drop(shell);
    lose(bench, &handle).await;
    let words = bench.provider.last_words(&handle).await.unwrap();
    let told = words.iter().find(|shell| shell.shell.as_str() == "main").unwrap();
    assert_eq!(told.state.as_ref().unwrap().cwd.0, b"/usr");
    assert!(told.commands.iter().any(|info| info.command == ran.info.command && info.status.is_final()));
    let next = bench.create(&bench.next(&blueprint)).await;
    let shell = bench.shell(&next, "main").await;
    assert_eq!(shell.out("cat /workspace/kept").await, "kept\n");
}

/// Where a cloud's own first process outlives them, the sandbox does: it is not lost for want of a steward.
pub(crate) async fn a_sandbox_whose_steward_and_keeper_were_killed_gets_others(bench: &Bench) {
    let handle = bench.instance("bare").await;
    let shell = bench.shell(&handle, "main").await;
    shell.run("setsid sleep 1000 </dev/null >/dev/null 2>&1 & disown; cd /usr; export V=1; echo kept > ~/kept").await;
    bench.kill_all(|| [bench.playing("keep"), bench.playing("run"), bench.playing("inherit")].concat()).await;
    assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
    let shell = bench.shell(&handle, "main").await;
    assert_eq!(shell.out("pwd; echo $V; cat ~/kept").await, "/usr\n1\nkept\n");
    assert_eq!((bench.playing("keep").len(), bench.playing("run").len()), (1, 1));
}

pub(crate) async fn what_was_made_and_not_prepared_is_prepared_by_another_server(bench: &Bench) {
    let blueprint = bench.blueprint("half");
    let handle = bench.create(&blueprint).await;
    bench.shell(&handle, "main").await.run("echo kept > file").await;
    bench.bring(&handle).await;
    // As it is when whoever prepared it was killed on the way: before the last step, which is to say that all are done.
    let made = crate::sky::outside(bench.path(), &handle, std::path::Path::new("/var/tmp/.stead/made")).unwrap();
    fs::remove_file(made).unwrap();
    let other = bench.successor();
    let again = other.create(&blueprint).await.unwrap();
    assert_eq!(again.reference, handle.reference);
    assert_eq!(bench.shell(&handle, "main").await.out("cat file").await, "kept\n");
    assert_eq!((bench.playing("keep").len(), bench.playing("run").len()), (1, 1));
}

pub(crate) async fn what_a_cloud_has_not_missed_yet_is_forgotten_there_too(bench: &Bench) {
    let handle = bench.instance("lost").await;
    bench.shell(&handle, "main").await.run("echo x > file").await;
    lose(bench, &handle).await;
    bench.provider.forget(&handle.lease, Some("lost")).await.unwrap();
    assert_eq!(bench.provider.list().await, Ok(Vec::new()));
    assert!(!bench.files("lost").exists());
}

pub(crate) async fn hostile_names_and_links_lead_nowhere(bench: &Bench) {
    let handle = bench.instance("hostile").await;
    let shell = bench.shell(&handle, "main").await;
    let outside = bench.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let target = outside.display();
    shell.run(format!("ln -s {target} dir; ln -s {target}/f file; mkdir real; echo x > real/f; touch -- '-rf' $'new\\nline' $'\\xff'")).await;
    bench.provider.fetch(&handle).await.unwrap();
    // What was a link becomes a directory with a file in it, and the other way round.
    shell.run("rm dir file; mkdir dir; echo in > dir/f; rm -r real; ln -s /etc real; mkfifo pipe").await;
    bench.provider.fetch(&handle).await.unwrap();
    let here = bench.files("hostile");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(here.join("dir/f")).unwrap(), "in\n");
    assert!(here.join("real").is_symlink() && !here.join("pipe").exists());
    let mut names: Vec<_> = fs::read_dir(&here).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 5, "{names:?}");
}

pub(crate) async fn many_files_and_large_ones_are_the_same_on_both_sides(bench: &Bench) {
    let handle = bench.instance("many").await;
    let shell = bench.shell(&handle, "main").await;
    shell
        .run("mkdir d; for i in $(seq 700); do echo $i > d/$i; done; head -c 3000000 /dev/urandom > large; : > empty")
        .await;
    bench.provider.fetch(&handle).await.unwrap();
    let here = bench.files("many");
    let sum = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let large = fs::read(here.join("large")).unwrap();
    assert_eq!((large.len(), fs::read(here.join("empty")).unwrap().len()), (3_000_000, 0));
    assert_eq!(fs::read_dir(here.join("d")).unwrap().count(), 700);
    let twice: Vec<u8> = large.iter().rev().copied().collect();
    fs::write(here.join("large"), &twice).unwrap();
    bench.provider.deliver(&handle).await.unwrap();
    shell.run("cp large copy").await;
    bench.provider.fetch(&handle).await.unwrap();
    assert_eq!(sum(&fs::read(here.join("copy")).unwrap()), sum(&twice));
}
