//! Containers of a root directory instead of an image.

use super::{ENGINE, socket};
use crate::bench::{Bench, Wish, build_image, containers};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use stead_server::provider::docker::{Base, Root};
use stead_server::provider::{Availability, Effect, Provider, Trouble};

fn of_a_directory(wish: Wish) -> Arc<dyn Provider> {
    let root = wish.data.parent().unwrap().join("root");
    containers(wish, ENGINE, |config| config.base = Base::Root(Root::new(root)))
}

/// A system of one program.
fn plant(root: &Path) {
    fs::create_dir_all(root.join("bin")).unwrap();
    for dir in ["etc", "proc", "run", "tmp", "secret"] {
        fs::create_dir(root.join(dir)).unwrap();
    }
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists()).unwrap();
    fs::copy(busybox, root.join("bin/busybox")).unwrap();
    for applet in ["sh", "ash", "cat", "ls", "stat", "readlink", "sleep", "rm", "mkdir", "kill"] {
        symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    fs::hard_link(root.join("bin/busybox"), root.join("bin/again")).unwrap();
    fs::set_permissions(root.join("secret"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(root.join("etc/mark"), "first\n").unwrap();
}

/// The tags of images that were made of directories below `dir`.
fn images() -> Vec<String> {
    let said = super::engine::send(&socket(), "GET /images/json", &[]).unwrap();
    let body = &said[said.find('[').unwrap()..=said.rfind(']').unwrap()];
    let all: Vec<serde_json::Value> = serde_json::from_str(body).unwrap();
    let tags = all.iter().flat_map(|image| image["RepoTags"].as_array().cloned().unwrap_or_default());
    tags.filter_map(|tag| tag.as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_container_is_made_of_a_directory_as_it_is_then() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    plant(&root);
    let Some(bench) = Bench::within(dir, of_a_directory, stead_term::cgroup::Limits::default()).await else { return };
    let blueprint = bench.blueprint("rooted");
    let handle = bench.create(&blueprint).await;
    let shell = bench.shell(&handle, "main").await;
    let seen = "cat /etc/mark; readlink /bin/sh; stat -c '%a %u %h' /secret /bin/again";
    assert_eq!(shell.out(seen).await, "first\nbusybox\n700 0 2\n755 0 2\n");

    // What is written inside stays inside, and what is written outside is seen by the next.
    shell.run("echo inside >/etc/mark; export V=1").await;
    assert_eq!(fs::read_to_string(root.join("etc/mark")).unwrap(), "first\n");
    let before = images();
    fs::write(root.join("etc/mark"), "second\n").unwrap();
    let next = bench.create(&bench.next(&blueprint)).await;
    assert_eq!(bench.shell(&next, "main").await.out("cat /etc/mark; echo $V").await, "second\n1\n");
    let made: Vec<_> = images().into_iter().filter(|tag| !before.contains(tag)).collect();
    assert!(matches!(made.as_slice(), [tag] if tag.starts_with("stead/root-")), "{made:?}");
    let repository = made[0].rsplit_once(':').unwrap().0;
    let all: Vec<_> = images().into_iter().filter(|tag| tag.starts_with(repository)).collect();
    assert_eq!(all, made, "the one before is gone with its container");

    // The same tree is not given to the engine twice.
    bench.create(&bench.next(&bench.next(&blueprint))).await;
    assert_eq!(images().into_iter().filter(|tag| tag.starts_with(repository)).collect::<Vec<_>>(), made);
    bench.provider.destroy(&next).await.unwrap();
}

#[tokio::test]
async fn a_root_directory_that_is_missing_is_named() {
    let Some(bench) = Bench::new(super::bench::docker).await else { return };
    let provider = bench.changed_by(of_a_directory);
    let Availability::Missing { why, hint } = provider.availability().await else { panic!("it is not there") };
    assert!(why.contains("root`") && hint.unwrap().contains("`root`"), "{why}");
    let error = provider.create(&bench.blueprint("nowhere")).await.unwrap_err();
    assert_eq!((error.trouble, error.effect), (Trouble::NotFound, Effect::None), "{error}");
    assert_eq!(provider.list().await, Ok(Vec::new()));
}

#[tokio::test]
async fn an_image_is_built_of_a_directory() {
    let Some(bench) = Bench::new(super::bench::docker).await else { return };
    let root = bench.path().join("tree");
    plant(&root);
    build_image(&socket(), &["--root", root.to_str().unwrap(), "--name", "stead/test-tree"]);
    let mut blueprint = bench.blueprint("built");
    blueprint.demands.image = Some("stead/test-tree".to_owned());
    let shell = bench.shell(&bench.create(&blueprint).await, "main").await;
    assert_eq!(shell.out("cat /etc/mark").await, "first\n");
}
