//! What containers reach, and what they don't. The engines of the gate have a network of their own, so that none of this
//! touches the machine's.

use super::{BUSYBOX, provide_busybox};
use crate::bench::{Bench, Make, Shell, Wish, containers, until};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_model::enclosure::Network;
use stead_server::provider::Provider;
use stead_server::provider::docker::{Base, ContainerNetwork, Way};

fn on(wish: Wish, variable: &str, network: ContainerNetwork) -> Arc<dyn Provider> {
    containers(wish, variable, |config| {
        (config.base, config.network) = (Base::Image(BUSYBOX.to_owned()), network);
        config.way = if variable == PODMAN { Way::Engine } else { Way::Nearest };
    })
}

const DOCKER: &str = "STEAD_TEST_DOCKER";
const PODMAN: &str = "STEAD_TEST_PODMAN";

fn docker_bridge(wish: Wish) -> Arc<dyn Provider> {
    on(wish, DOCKER, ContainerNetwork::Bridge)
}

fn docker_host(wish: Wish) -> Arc<dyn Provider> {
    on(wish, DOCKER, ContainerNetwork::Host)
}

fn docker_none(wish: Wish) -> Arc<dyn Provider> {
    on(wish, DOCKER, ContainerNetwork::None)
}

fn podman_bridge(wish: Wish) -> Arc<dyn Provider> {
    on(wish, PODMAN, ContainerNetwork::Bridge)
}

fn podman_host(wish: Wish) -> Arc<dyn Provider> {
    on(wish, PODMAN, ContainerNetwork::Host)
}

/// The network that an engine itself is in, as the kernel names it.
fn network_of(socket: &Path) -> PathBuf {
    let stream = UnixStream::connect(socket).unwrap();
    let peer = rustix::net::sockopt::socket_peercred(&stream).unwrap();
    std::fs::read_link(format!("/proc/{}/ns/net", peer.pid.as_raw_nonzero())).unwrap()
}

/// Where the engine listens, if it is there, may be looked at and has a bridge; with an image for it.
fn engine(variable: &str) -> Option<PathBuf> {
    let socket = std::env::var_os(variable).map(PathBuf::from);
    let bridged = |socket: &PathBuf| {
        let said = super::engine::send(socket, "GET /networks/bridge", &[]);
        said.is_ok_and(|said| said.starts_with("HTTP/1.1 200") && said.contains("\"Subnet\""))
    };
    let Some(socket) = socket.filter(bridged) else {
        println!("SKIPPED: no engine with a bridge in {variable}");
        return None;
    };
    provide_busybox(&socket);
    Some(socket)
}

async fn shell(make: Make) -> (Bench, Shell) {
    let bench = Bench::new(make).await.unwrap();
    let shell = bench.shell(&bench.instance("network").await, "main").await;
    (bench, shell)
}

async fn bridge_and_host(variable: &str, bridge: Make, host: Make) {
    let Some(socket) = engine(variable) else { return };
    let engines = format!("{}\n", network_of(&socket).display());
    let (_outer, outside) = shell(host).await;
    assert_eq!(outside.out("readlink /proc/self/ns/net").await, engines, "the engine's own");
    let (_first, inside) = shell(bridge).await;
    let (_second, neighbour) = shell(bridge).await;
    let own = inside.out("readlink /proc/self/ns/net").await;
    assert!(own != engines && own != neighbour.out("readlink /proc/self/ns/net").await, "{own}");
    assert_eq!(inside.out("ls /sys/class/net").await, "eth0\nlo\n");

    // The way out leads through the engine's end of the bridge; whoever listens there is reached by both.
    let gateway = inside.out("ip route | sed -n 's/^default via \\([^ ]*\\).*/\\1/p'").await.trim().to_owned();
    let port = 20_000 + std::process::id() % 10_000;
    outside.out(&format!("nc -ll -p {port} -e echo heard >/dev/null 2>&1 &")).await;
    let deadline = Instant::now() + Duration::from_secs(30);
    for shell in [&inside, &neighbour] {
        let ask = format!("nc -w 5 {gateway} {port} </dev/null");
        while shell.run(ask.as_str()).await.seen() != (Some(0), "heard\n".to_owned(), String::new()) {
            assert!(Instant::now() < deadline, "nobody answers at {gateway}");
        }
    }
}

#[tokio::test]
async fn a_bridge_is_a_network_of_its_own_with_a_way_out_and_host_is_the_engines() {
    bridge_and_host(DOCKER, docker_bridge, docker_host).await;
}

#[tokio::test]
async fn a_bridge_of_podman_is_a_network_of_its_own_with_a_way_out_and_host_is_the_engines() {
    bridge_and_host(PODMAN, podman_bridge, podman_host).await;
}

#[tokio::test]
async fn a_project_gets_a_network_or_none_whatever_the_provider_has() {
    if engine(DOCKER).is_none() {
        return;
    }
    for (make, asked, want) in [
        (docker_none as Make, Network::Host, "eth0\nlo\n"),
        (docker_bridge, Network::None, "lo\n"),
        (docker_host, Network::None, "lo\n"),
    ] {
        let bench = Bench::new(make).await.unwrap();
        let mut blueprint = bench.blueprint("asked");
        blueprint.demands.network = Some(asked);
        let shell = bench.shell(&bench.create(&blueprint).await, "main").await;
        assert_eq!(shell.out("ls /sys/class/net").await, want, "{asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_over_a_bridge_is_counted() {
    if engine(DOCKER).is_none() {
        return;
    }
    let bench = Bench::new(docker_bridge).await.unwrap();
    let handle = bench.instance("counted").await;
    let shell = bench.shell(&handle, "main").await;
    let gateway = shell.out("ip route | sed -n 's/^default via \\([^ ]*\\).*/\\1/p'").await.trim().to_owned();
    let before = bench.provider.metrics(&handle).await.unwrap().network_tx_bytes.unwrap();
    // Nobody answers there, which is an answer.
    shell.run(format!("for i in 1 2 3; do nc -w 1 {gateway} 9 </dev/null; done")).await;
    let runtime = tokio::runtime::Handle::current();
    until("the bytes to be counted", || {
        let told = tokio::task::block_in_place(|| runtime.block_on(bench.provider.metrics(&handle)));
        told.unwrap().network_tx_bytes.unwrap() > before
    })
    .await;
}
