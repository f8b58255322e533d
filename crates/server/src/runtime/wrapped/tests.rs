use super::*;
use crate::provider::{ProviderError, Surroundings};
use futures_util::FutureExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Answers each call alike, once it is let go.
#[derive(Debug, Default)]
struct Held {
    begun: AtomicUsize,
    go: Notify,
}

#[async_trait]
impl OneShot for Held {
    async fn shoot(&self, _: &Shot) -> Result<ShotOutcome, ProviderError> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.go.notified().await;
        Ok(ShotOutcome::default())
    }
}

fn runtime(shots: &Arc<Held>) -> WrappedRuntime {
    let surroundings = Surroundings { env: Vec::new(), cwd: b"/".to_vec(), scratch: "/tmp".to_owned() };
    let shell = ShellId::parse("main").unwrap();
    let shots: Arc<dyn OneShot> = Arc::clone(shots) as _;
    WrappedRuntime::open(shots, &Opening { shell, state: ShellState::default(), version: 1, surroundings })
}

fn command(runtime: &WrappedRuntime, id: &str) -> Run {
    Run::new(runtime.shell.clone(), CommandId::parse(id).unwrap(), "true")
}

#[tokio::test]
async fn a_command_that_is_cancelled_while_it_waits_is_not_started_when_its_turn_comes_at_that_moment() {
    let shots = Arc::new(Held::default());
    let runtime = runtime(&shots);
    let (first, second) = (command(&runtime, "first"), command(&runtime, "second"));
    let (mut ignore, mut ignore_too) = (|_: Told| {}, |_: Told| {});
    let mut running = runtime.run(&first, 0, &mut ignore);
    let mut waiting = runtime.run(&second, 0, &mut ignore_too);
    assert!((&mut running).now_or_never().is_none() && (&mut waiting).now_or_never().is_none());
    shots.go.notify_one();
    running.await.unwrap();
    // It has the turn now, and has not looked yet.
    runtime.cancel(&second.command, FirstSignal::Interrupt).await.unwrap();
    let info = (&mut waiting).now_or_never().expect("it is over").unwrap();
    assert_eq!(info.ending, Some(Ending::new(Status::Cancelled, Some(-1))));
    assert_eq!(shots.begun.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_command_whose_exit_status_nobody_saw_is_lost_and_leaves_the_version_as_it_was() {
    let shots = Arc::new(Held::default());
    let runtime = runtime(&shots);
    shots.go.notify_one();
    let info = runtime.run(&command(&runtime, "c"), 0, &mut |_: Told| {}).await.unwrap();
    let ending = info.ending.unwrap();
    assert_eq!((info.status, ending.status, ending.exit_code), (Status::Lost, Status::Lost, None));
    assert_eq!(info.state_version, 1);
}
