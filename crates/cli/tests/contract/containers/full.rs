//! An engine whose own disk is full.

use super::restarted::Engine;
use crate::bench::{Bench, Wish, containers_at};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use stead_model::lease::Seen;
use stead_server::provider::docker::{Base, Root};
use stead_server::provider::{Effect, Provider, Trouble};
use stead_term::cgroup::Limits;

fn beside(wish: Wish) -> Arc<dyn Provider> {
    let socket = wish.data.parent().unwrap().join("engine/sock");
    containers_at(wish, socket, |_| {})
}

fn of_a_tree(wish: Wish) -> Arc<dyn Provider> {
    let (socket, root) = (wish.data.parent().unwrap().join("engine/sock"), wish.data.parent().unwrap().join("tree"));
    containers_at(wish, socket, |config| config.base = Base::Root(Root::new(root)))
}

/// A file that takes all the room that there is, gone with the value.
struct Ballast(PathBuf);

impl Ballast {
    fn fill(dir: &Path) -> Self {
        let path = dir.join("ballast");
        let mut file = fs::File::create(&path).unwrap();
        let error = std::io::copy(&mut std::io::repeat(0), &mut file).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
        Self(path)
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn containers_of(socket: &Path) -> String {
    let said = super::engine::send(socket, "GET /containers/json?all=1", &[]).unwrap();
    said[said.find('[').unwrap()..=said.rfind(']').unwrap()].to_owned()
}

#[tokio::test]
async fn an_engine_whose_disk_is_full_is_told_as_such_and_goes_on_when_there_is_room() {
    if !Engine::can_start() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("engine");
    fs::create_dir_all(home.join("root")).unwrap();
    let engine = Engine::start_on_tmpfs(&home, "size=200m");
    engine.answers().await;
    let disk = engine.seen("root");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("large"), vec![7; 8 << 20]).unwrap();
    let bench = Bench::within(dir, beside, Limits::default()).await.unwrap();
    let first = bench.instance("before").await;
    let shell = bench.shell(&first, "main").await;

    let ballast = Ballast::fill(&disk);
    let blueprint = bench.blueprint("full");
    let error = bench.provider.create(&blueprint).await.unwrap_err();
    assert_eq!(error.trouble, Trouble::NoSpace, "{error}");
    let socket = home.join("sock");
    assert!(!containers_of(&socket).contains(blueprint.instance.as_str()), "nothing half made");
    let rooted = bench.changed_by(of_a_tree);
    let error = rooted.create(&bench.blueprint("tree")).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::NoSpace, Effect::None), "{error}");
    let build = Command::new(env!("CARGO_BIN_EXE_stead"))
        .args(["image", "build", "--from-host", "--data"])
        .arg(bench.path().join("nothing"))
        .env("DOCKER_HOST", format!("unix://{}", socket.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&build.stderr).into_owned();
    assert!(!build.status.success() && said.contains("no space left on device"), "{said}");
    // What runs needs nothing of that disk.
    assert_eq!(bench.provider.status(&first).await, Ok(Seen::Running));
    assert_eq!(shell.out("echo on >file; cat file").await, "on\n");

    drop(ballast);
    let handle = bench.create(&blueprint).await;
    assert_eq!(bench.shell(&handle, "main").await.out("echo again").await, "again\n");
}
