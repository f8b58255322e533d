//! The host's network, or none.

use crate::cell::{Cell, owners, skipped};
use crate::rig::seen;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;
use stead_model::enclosure::Network;

const CONNECT: &str = "perl -MSocket -e 'socket(S, AF_INET, SOCK_STREAM, 0) or die; \
                       print connect(S, sockaddr_in(PORT, inet_aton(\"127.0.0.1\"))) ? \"connected\" : \"refused\"'";

#[test]
fn without_a_network_there_is_no_way_out() {
    let Some(cell) = Cell::with(|spec| spec.network = Network::None) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut shell = cell.shell();
    assert_eq!(shell.out("tail -n +2 /proc/net/route; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"), "lo\n");
    assert_eq!(shell.out(&CONNECT.replace("PORT", &port)), "refused");
}

#[test]
fn with_the_hosts_network_its_addresses_and_name_servers_are_there() {
    let Some(cell) = Cell::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut shell = cell.shell();
    assert_eq!(shell.out(&CONNECT.replace("PORT", &port)), "connected");
    if let Ok(servers) = std::fs::read_to_string("/etc/resolv.conf") {
        assert_eq!(shell.out("cat /etc/resolv.conf"), servers);
    }
}

#[test]
fn raw_sockets_are_refused_and_netlink_is_not() {
    for (owner, network) in owners().into_iter().flat_map(|owner| [(owner, Network::Host), (owner, Network::None)]) {
        let Some(cell) = Cell::with(|spec| (spec.owner, spec.network) = (owner, network)) else { return };
        let mut shell = cell.shell();
        for (what, family, kind, protocol) in
            [("raw", 2, 3, 1), ("raw v6", 10, 3, 58), ("packet", 17, 3, 0), ("packet", 17, 2, 0), ("vsock", 40, 1, 0)]
        {
            let text = format!("perl -e 'socket(S, {family}, {kind}, {protocol}) and exit 1; print $!+0'");
            assert_eq!(seen(&shell.run(text)), (Some(0), "1".into(), String::new()), "{what}");
        }
        assert_eq!(shell.out("perl -e 'socket(S, 16, 3, 0) and print \"netlink\"'"), "netlink");
    }
}

/// Services of the host listen on such sockets, and some trust whoever comes as root.
#[test]
fn abstract_sockets_of_the_host_are_out_of_reach() {
    let name = format!("stead-test-{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let Some(cell) = Cell::new() else { return };
    let connect = |name: &str| {
        format!(
            "perl -e 'socket(S, 1, 1, 0) or die; print connect(S, pack(\"S\", 1).\"\\0{name}\") ? \"there\" : $!+0'"
        )
    };
    let said = cell.shell().out(&connect(&name));
    // Asked of the kernel, not concluded from what the test is about.
    let asked = Command::new("perl").args(["-e", "print syscall(444, 0, 0, 1)"]).output().unwrap();
    let version: i32 = String::from_utf8_lossy(&asked.stdout).parse().unwrap();
    if version < 6 {
        skipped("this kernel has no Landlock that knows of abstract sockets (6.12)");
        return;
    }
    drop(listener);
    assert_eq!(said, "1");
}
