//! Sandboxes on somebody else's machines: their files and their journal are here when they are needed.

use crate::bench::Bench;
use std::fs;
use stead_model::lease::Seen;

pub(crate) async fn made_at_the_same_time_by_the_same_name_there_is_one(bench: &Bench) {
    let blueprint = bench.blueprint("together");
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let provider = if n % 2 == 0 { bench.provider.clone() } else { bench.successor() };
            let blueprint = blueprint.clone();
            tokio::spawn(async move { provider.create(&blueprint).await })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.unwrap().unwrap());
    }
    assert!(all.iter().all(|created| created == all.first().unwrap()), "{all:#?}");
    assert_eq!(bench.provider.list().await.unwrap().len(), 1);
}

pub(crate) async fn an_instance_is_measured_and_told_what_it_can(bench: &Bench) {
    let handle = bench.instance("says").await;
    let can = bench.provider.capabilities();
    assert!(can.steward && can.isolated && !can.durable_journal);
    let metrics = bench.provider.metrics(&handle).await.unwrap();
    assert!(metrics.memory_used_bytes.is_none_or(|bytes| bytes > 0), "{metrics:?}");
    assert_eq!(bench.provider.pause(&handle).await.is_ok(), can.pause);
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

pub(crate) async fn one_that_another_server_paused_is_resumed(bench: &Bench) {
    let handle = bench.instance("other").await;
    bench.shell(&handle, "main").await.run("cd /usr; export A=1").await;
    bench.provider.pause(&handle).await.unwrap();
    let other = bench.successor();
    assert_eq!(other.status(&handle).await, Ok(Seen::Paused));
    other.resume(&handle).await.unwrap();
    assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Running));
    assert_eq!(bench.shell(&handle, "main").await.out("pwd; echo $A").await, "/usr\n1\n");
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

pub(crate) async fn a_sandbox_that_is_lost_has_left_its_journal_and_its_files(bench: &Bench) {
    let blueprint = bench.blueprint("lost");
    let handle = bench.create(&blueprint).await;
    let shell = bench.shell(&handle, "main").await;
    let ran = shell.run("echo said; cd /usr; export LAST=1; echo kept > /workspace/kept").await;
    bench.provider.catch_up(&handle).await.unwrap();
    bench.provider.fetch(&handle).await.unwrap();
    drop(shell);
    bench.lose(&handle);
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    // The line to it may not have broken yet.
    while bench.provider.status(&handle).await != Ok(Seen::Gone) {
        assert!(std::time::Instant::now() < deadline, "it is still said to be there");
        tokio::task::yield_now().await;
    }
    let words = bench.provider.last_words(&handle).await.unwrap();
    let told = words.iter().find(|shell| shell.shell.as_str() == "main").unwrap();
    assert_eq!(told.state.cwd.0, b"/usr");
    assert!(told.commands.iter().any(|info| info.command == ran.info.command && info.status.is_final()));
    let next = bench.create(&bench.next(&blueprint)).await;
    let shell = bench.shell(&next, "main").await;
    assert_eq!(shell.out("cat /workspace/kept").await, "kept\n");
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
