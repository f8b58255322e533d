//! All output together stays within a limit: the oldest that has ended goes first, wherever it lies.

use crate::rig::{Rig, run, thread, wait_for};
use stead_model::frame::Stream;
use stead_model::ids::CommandId;
use stead_model::proto::{FirstSignal, Status};
use stead_server::lease::Force;
use stead_server::stead::{Execute, Where};

const SIZE: u64 = 1_000_000;

async fn print(rig: &Rig, of: &str, id: &str) -> CommandId {
    let id = CommandId::parse(id).unwrap();
    let sandbox = rig.sandbox(of).await;
    let execute = Execute { id: Some(id.clone()), ..Execute::new(format!("yes | head -c {SIZE}")) };
    assert_eq!(sandbox.run(execute).await.unwrap().stdout.len() as u64, SIZE);
    id
}

async fn is_gone(rig: &Rig, id: &CommandId) -> bool {
    match rig.stead.read_output(id, Stream::Stdout, 0, 10).await {
        Ok(read) => {
            assert_eq!((read.total, read.bytes.0.as_slice()), (SIZE, &b"y\ny\ny\ny\ny\n"[..]));
            false
        }
        Err(error) => {
            assert_eq!(error.code(), "gone", "{error}");
            true
        }
    }
}

async fn the_oldest_goes_first(provider: &str) {
    let rig = Rig::new(provider).await;
    // Running all the while, and older than everything: it stays.
    let running = Execute {
        id: Some(CommandId::parse("running").unwrap()),
        ..Execute::new(format!("yes | head -c {SIZE}; sleep 100"))
    };
    let running = rig.stead.submit(Where::thread(thread("busy")), running).await.unwrap().id;
    wait_for("all of its output", async || {
        (rig.stead.command(&running).await.unwrap().stdout_bytes == SIZE).then_some(())
    })
    .await;
    let first = print(&rig, "a", "first").await;
    let second = print(&rig, "b", "second").await;
    let third = print(&rig, "a", "third").await;
    // One whose steward is gone, so that only its files are left.
    rig.stead.destroy(&thread("b"), Force::Yes).await.unwrap();
    rig.stead.make_room(10 * SIZE).await.unwrap();
    for kept in [&running, &first, &second, &third] {
        assert!(!is_gone(&rig, kept).await, "{kept}");
    }
    rig.stead.make_room(3 * SIZE).await.unwrap();
    assert!(is_gone(&rig, &first).await && !is_gone(&rig, &third).await);
    // The last of its processes may still be on its way out, with the journal in its hands.
    wait_for("room where nobody lives any more", async || {
        rig.stead.make_room(2 * SIZE).await.unwrap();
        is_gone(&rig, &second).await.then_some(())
    })
    .await;
    assert!(!is_gone(&rig, &running).await);
    // How it ended is still known, and the shell is none the worse.
    let record = rig.stead.command(&second).await.unwrap();
    assert_eq!((record.status, record.stdout_bytes), (Status::Exited, SIZE));
    let error = rig.stead.follow(&second, 0, false).await.unwrap_err();
    assert_eq!(error.code(), "gone");
    run(&rig.sandbox("b").await, "true").await;
    assert!(is_gone(&rig, &second).await);
    // Nothing is to look for it when its directory goes.
    let ended = rig.stead.cancel(&running, FirstSignal::Kill).await.unwrap();
    assert_eq!((ended.status, ended.stdout_bytes), (Status::Cancelled, SIZE));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_output_goes_first_on_local() {
    the_oldest_goes_first("local").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_output_goes_first_on_namespace() {
    the_oldest_goes_first("namespace").await;
}
