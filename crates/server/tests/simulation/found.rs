//! What the schedules have found, each told once more in a few lines, whatever the seeds will be.

use std::sync::Arc;
use std::time::Duration;
use stead_model::ids::{CommandId, InstanceId, LeaseId, ProviderName, ThreadId};
use stead_model::lease::{Desired, Observed, Seen};
use stead_model::proto::Status;
use stead_model::session::{CloseReason, Policy, Session};
use stead_model::state::Bytes;
use stead_server::Error;
use stead_server::clock::Clock;
use stead_server::lease::Force;
use stead_server::pace::Pace;
use stead_server::provider::fake::{Call, Fake, Mischief, Shells};
use stead_server::provider::{Handle, Providers, Trouble};
use stead_server::stead::{EnvChange, Execute, Executed, NewThread, Parts, Sandbox, Settings, Stead, Where};
use stead_server::store::{MemoryStore, Page, Store};

use crate::world::Wall;

/// What outlives servers.
struct Rig {
    fake: Fake,
    store: MemoryStore,
    clock: Arc<Wall>,
}

impl Rig {
    fn new() -> Self {
        Self::with(|fake| fake)
    }

    fn with(make: impl FnOnce(Fake) -> Fake) -> Self {
        let fake = Fake::new(ProviderName::parse("toy").unwrap(), Shells::Toy);
        Self { fake: make(fake), store: MemoryStore::default(), clock: Arc::default() }
    }

    /// What one server does; it is killed at the end.
    fn live(&self, life: impl AsyncFnOnce(Stead)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            self.clock.start();
            life(self.server(1).await).await;
            self.clock.halt();
        });
    }

    /// Others have so many turns at each of its calls of the store.
    async fn server(&self, turns: u32) -> Stead {
        let provider = ProviderName::parse("toy").unwrap();
        let settings =
            Settings { default_provider: provider, treatments: [].into(), reap_every: Duration::from_hours(1000) };
        let providers = Providers::new([Arc::new(self.fake.clone()) as _]);
        let store = self.store.paced(Pace::new(move || turns));
        let mut parts = Parts::new(Arc::new(store), providers, settings);
        parts.clock = Arc::clone(&self.clock) as _;
        Stead::start(parts).await.unwrap().0
    }

    fn the_instance(&self) -> InstanceId {
        let truth = self.fake.truth();
        assert_eq!(truth.len(), 1, "{truth:?}");
        truth[0].0.instance.clone()
    }
}

fn thread(name: &str) -> ThreadId {
    ThreadId::parse(name).unwrap()
}

async fn sandbox(stead: &Stead, name: &str) -> Result<Sandbox, Error> {
    stead.get_sandbox(Where::thread(thread(name))).await
}

async fn run(stead: &Stead, name: &str, text: &str) -> Executed {
    sandbox(stead, name).await.unwrap().run(Execute::new(text)).await.unwrap()
}

async fn run_as(stead: &Stead, id: &str, text: &str) -> Result<Executed, Error> {
    let id = Some(CommandId::parse(id).unwrap());
    sandbox(stead, "a").await?.run(Execute { id, ..Execute::new(text) }).await
}

async fn share(stead: &Stead, name: &str, with: &str) {
    let new = NewThread { id: Some(thread(name)), share_with: Some(thread(with)), ..NewThread::default() };
    stead.create_thread(new).await.unwrap();
}

#[test]
fn pausing_what_has_no_instance_makes_none() {
    let rig = Rig::new();
    rig.live(async |stead| {
        stead.create_thread(NewThread { id: Some(thread("a")), ..NewThread::default() }).await.unwrap();
        let ready = stead.pause(&thread("a"), Force::No).await.unwrap();
        assert_eq!((ready.lease.observed, rig.fake.truth().len()), (Observed::None, 0));
    });
}

#[test]
fn a_sandbox_can_be_had_after_a_destroy_that_failed() {
    let rig = Rig::new();
    rig.live(async |stead| {
        run(&stead, "a", "cd /x").await;
        let before = rig.the_instance();
        rig.fake.next(Call::Destroy, Mischief::FailBefore);
        assert_eq!(stead.destroy(&thread("a"), Force::No).await.unwrap_err().code(), "provider_error");
        assert_eq!(run(&stead, "a", "pwd").await.stdout, b"/x\n");
        assert_ne!(rig.the_instance(), before, "what was to be destroyed is not had back");
    });
}

#[test]
fn a_provider_that_never_connects_is_not_waited_for_for_ever() {
    let rig = Rig::new();
    rig.live(async |stead| {
        rig.fake.next(Call::Access, Mischief::Hang);
        let got = tokio::time::timeout(Duration::from_mins(10), sandbox(&stead, "a")).await;
        got.expect("an answer").expect("the second attempt works");
    });
}

#[test]
fn a_command_is_not_run_again_under_its_id_on_another_instance() {
    let rig = Rig::new();
    rig.live(async |stead| {
        run_as(&stead, "once", "export A=1").await.unwrap();
        rig.fake.kill(&rig.the_instance());
        let again = run_as(&stead, "once", "export A=1").await.unwrap();
        assert_eq!((again.command.status, again.exit_code()), (Status::Exited, Some(0)));
    });
    rig.live(async |stead| {
        run_as(&stead, "once", "export A=1").await.unwrap();
        assert_eq!(rig.fake.executions(&CommandId::parse("once").unwrap()), 1);
        drop(stead);
    });
}

#[test]
fn an_ended_command_stays_so_when_it_is_asked_for_again_in_vain() {
    // Its instance dies at one moment or another of being asked.
    for moment in 0..40 {
        let rig = Rig::with(Fake::durable);
        rig.live(async |stead| {
            run_as(&stead, "once", "exit 3").await.unwrap();
            for _ in 0..3 {
                rig.fake.next(Call::Create, Mischief::Refuse(Trouble::Exhausted));
            }
            let again = {
                let stead = stead.clone();
                tokio::spawn(async move { run_as(&stead, "once", "exit 3").await.map(drop) })
            };
            for _ in 0..moment {
                tokio::task::yield_now().await;
            }
            rig.fake.kill(&rig.the_instance());
            let _ = again.await.unwrap();
            stead.stop().await;
            let row = rig.store.command(&CommandId::parse("once").unwrap()).await.unwrap().unwrap();
            assert_eq!(row.status, Status::Exited, "killed after {moment} turns");
        });
    }
}

#[test]
fn a_command_that_was_given_up_and_is_found_has_ended_for_everybody() {
    let rig = Rig::with(Fake::durable);
    rig.live(async |stead| {
        run(&stead, "a", "cd /x").await;
        rig.fake.next(Call::Run, Mischief::FailAfter);
        rig.fake.next(Call::Status, Mischief::Hang);
        rig.clock.pass(10_000);
        assert_eq!(run_as(&stead, "once", "exit 3").await.unwrap_err().code(), "provider_timeout");
        assert_eq!(run_as(&stead, "once", "exit 3").await.unwrap().exit_code(), Some(3));
        stead.stop().await;
        let row = rig.store.command(&CommandId::parse("once").unwrap()).await.unwrap().unwrap();
        assert_eq!((row.status, row.ending.and_then(|ending| ending.exit_code)), (Status::Exited, Some(3)));
    });
}

#[test]
fn an_answered_command_has_ended_for_the_next_server_too() {
    let rig = Rig::new();
    rig.live(async |stead| drop(run_as(&stead, "done", "exit 3").await.unwrap()));
    rig.live(async |_| {
        let row = rig.store.command(&CommandId::parse("done").unwrap()).await.unwrap().unwrap();
        assert_eq!((row.status, row.ending.and_then(|ending| ending.exit_code)), (Status::Exited, Some(3)));
    });
}

#[test]
fn what_was_gone_and_is_there_again_is_an_orphan() {
    let rig = Rig::new();
    rig.live(async |stead| {
        run(&stead, "a", "cd /x").await;
        let (before, lease) = (rig.the_instance(), stead.thread(&thread("a")).await.unwrap().lease);
        rig.clock.pass(10_000);
        rig.fake.next(Call::Status, Mischief::Say(Seen::Gone));
        assert_eq!(stead.lease(&lease).await.unwrap().lease.observed, Observed::Stopped);
        rig.clock.pass(10_000);
        assert_eq!(stead.lease(&lease).await.unwrap().lease.observed, Observed::Stopped, "its instance has ended");
        assert_eq!(run(&stead, "a", "pwd").await.stdout, b"/x\n");
        let orphans = stead.orphans().await.unwrap();
        assert_eq!(orphans.iter().map(|orphan| &orphan.handle.instance).collect::<Vec<_>>(), [&before]);
        assert_eq!(rig.store.live_instances().await.unwrap().len(), 1);
    });
}

#[test]
fn of_two_who_share_a_lease_and_are_deleted_at_once_nothing_stays() {
    let rig = Rig::new();
    rig.live(async |stead| {
        run(&stead, "a", "pwd").await;
        share(&stead, "b", "a").await;
        run(&stead, "b", "pwd").await;
        let (a, b) = (thread("a"), thread("b"));
        let (one, other) = tokio::join!(stead.delete_thread(&a), stead.delete_thread(&b));
        one.and(other).unwrap();
        assert_eq!(rig.store.leases(None, &Page::all()).await.unwrap(), []);
        assert_eq!(rig.fake.truth(), []);
    });
}

#[test]
fn a_lease_is_not_put_to_sleep_under_a_session_whose_use_only_its_seat_knows() {
    let rig = Rig::new();
    rig.live(async |stead| {
        let soon = Policy { idle_timeout: Duration::from_mins(1), ..Policy::default() };
        let new = |name: &str, with: Option<&str>| NewThread {
            id: Some(thread(name)),
            share_with: with.map(thread),
            policy: soon,
            ..NewThread::default()
        };
        stead.create_thread(new("busy", None)).await.unwrap();
        stead.create_thread(new("idle", Some("busy"))).await.unwrap();
        run(&stead, "busy", "pwd").await;
        // The newest session is judged first.
        rig.clock.pass(1);
        run(&stead, "idle", "pwd").await;
        rig.clock.pass(50_000);
        run(&stead, "busy", "pwd").await;
        rig.clock.pass(50_000);
        let reaped = stead.reap().await.unwrap();
        assert_eq!(reaped.closed.len(), 1);
        let lease = stead.thread(&thread("busy")).await.unwrap().lease;
        assert_eq!(stead.lease(&lease).await.unwrap().lease.desired, Desired::Running);
    });
}

#[test]
fn an_adopted_lease_tells_what_it_is_from_its_first_event_on() {
    let rig = Rig::new();
    let lost = Handle {
        instance: InstanceId::parse("inst-lost").unwrap(),
        lease: LeaseId::parse("lease-lost").unwrap(),
        workspace: "w".into(),
        reference: "r".into(),
    };
    rig.fake.abandon(lost.clone());
    rig.live(async |stead| {
        stead.adopt(&lost.instance).await.unwrap();
        let events = rig.store.lease_events(&lost.lease, 0, 10).await.unwrap();
        let told: Vec<_> = events.iter().map(|event| event.payload.contains("\"observed\":")).collect();
        assert_eq!(told, [true, true]);
    });
}

/// The journal of a durable provider may be ahead of the store, and must not undo what is restored.
#[test]
fn a_state_is_restored_over_a_journal_that_knows_more_than_the_store() {
    let rig = Rig::with(Fake::durable);
    rig.live(async |stead| {
        for _ in 0..9 {
            rig.fake.next(Call::Capture, Mischief::Delay(Duration::from_millis(1)));
        }
        run(&stead, "a", "cd /late").await;
    });
    rig.fake.behave();
    rig.live(async |stead| {
        let terminal = stead.thread(&thread("a")).await.unwrap().default_terminal;
        let restored = stead.restore(&terminal, 0).await.unwrap();
        assert!(restored.version > 1, "the version after the one that was answered: {restored:?}");
        assert_eq!(run(&stead, "a", "pwd").await.stdout, b"/workspace\n");
    });
}

/// Who opens a terminal and fails half way has made the seat before stale.
#[test]
fn a_terminal_that_could_not_be_opened_again_keeps_its_state_all_the_same() {
    let rig = Rig::new();
    rig.live(async |stead| {
        run(&stead, "a", "cd /x").await;
        rig.fake.next(Call::Run, Mischief::FailBefore);
        // An opening that breaks is tried three times more.
        for _ in 0..4 {
            rig.fake.next(Call::Capture, Mischief::FailBefore);
        }
        let broken = sandbox(&stead, "a").await.unwrap().run(Execute::new("pwd")).await;
        assert!(broken.is_err(), "{broken:?}");
        let after = run(&stead, "a", "cd /y").await;
        assert_eq!(after.command.ending.unwrap().warnings, []);
    });
}

#[test]
fn a_session_that_was_used_until_its_server_stopped_is_not_idle_for_the_next() {
    let rig = Rig::new();
    rig.live(async |stead| {
        run(&stead, "a", "pwd").await;
        rig.clock.pass(3_000_000);
        run(&stead, "a", "pwd").await;
        stead.stop().await;
    });
    rig.clock.pass(3_000_000);
    rig.live(async |stead| assert_eq!(stead.reap().await.unwrap().closed, []));
}

/// What an instance that was given up has still to say is not taken for the terminal's state.
#[test]
fn late_commands_of_an_instance_that_was_given_up_do_not_overwrite_what_was_answered_since() {
    let rig = Rig::new();
    rig.live(async |stead| {
        run(&stead, "a", "cd /first").await;
        let lease = stead.thread(&thread("a")).await.unwrap().lease;
        let slow = |text: &'static str| {
            rig.fake.next(Call::Run, Mischief::Delay(Duration::from_secs(5)));
            let stead = stead.clone();
            tokio::spawn(async move { run(&stead, "a", text).await })
        };
        let late = [slow("cd /late"), slow("cd /later")];
        tokio::time::sleep(Duration::from_secs(4)).await;
        rig.fake.next(Call::Status, Mischief::Say(Seen::Gone));
        assert_eq!(stead.lease(&lease).await.unwrap().lease.observed, Observed::Stopped);
        run(&stead, "a", "cd /new").await;
        for late in late {
            let warnings = late.await.unwrap().command.ending.unwrap().warnings;
            assert_eq!(warnings.iter().map(|warning| warning.code.as_str()).collect::<Vec<_>>(), ["state_not_stored"]);
        }
        for (handle, _) in rig.fake.truth() {
            rig.fake.kill(&handle.instance);
        }
        assert_eq!(run(&stead, "a", "pwd").await.stdout, b"/new\n");
    });
}

/// Of two servers at once one may open the shell of an instance that the other has given up by then. What is answered
/// there is the terminal's state, also when the next server opens the shell of the other instance.
#[test]
fn a_shell_that_its_terminal_has_left_does_not_count_however_late_its_version() {
    let mut went_its_own_way = 0;
    for moment in (0..3000).step_by(50) {
        let rig = Rig::new();
        rig.live(async |stead| drop(run(&stead, "a", "cd /first").await));
        let mut kept = Vec::new();
        rig.live(async |other| {
            let one = rig.server(100).await;
            let export = |stead: &Stead, name: &'static str| {
                let stead = stead.clone();
                let text = format!("export {name}=set");
                tokio::spawn(async move { sandbox(&stead, "a").await?.run(Execute::new(text)).await })
            };
            let first = export(&one, "ONE");
            for _ in 0..moment {
                tokio::task::yield_now().await;
            }
            rig.fake.next(Call::Status, Mischief::Say(Seen::Gone));
            rig.clock.pass(10_000);
            rig.fake.next(Call::Run, Mischief::Delay(Duration::from_secs(5)));
            for (name, running) in [("ONE", first), ("OTHER", export(&other, "OTHER"))] {
                let Ok(ran) = running.await.unwrap() else { continue };
                if ran.command.ending.unwrap().warnings.is_empty() {
                    kept.push((ran.command.state_version, name));
                } else {
                    went_its_own_way += 1;
                }
            }
        });
        rig.live(async |stead| {
            let env = String::from_utf8(run(&stead, "a", "env").await.stdout).unwrap();
            // What ran in the same shell after it, and could not be stored, may have been added.
            let is_there = |(_, name): &(u64, &str)| env.lines().any(|line| line == format!("{name}=set"));
            assert!(kept.iter().all(is_there), "{env:?} after {moment} turns, of {kept:?}");
        });
    }
    assert!(went_its_own_way > 0, "no moment was the one");
}

#[test]
fn what_is_to_be_destroyed_is_not_used_however_long_ago_that_failed() {
    let rig = Rig::new();
    rig.live(async |stead| {
        run(&stead, "a", "true").await;
        share(&stead, "b", "a").await;
        let before = rig.the_instance();
        // Another terminal is being opened there: it has no session yet that could be closed.
        tokio::time::sleep(Duration::from_mins(2)).await;
        rig.fake.next(Call::Status, Mischief::Delay(Duration::from_secs(5)));
        let opening = {
            let stead = stead.clone();
            tokio::spawn(async move { run(&stead, "b", "true").await })
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        rig.fake.next(Call::Destroy, Mischief::Hang);
        assert_eq!(stead.destroy(&thread("a"), Force::Yes).await.unwrap_err().code(), "provider_timeout");
        opening.await.unwrap();
        // Longer than anybody is there for a lease that nobody asks for.
        tokio::time::sleep(Duration::from_mins(2)).await;
        run(&stead, "b", "true").await;
        assert_ne!(rig.the_instance(), before, "a command ran where everything was to be destroyed");
    });
}

#[test]
fn an_instance_that_another_server_gave_up_while_it_was_made_does_not_stay() {
    let rig = Rig::new();
    rig.live(async |other| {
        let one = rig.server(1).await;
        one.create_thread(NewThread { id: Some(thread("a")), ..NewThread::default() }).await.unwrap();
        rig.fake.next(Call::Create, Mischief::Delay(Duration::from_secs(5)));
        let running = tokio::spawn(async move { run(&one, "a", "true").await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(other.pause(&thread("a"), Force::Yes).await.unwrap().lease.observed, Observed::Stopped);
        running.await.unwrap();
        rig.the_instance();
    });
}

/// The reaper, or somebody who shares the lease, can't know that we are coming.
#[test]
fn a_sandbox_is_had_although_its_instance_goes_while_it_is_opened() {
    let rig = Rig::new();
    rig.live(async |stead| {
        rig.fake.next(Call::Capture, Mischief::FailBefore);
        sandbox(&stead, "a").await.unwrap();
    });
}

#[test]
fn resuming_gives_no_more_time_to_a_session_whose_time_is_over() {
    let rig = Rig::new();
    rig.live(async |stead| {
        let first = sandbox(&stead, "a").await.unwrap().session().await.unwrap();
        stead.pause(&thread("a"), Force::No).await.unwrap();
        rig.clock.pass(3_600_001);
        stead.resume(&thread("a")).await.unwrap();
        assert_ne!(sandbox(&stead, "a").await.unwrap().session().await.unwrap().id, first.id);
    });
}

#[test]
fn a_session_is_used_until_its_last_moment_and_no_longer() {
    let rig = Rig::new();
    rig.live(async |stead| {
        let session = async || -> Session { sandbox(&stead, "a").await.unwrap().session().await.unwrap() };
        let first = session().await;
        rig.clock.pass(3_600_000);
        assert_eq!(session().await.id, first.id);
        rig.clock.pass(3_600_001);
        assert_ne!(session().await.id, first.id);
        assert!(rig.clock.now() > first.started_at);
    });
}

const HOUR: u64 = 3_600_000;

/// What was over when it was decided is not made to look otherwise by a clock that is set back before it is written down.
#[test]
fn a_clock_that_is_set_back_while_an_idle_session_is_closed_does_not_make_that_early() {
    let rig = Rig::new();
    rig.live(async |stead| {
        let session = sandbox(&stead, "a").await.unwrap().session().await.unwrap();
        rig.clock.pass(HOUR + 1);
        rig.fake.next(Call::Pause, Mischief::Delay(Duration::from_secs(20)));
        let reaping = {
            let stead = stead.clone();
            tokio::spawn(async move { stead.reap().await.unwrap().closed.len() })
        };
        tokio::time::sleep(Duration::from_secs(10)).await;
        rig.clock.set_back(2 * HOUR);
        assert_eq!(reaping.await.unwrap(), 1);
        let closed = rig.store.session(&session.id).await.unwrap().unwrap();
        let (at, reason) = closed.ended.unwrap();
        assert_eq!(reason, CloseReason::IdleTimeout);
        assert!(at.since(closed.last_active_at) > closed.policy.idle_timeout, "{closed:?}");
    });
}

#[test]
fn a_clock_that_is_set_closes_no_session_early_and_keeps_none_open_longer() {
    for set in [|clock: &Wall| clock.set_ahead(25 * HOUR), |clock: &Wall| clock.set_back(25 * HOUR)] {
        let rig = Rig::new();
        rig.live(async |stead| {
            sandbox(&stead, "a").await.unwrap();
            rig.clock.pass(HOUR / 2);
            set(&rig.clock);
            assert_eq!(stead.reap().await.unwrap().closed, []);
            rig.clock.pass(HOUR / 2);
            assert_eq!(stead.reap().await.unwrap().closed, []);
            rig.clock.pass(1);
            assert_eq!(stead.reap().await.unwrap().closed.len(), 1);
        });
    }
}

/// Its last use lies a year ahead by then.
#[test]
fn a_session_that_was_used_while_the_clock_was_wrong_ends_all_the_same() {
    let rig = Rig::new();
    rig.live(async |stead| {
        sandbox(&stead, "a").await.unwrap();
        rig.clock.set_ahead(365 * 24 * HOUR);
        run(&stead, "a", "pwd").await;
        rig.clock.set_back(365 * 24 * HOUR);
        stead.stop().await;
    });
    rig.live(async |stead| {
        rig.clock.pass(HOUR);
        assert_eq!(stead.reap().await.unwrap().closed, [], "it counts from the start of this server");
        rig.clock.pass(1);
        assert_eq!(stead.reap().await.unwrap().closed.len(), 1);
    });
}

/// Whether there is a shell that has to be told is decided of the very row that is replaced.
#[test]
fn a_restore_beside_the_first_command_on_another_server_is_what_the_later_version_says() {
    for durable in [false, true] {
        for moment in 0..120 {
            let rig = Rig::with(|fake| if durable { fake.durable() } else { fake });
            let mut told = Vec::new();
            rig.live(async |one| {
                let new = NewThread { id: Some(thread("a")), ..NewThread::default() };
                let terminal = one.create_thread(new).await.unwrap().default_terminal;
                let other = rig.server(1).await;
                let first = tokio::spawn(async move { sandbox(&other, "a").await?.run(Execute::new("cd /x")).await });
                for _ in 0..moment {
                    tokio::task::yield_now().await;
                }
                if let Ok(restored) = one.restore(&terminal, 0).await {
                    told.push((restored.version, "/workspace\n"));
                }
                if let Ok(ran) = first.await.unwrap()
                    && ran.command.ending.unwrap().warnings.is_empty()
                {
                    told.push((ran.command.state_version, "/x\n"));
                }
            });
            rig.live(async |stead| {
                let cwd = String::from_utf8(run(&stead, "a", "pwd").await.stdout).unwrap();
                let (_, latest) = told.iter().max().unwrap();
                assert_eq!(cwd, **latest, "after {moment} turns, durable {durable}, {told:?}");
                assert!(told.len() < 2 || told[0].0 != told[1].0, "after {moment} turns: {told:?}");
            });
        }
    }
}

/// The instance is asleep when the variable is set, and its shell is as good as ever when it is awake again.
#[test]
fn what_is_set_while_an_instance_sleeps_is_there_when_somebody_else_has_woken_it() {
    let rig = Rig::new();
    rig.live(async |stead| {
        run(&stead, "a", "pwd").await;
        share(&stead, "b", "a").await;
        run(&stead, "b", "pwd").await;
        rig.fake.pause_behind_our_back(&rig.the_instance(), true);
        rig.clock.pass(10_000);
        let lease = stead.thread(&thread("a")).await.unwrap().lease;
        assert_eq!(stead.lease(&lease).await.unwrap().lease.observed, Observed::Paused);
        let vars = [(Bytes::from("V"), Some(Bytes::from("set")))].into();
        stead.set_env(&thread("a"), "default", EnvChange { vars, ..EnvChange::default() }).await.unwrap();
        run(&stead, "b", "pwd").await;
        assert_eq!(run(&stead, "a", "env").await.stdout, b"V=set\n");
    });
}

/// Between the instance that it is given and its session that others can see.
#[test]
fn an_instance_is_not_destroyed_under_somebody_who_is_just_opening_a_terminal_on_it() {
    let rig = Rig::with(Fake::without_pause);
    rig.live(async |stead| {
        sandbox(&stead, "a").await.unwrap();
        share(&stead, "b", "a").await;
        rig.clock.pass(HOUR + 1);
        rig.fake.next(Call::Access, Mischief::Delay(Duration::from_secs(1)));
        rig.fake.next(Call::Destroy, Mischief::Delay(Duration::from_secs(2)));
        // The state of the one that is closed, of the one that is opened, and what it becomes.
        for delay in [1, 1, 5000] {
            rig.fake.next(Call::Capture, Mischief::Delay(Duration::from_millis(delay)));
        }
        let before = rig.fake.calls(Call::Access);
        let opening = {
            let stead = stead.clone();
            tokio::spawn(async move { run(&stead, "b", "cd /x").await })
        };
        while rig.fake.calls(Call::Access) == before {
            tokio::task::yield_now().await;
        }
        assert_eq!(stead.reap().await.unwrap().closed.len(), 1);
        let command = opening.await.unwrap().command;
        assert_eq!((command.status, command.ending.unwrap().warnings), (Status::Exited, Vec::new()));
    });
}

/// Whether its time is over is decided of the very row that is replaced.
#[test]
fn a_session_that_another_server_writes_down_as_used_is_not_closed_as_idle() {
    let rig = Rig::new();
    rig.live(async |one| {
        let session = sandbox(&one, "a").await.unwrap().session().await.unwrap();
        rig.clock.pass(HOUR - 1);
        run(&one, "a", "pwd").await;
        rig.clock.pass(2);
        let other = rig.server(1).await;
        rig.fake.next(Call::Pause, Mischief::Delay(Duration::from_secs(10)));
        let reaping = tokio::spawn(async move { other.reap().await.unwrap().closed });
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(one.reap().await.unwrap().closed, []);
        assert_eq!(reaping.await.unwrap(), []);
        assert!(rig.store.session(&session.id).await.unwrap().unwrap().ended.is_none());
    });
}

/// The seat goes, for it knows nothing of the variable; that it was used is known to nobody else.
#[test]
fn a_session_that_was_used_is_not_idle_because_a_variable_was_set_while_its_instance_slept() {
    let rig = Rig::new();
    rig.live(async |stead| {
        let session = sandbox(&stead, "a").await.unwrap().session().await.unwrap();
        rig.clock.pass(HOUR);
        run(&stead, "a", "pwd").await;
        rig.clock.pass(HOUR);
        rig.fake.kill(&rig.the_instance());
        let vars = [(Bytes::from("V"), Some(Bytes::from("set")))].into();
        stead.set_env(&thread("a"), "default", EnvChange { vars, ..EnvChange::default() }).await.unwrap();
        assert_eq!(run(&stead, "a", "env").await.command.session, Some(session.id));
    });
}

/// It is used after its uses were written down, and before its seat is taken away.
#[test]
fn a_session_that_is_used_while_its_instance_is_put_to_sleep_is_not_idle() {
    let rig = Rig::new();
    rig.live(async |stead| {
        sandbox(&stead, "a").await.unwrap();
        rig.clock.pass(HOUR - 10_000);
        rig.fake.next(Call::Status, Mischief::Delay(Duration::from_secs(5)));
        let pausing = {
            let stead = stead.clone();
            tokio::spawn(async move { stead.pause(&thread("a"), Force::No).await.map(drop) })
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        run(&stead, "a", "pwd").await;
        pausing.await.unwrap().unwrap();
        rig.clock.pass(HOUR / 2);
        assert_eq!(stead.reap().await.unwrap().closed, []);
    });
}

/// Its time was over when that was looked at; by the time it is closed somebody may be back.
#[test]
fn a_session_of_others_that_is_used_again_is_not_closed_by_who_destroys_the_instance() {
    for moment in 0..60 {
        let rig = Rig::new();
        rig.live(async |stead| {
            run(&stead, "a", "pwd").await;
            share(&stead, "b", "a").await;
            sandbox(&stead, "b").await.unwrap();
        });
        rig.live(async |stead| {
            let terminal = stead.thread(&thread("b")).await.unwrap().default_terminal;
            let first = rig.store.live_session(&terminal).await.unwrap().unwrap();
            rig.clock.pass(HOUR);
            rig.fake.next(Call::Status, Mischief::Delay(Duration::from_secs(5)));
            let coming_back = {
                let stead = stead.clone();
                tokio::spawn(async move { sandbox(&stead, "b").await.map(drop) })
            };
            tokio::time::sleep(Duration::from_secs(5)).await;
            for _ in 0..moment {
                tokio::task::yield_now().await;
            }
            let _ = stead.destroy(&thread("a"), Force::No).await;
            let _ = coming_back.await.unwrap();
            let session = rig.store.session(&first.id).await.unwrap().unwrap();
            if let Some((at, CloseReason::Destroyed)) = session.ended {
                let unused = at.since(session.last_active_at);
                assert!(unused > session.policy.idle_timeout, "after {moment} turns: {session:?}");
            }
        });
    }
}

/// Somebody forces the instance to sleep while the terminal is opened, and wakes it again.
#[test]
fn a_session_that_was_paused_and_woken_by_others_is_not_idle_when_it_is_used() {
    let rig = Rig::new();
    rig.live(async |stead| {
        run(&stead, "a", "pwd").await;
        share(&stead, "b", "a").await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        rig.fake.next(Call::Capture, Mischief::Delay(Duration::from_secs(4)));
        let opening = {
            let stead = stead.clone();
            tokio::spawn(async move { run(&stead, "b", "pwd").await.command.session })
        };
        tokio::time::sleep(Duration::from_secs(1)).await;
        stead.pause(&thread("a"), Force::Yes).await.unwrap();
        run(&stead, "a", "pwd").await;
        let session = opening.await.unwrap();
        rig.clock.pass(HOUR - 10_000);
        assert_eq!(run(&stead, "b", "pwd").await.command.session, session);
        rig.clock.pass(HOUR / 2);
        stead.reap().await.unwrap();
        assert_eq!(run(&stead, "b", "pwd").await.command.session, session);
    });
}
