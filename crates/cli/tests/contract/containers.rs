//! What holds for containers alone, against a real engine.

mod engine;
mod full;
mod network;
mod restarted;
mod root;

use crate::bench::{self, Bench, Wish, build_image, containers, handle};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead_model::enclosure::User;
use stead_model::lease::Seen;
use stead_server::provider::docker::{Base, Way};
use stead_server::provider::{Created, Effect, Provider, Trouble};

/// An image with a shell and tools for networks, of a megabyte.
const BUSYBOX: &str = "stead/test-busybox";

fn provide_busybox(socket: &Path) {
    build_image(socket, &["--name", BUSYBOX, "--if-missing"]);
}

const ENGINE: &str = "STEAD_TEST_DOCKER";

fn socket() -> PathBuf {
    PathBuf::from(std::env::var_os(ENGINE).unwrap())
}

fn by_the_engine(wish: Wish) -> Arc<dyn Provider> {
    containers(wish, ENGINE, |config| config.way = Way::Engine)
}

fn without_an_image(wish: Wish) -> Arc<dyn Provider> {
    containers(wish, ENGINE, |config| config.base = Base::Image("stead/nowhere:7".to_owned()))
}

fn of_busybox(wish: Wish) -> Arc<dyn Provider> {
    containers(wish, ENGINE, |config| config.base = Base::Image(BUSYBOX.to_owned()))
}

fn of_nothing(wish: Wish) -> Arc<dyn Provider> {
    containers(wish, ENGINE, |config| config.base = Base::Image("stead/test-empty".to_owned()))
}

fn sealed(wish: Wish) -> Arc<dyn Provider> {
    containers(wish, ENGINE, |config| {
        config.read_only_root = true;
        config.tmp_bytes = Some(1 << 20);
        config.user = Some(User { name: "agent".to_owned(), uid: 1234, gid: 1235 });
    })
}

#[tokio::test]
async fn an_image_that_is_missing_is_told_with_what_to_do() {
    let Some(bench) = Bench::new(without_an_image).await else { return };
    let blueprint = bench.blueprint("image");
    let error = bench.provider.create(&blueprint).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::NotFound, Effect::None), "{error}");
    assert!(error.message.contains("`stead/nowhere:7`") && error.message.contains("stead image build"), "{error}");
    assert_eq!(bench.provider.list().await, Ok(Vec::new()));
    // A project may name one that is there.
    let mut named = bench.blueprint("image");
    named.demands.image = Some(bench::IMAGE.to_owned());
    assert_eq!(bench.shell(&bench.create(&named).await, "main").await.out("echo here").await, "here\n");
}

#[tokio::test]
async fn the_way_through_the_engine_carries_everything_both_ways() {
    let Some(bench) = Bench::new(by_the_engine).await else { return };
    let handle = bench.instance("ways").await;
    let shell = bench.shell(&handle, "main").await;
    let outcome = shell.run("head -c 3000000 /dev/zero | tr '\\0' x; printf '\\0\\377' >&2").await;
    assert_eq!((outcome.stdout.len(), outcome.stderr.as_slice()), (3_000_000, b"\0\xff".as_slice()));
    let text = format!("x='{}'; echo ${{#x}}", "y".repeat(300_000));
    assert_eq!(shell.out(&text).await, "300000\n");
    // Nobody is left inside of those who came that way.
    drop(shell);
    crate::bench::until("the visitors to be gone", || bench.playing("connect").is_empty()).await;
}

#[tokio::test]
async fn an_image_of_busybox_has_a_shell_that_lasts() {
    if std::env::var_os(ENGINE).is_some() {
        provide_busybox(&socket());
    }
    let Some(bench) = Bench::new(of_busybox).await else { return };
    let blueprint = bench.blueprint("ash");
    let shell = bench.shell(&bench.create(&blueprint).await, "main").await;
    assert_eq!(shell.out("cd /usr; export V=1; echo $((6*7))").await, "42\n");
    let again = bench.shell(&bench.create(&bench.next(&blueprint)).await, "main").await;
    assert_eq!(again.out("echo $V $PWD").await, "1 /usr\n");
}

#[tokio::test]
async fn an_image_without_a_shell_is_told_to_have_none() {
    if std::env::var_os(ENGINE).is_some() {
        engine::import_empty(&socket(), "stead/test-empty");
    }
    let Some(bench) = Bench::new(of_nothing).await else { return };
    let handle = bench.instance("empty").await;
    let opening = crate::bench::fresh(&*bench.provider, &handle, "main");
    let error = match crate::bench::open(&*bench.provider, &handle, &opening).await {
        Err(error) => error.to_string(),
        Ok(runtime) => {
            let shell = crate::bench::Shell::new(runtime, &opening);
            shell.try_exec(crate::bench::exec("echo no")).await.unwrap_err().to_string()
        }
    };
    assert!(error.contains("no bash, dash or ash"), "{error}");
}

#[tokio::test]
async fn a_sealed_container_can_write_its_files_and_nothing_else() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can give files to another user");
        return;
    }
    let Some(bench) = Bench::new(sealed).await else { return };
    let shell = bench.shell(&bench.instance("sealed").await, "main").await;
    assert_eq!(shell.out("id -u; id -g; echo $HOME").await, "1234\n1235\n/home/agent\n");
    assert_eq!(
        shell.out("echo x >file; echo x >~/file; echo x >/tmp/file; cat file ~/file /tmp/file").await,
        "x\nx\nx\n"
    );
    for text in ["echo x >/usr/file", "echo x >/file", "head -c 3000000 /dev/zero >/tmp/large"] {
        assert_ne!(shell.run(text).await.code(), Some(0), "{text}");
    }
}

#[tokio::test]
async fn what_runs_in_a_container_has_few_rights_and_gets_no_more() {
    let Some(bench) = Bench::new(bench::docker).await else { return };
    let shell = bench.shell(&bench.instance("rights").await, "main").await;
    let status = shell.out("cat /proc/self/status").await;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(field("NoNewPrivs:"), "1");
    let bounding = u64::from_str_radix(&field("CapBnd:"), 16).unwrap();
    // SYS_ADMIN, SYS_PTRACE, NET_RAW, NET_ADMIN, MKNOD, SYS_MODULE, SYS_CHROOT, DAC_READ_SEARCH
    for number in [21, 19, 13, 12, 27, 16, 18, 2] {
        assert_eq!(bounding & (1 << number), 0, "capability {number} in {bounding:x}");
    }
    assert_eq!(bounding.count_ones(), 9, "{bounding:x}");
    assert_eq!(shell.out("ls /sys/class/net").await, "lo\n", "no network was asked for");
}

#[tokio::test]
async fn a_container_that_was_killed_or_removed_by_somebody_else_is_gone_and_made_again() {
    let Some(bench) = Bench::new(bench::docker).await else { return };
    for deed in ["POST {}/kill", "POST {}/stop?t=1", "DELETE {}?force=1"] {
        let blueprint = bench.blueprint("outside");
        let handle = bench.create(&blueprint).await;
        bench.shell(&handle, "main").await.run("cd /usr; V=1").await;
        let path = format!("/containers/{}", handle.reference);
        engine::ask(&socket(), &deed.replace("{}", &path));
        assert_eq!(bench.provider.status(&handle).await, Ok(Seen::Gone), "{deed}");
        assert_eq!(bench.provider.list().await, Ok(Vec::new()), "{deed}");
        assert_eq!(bench.provider.last_words(&handle).await.unwrap().len(), 1, "{deed}");
        let again = bench.create(&blueprint).await;
        assert_eq!(bench.shell(&again, "main").await.out("echo $V $PWD").await, "1 /usr\n", "{deed}");
        bench.provider.destroy(&again).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_made_and_never_started_is_made_again() {
    let Some(bench) = Bench::new(bench::docker).await else { return };
    let blueprint = bench.blueprint("half");
    let first = bench.create(&blueprint).await;
    // As it is when the server was killed between the two: the engine has a container that never ran.
    engine::ask(&socket(), &format!("POST /containers/{}/stop?t=0", first.reference));
    assert_eq!(bench.provider.status(&first).await, Ok(Seen::Gone));
    assert_eq!(bench.create(&blueprint).await.reference, first.reference);
    assert_eq!(bench.provider.status(&first).await, Ok(Seen::Running));
}

#[tokio::test]
async fn two_servers_on_one_engine_do_not_see_each_others_containers() {
    let (Some(one), Some(other)) = (Bench::new(bench::docker).await, Bench::new(bench::docker).await) else { return };
    let (mine, theirs) = (one.instance("same").await, other.instance("same").await);
    assert_eq!(one.provider.list().await.unwrap().into_iter().map(|found| found.handle).collect::<Vec<_>>(), [mine]);
    let error = one.provider.status(&theirs).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::Conflict, Effect::None), "{error}");
    assert!(one.provider.destroy(&theirs).await.is_err());
    assert_eq!(other.provider.status(&theirs).await, Ok(Seen::Running));
}

#[tokio::test]
async fn an_orphan_is_found_by_what_is_written_on_it() {
    let Some(bench) = Bench::new(bench::docker).await else { return };
    let blueprint = bench.blueprint("orphan");
    let created = bench.provider.create(&blueprint).await.unwrap();
    // Nothing on this machine tells of it any more.
    std::fs::remove_dir_all(bench.data().join("leases")).unwrap();
    let found = bench.successor().list().await.unwrap();
    assert_eq!(found.iter().map(|found| &found.handle).collect::<Vec<_>>(), [&handle(&blueprint, &created)]);
    bench.provider.destroy(&handle(&blueprint, &Created::default())).await.unwrap();
    assert_eq!(bench.provider.list().await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_container_tells_whose_it_is_and_how_many_came_before_it() {
    let Some(bench) = Bench::new(bench::docker).await else { return };
    let blueprint = bench.next(&bench.blueprint("labels"));
    let handle = bench.create(&blueprint).await;
    let said = engine::send(&socket(), &format!("GET /containers/{}/json", handle.reference), &[]).unwrap();
    let body = &said[said.find('{').unwrap()..=said.rfind('}').unwrap()];
    let said: serde_json::Value = serde_json::from_str(body).unwrap();
    let labels = &said["Config"]["Labels"];
    let want = [
        ("instance", blueprint.instance.to_string()),
        ("lease", blueprint.lease.to_string()),
        ("generation", "2".to_owned()),
        ("workspace", "labels".to_owned()),
        ("provider", "docker".to_owned()),
    ];
    for (name, value) in want {
        assert_eq!(labels[format!("stead.{name}")], value.as_str(), "{labels}");
    }
}

#[tokio::test]
async fn an_image_of_debootstrap_is_a_debian() {
    let there = std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|dir| dir.join("debootstrap").exists());
    if !there || !rustix::process::geteuid().is_root() || std::env::var("STEAD_STRESS").as_deref() == Ok("quick") {
        println!("SKIPPED: no debootstrap here, or no right to use it, or no time for it");
        return;
    }
    let Some(bench) = Bench::new(bench::docker).await else { return };
    let built = std::process::Command::new(env!("CARGO_BIN_EXE_stead"))
        .args(["image", "build", "--debootstrap", "--name", "stead/test-debian", "--data"])
        .arg(bench.path().join("nothing"))
        .env("DOCKER_HOST", format!("unix://{}", socket().display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    if !built.status.success() && said.contains("Failed getting release file") {
        println!("SKIPPED: no mirror of Debian can be reached");
        return;
    }
    assert!(built.status.success(), "{said}");
    let mut blueprint = bench.blueprint("debian");
    blueprint.demands.image = Some("stead/test-debian".to_owned());
    let shell = bench.shell(&bench.create(&blueprint).await, "main").await;
    assert_eq!(shell.out(". /etc/os-release; echo $ID; dpkg --get-selections | grep -c bash").await, "debian\n1\n");
    assert_eq!(shell.out("ls /var/cache/apt/archives/*.deb 2>/dev/null; ls /var/lib/apt/lists").await, "partial\n");
}
