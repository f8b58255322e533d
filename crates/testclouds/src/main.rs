//! A test cloud by itself, for whatever wants to speak to it: `testclouds e2b --listen 127.0.0.1:0` prints its address and
//! serves until it is ended.

#![allow(clippy::print_stdout, reason = "it says where it is")]

use std::any::Any;
use std::process::ExitCode;
use stead_testclouds::e2b::E2b;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Its address, and what keeps it alive.
type Cloud = (String, Box<dyn Any>);

type Start = fn(TcpListener) -> Cloud;

const CLOUDS: [(&str, Start); 1] = [("e2b", |listener| {
    let cloud = E2b::on(listener);
    (cloud.url.clone(), Box::new(cloud))
})];

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let (name, listen) = match words.as_slice() {
        [name] => (*name, "127.0.0.1:0"),
        [name, "--listen", listen] => (*name, *listen),
        _ => ("", ""),
    };
    let Some((_, start)) = CLOUDS.into_iter().find(|(cloud, _)| *cloud == name) else {
        println!("usage: testclouds {} [--listen ADDRESS:PORT]", CLOUDS.map(|(cloud, _)| cloud).join("|"));
        return ExitCode::from(2);
    };
    let listener = match TcpListener::bind(listen).await {
        Ok(listener) => listener,
        Err(error) => {
            println!("can't listen on {listen}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (url, cloud) = start(listener);
    println!("{url}");
    // Ended by either, it ends its sandboxes too.
    let mut terminated = match signal(SignalKind::terminate()) {
        Ok(terminated) => terminated,
        Err(error) => {
            println!("can't wait for signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    tokio::select! {
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    drop(cloud);
    ExitCode::SUCCESS
}
