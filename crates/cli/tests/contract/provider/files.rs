//! What lasts longer than an instance, and who sees it.

use crate::bench::{Bench, walk};
use std::fs;
use stead_model::lease::Seen;
use stead_server::provider::{Effect, Trouble};

pub(crate) async fn surroundings_are_usable(bench: &Bench) {
    let handle = bench.instance("usable").await;
    let shell = bench.shell(&handle, "main").await;
    let surroundings = bench.provider.surroundings("usable");
    let cwd = String::from_utf8(surroundings.cwd.clone()).unwrap();
    assert_eq!(shell.out("pwd; pwd -P").await, format!("{cwd}\n{cwd}\n"));
    let tools = "bash cat cp env find grep ls mkdir mv rm sed sh sleep sort tar";
    assert_eq!(
        shell.out(&format!("for tool in {tools}; do command -v $tool >/dev/null || echo $tool; done")).await,
        ""
    );
    let name = shell.out("cd; echo it >.probe-$$; cat .probe-$$; rm .probe-$$; cd - >/dev/null").await;
    assert_eq!(name, "it\n");
    assert_eq!(shell.out("cd ~; [ \"$PWD\" = \"$HOME\" ] && echo yes").await, "yes\n");
    let scratch = surroundings.scratch;
    assert_eq!(shell.out(&format!("t=$(mktemp -d {scratch}/x.XXXXXX) && rmdir $t && echo yes")).await, "yes\n");
    for (name, value) in &surroundings.env {
        let (name, value) = (String::from_utf8(name.clone()).unwrap(), String::from_utf8(value.clone()).unwrap());
        assert_eq!(shell.out(&format!("printenv {name}")).await, format!("{value}\n"));
    }
    // Nothing of the server's own environment.
    assert_eq!(shell.out("env | grep -c -e CARGO -e NEXTEST || :").await, "0\n");
}

pub(crate) async fn a_workspace_and_its_home_outlive_an_instance(bench: &Bench) {
    let blueprint = bench.blueprint("lasts");
    let first = bench.create(&blueprint).await;
    let shell = bench.shell(&first, "main").await;
    shell.run("echo work >file; mkdir -p deep/er; echo x >deep/er/x; chmod 751 deep; ln -s file link").await;
    if bench.lives() {
        shell.run("echo home >~/file").await;
    }
    bench.provider.destroy(&first).await.unwrap();
    let second = bench.create(&bench.next(&blueprint)).await;
    let shell = bench.shell(&second, "other").await;
    assert_eq!(
        shell.out("cat file link deep/er/x; stat -c %a deep; echo more >>file; cat file").await,
        "work\nwork\nx\n751\nwork\nmore\n"
    );
    if bench.lives() {
        assert_eq!(shell.out("cat ~/file").await, "home\n");
    }
}

pub(crate) async fn a_workspace_is_shared_by_its_leases_and_by_no_others(bench: &Bench) {
    let [first, second, third] = ["shared", "shared", "other"].map(|workspace| bench.instance(workspace));
    let (first, second, third) = (first.await, second.await, third.await);
    let (one, two, other) =
        (bench.shell(&first, "a").await, bench.shell(&second, "a").await, bench.shell(&third, "a").await);
    // Where each has a copy, what one did is here when it has been brought, and with the other when it has been taken.
    let pass = async |from, to| {
        bench.bring(from).await;
        bench.take(to).await;
    };
    one.run("echo mine >file").await;
    pass(&first, &second).await;
    assert_eq!(two.out("cat file; echo yours >>file").await, "mine\n");
    pass(&second, &first).await;
    assert_eq!(one.out("cat file").await, "mine\nyours\n");
    bench.take(&third).await;
    assert_eq!(other.out("ls").await, "");
    if bench.lives() {
        one.run("echo home >~/file").await;
        pass(&first, &second).await;
        assert_eq!(two.out("cat ~/file").await, "home\n");
        assert_eq!(other.out("ls ~").await, "");
    }
    if bench.provider.capabilities().isolated {
        let data = bench.data().display().to_string();
        let seen = other.run(format!("ls {data}; ls {}", bench.files("shared").display())).await;
        assert_eq!((seen.code(), seen.stdout), (Some(2), Vec::new()));
    }
}

pub(crate) async fn files_inside_are_where_the_trees_say(bench: &Bench) {
    let handle = bench.instance("trees").await;
    let shell = bench.shell(&handle, "main").await;
    shell.run("echo in >from-inside").await;
    bench.bring(&handle).await;
    let files = bench.files("trees");
    assert_eq!(fs::read_to_string(files.join("from-inside")).unwrap(), "in\n");
    fs::write(files.join("from-outside"), "out\n").unwrap();
    bench.take(&handle).await;
    assert_eq!(shell.out("cat from-outside; rm from-outside").await, "out\n");
    let surroundings = bench.provider.surroundings("trees");
    let real = String::from_utf8(surroundings.real(b"/workspace/from-inside")).unwrap();
    assert_eq!(shell.out(&format!("cat {real}")).await, "in\n");
    assert_eq!(surroundings.stored(real.as_bytes()), b"/workspace/from-inside");
}

pub(crate) async fn forgetting_removes_what_was_kept_and_is_refused_while_it_lives(bench: &Bench) {
    let handle = bench.instance("forgotten").await;
    let mut shell = bench.shell(&handle, "main").await;
    shell.run("mkdir -p a/b; echo x >a/b/c; chmod 500 a/b; ln -s / root; mkfifo pipe").await;
    for _ in 0..2 {
        let error = bench.provider.forget(&handle.lease, Some("forgotten")).await.unwrap_err();
        assert_eq!((error.trouble, error.effect), (Trouble::Conflict, Effect::None));
        assert_eq!(shell.out("cat a/b/c").await, "x\n");
        bench.provider.pause(&handle).await.unwrap();
        let error = bench.provider.forget(&handle.lease, None).await.unwrap_err();
        assert_eq!((error.trouble, error.effect), (Trouble::Conflict, Effect::None));
        bench.provider.resume(&handle).await.unwrap();
        shell = bench.after_pause(&handle, shell).await;
    }
    bench.provider.destroy(&handle).await.unwrap();
    bench.provider.forget(&handle.lease, Some("forgotten")).await.unwrap();
    let left = walk(&bench.data(), &|kind| !kind.is_dir());
    assert_eq!(left, Vec::<std::path::PathBuf>::new());
    assert!(!bench.files("forgotten").exists());
    // Twice is the same as once.
    bench.provider.forget(&handle.lease, Some("forgotten")).await.unwrap();
    assert!(bench.provider.last_words(&handle).await.unwrap().is_empty());
    assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Gone));
}

pub(crate) async fn forgetting_a_lease_leaves_the_workspace_to_others(bench: &Bench) {
    let one = bench.instance("kept").await;
    let other = bench.instance("kept").await;
    bench.shell(&one, "main").await.run("echo x >file").await;
    bench.provider.destroy(&one).await.unwrap();
    bench.provider.forget(&one.lease, None).await.unwrap();
    bench.take(&other).await;
    assert_eq!(bench.shell(&other, "main").await.out("cat file").await, "x\n");
}

pub(crate) async fn forgetting_what_died_leaves_nothing_behind(bench: &Bench) {
    if !bench.lives() {
        return;
    }
    let handle = bench.instance("died").await;
    bench.shell(&handle, "main").await.run("echo x >file").await;
    bench.massacre().await;
    if bench.ended() == Seen::Paused {
        // Its disk is there still, as that of one that sleeps.
        let error = bench.provider.forget(&handle.lease, Some("died")).await.unwrap_err();
        assert_eq!((error.trouble, error.effect), (Trouble::Conflict, Effect::None));
        bench.provider.destroy(&handle).await.unwrap();
    }
    bench.provider.forget(&handle.lease, Some("died")).await.unwrap();
    assert_eq!(bench.leftovers(&handle.lease), Vec::<String>::new());
    assert_eq!(walk(&bench.data(), &|kind| !kind.is_dir()), Vec::<std::path::PathBuf>::new());
}
