//! Many commands, one shell.

use super::{Ground, refusal};
use crate::bench::{Outcome, Shell, exec, length, until};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stead_model::proto::{Exec, FaultCode, FirstSignal, IfBusy, Status, Stdin};
use stead_server::steward::Told;
use tokio::task::JoinHandle;

/// Holds a command until it is let go.
pub(crate) struct Gate {
    begun: PathBuf,
    open: PathBuf,
    /// The workspace as the command knows it.
    cwd: String,
}

impl Gate {
    pub(crate) fn new(ground: &Ground) -> Self {
        Self { begun: ground.outside(".begun"), open: ground.outside(".open"), cwd: ground.cwd() }
    }

    /// A command that has begun and waits.
    pub(crate) async fn running(&mut self, shell: &Shell) -> JoinHandle<Outcome> {
        let [begun, open] = [".begun", ".open"].map(|name| format!("{}/{name}", self.cwd));
        let text = format!("touch {begun}; until [ -e {open} ]; do sleep 0.01; done; rm {open} {begun}; echo gate");
        let shell = shell.clone();
        let running = tokio::spawn(async move { shell.run(text).await });
        until("the gate to be reached", || self.begun.exists()).await;
        running
    }

    pub(crate) fn release(&mut self) {
        std::fs::write(&self.open, "").unwrap();
    }
}

/// Waits until a command is in the queue: who asks for it a second time and doesn't want to wait is told that it is busy,
/// by those who can't look it up.
pub(crate) async fn until_waiting(shell: &Shell, waiting: &Exec) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while shell.runtime.remembers() && shell.runtime.look_up(&waiting.command).await.unwrap().is_none() {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    // Tasks that were spawned before this one was woken again have had their turn.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn commands_asked_for_together_run_one_after_the_other(ground: &Ground) {
    let shell = ground.shell("main").await;
    let mut gate = Gate::new(ground);
    let running = gate.running(&shell).await;
    let mut tasks = Vec::new();
    for n in 0..10 {
        let one = exec(format!("echo in{n} >>order; echo {n}; sleep 0.02; echo out{n} >>order; count=$((count+1))"));
        let (same, asked) = (shell.clone(), one.clone());
        tasks.push(tokio::spawn(async move { same.run_exec(asked).await }));
        until_waiting(&shell, &one).await;
    }
    gate.release();
    running.await.unwrap();
    let mut numbers = Vec::new();
    for (n, task) in tasks.into_iter().enumerate() {
        let outcome = task.await.unwrap();
        assert_eq!(outcome.seen(), (Some(0), format!("{n}\n"), String::new()));
        numbers.push(outcome.info.number);
    }
    assert!(numbers.is_sorted(), "{numbers:?}");
    let order = (0..10).map(|n| format!("in{n}\nout{n}\n")).collect::<Vec<_>>().concat();
    assert_eq!(shell.out("cat order").await, order);
    assert_eq!(shell.out("echo $count").await, "10\n");
}

pub(crate) async fn a_command_that_does_not_want_to_wait_is_refused(ground: &Ground) {
    let shell = ground.shell("main").await;
    let impatient = |text: &str| Exec { if_busy: IfBusy::Reject, ..exec(text) };
    assert_eq!(shell.run_exec(impatient("echo idle")).await.stdout, b"idle\n");
    let mut gate = Gate::new(ground);
    let running = gate.running(&shell).await;
    let refused = impatient("touch ran");
    assert_eq!(refusal(shell.try_exec(refused.clone()).await), FaultCode::Busy);
    gate.release();
    running.await.unwrap();
    assert!(!ground.outside("ran").exists());
    // Refused is not asked for: it can still be.
    assert_eq!(shell.run_exec(refused).await.code(), Some(0));
    assert!(ground.outside("ran").exists());
}

pub(crate) async fn the_same_command_is_run_once(ground: &Ground) {
    let shell = ground.shell("main").await;
    let once = exec("echo x >>count; echo out; n=$((n+1)); (exit 4)");
    let first = shell.run_exec(once.clone()).await;
    let again = shell.run_exec(once.clone()).await;
    assert_eq!((first.code(), &first.info), (Some(4), &again.info));
    if shell.runtime.remembers() {
        assert_eq!(again.stdout, b"out\n", "who asks again hears everything");
        let mut heard = Vec::new();
        let mut listener = |told: Told| heard.extend(told.seq());
        shell.runtime.run(&once, 2, &mut listener).await.unwrap();
        assert_eq!(heard, [3]);
    }
    // At the same time.
    let together = exec("echo y >>count; sleep 0.1; echo together");
    let tasks = [0, 1, 2].map(|_| {
        let (shell, together) = (shell.clone(), together.clone());
        tokio::spawn(async move { shell.try_exec(together).await })
    });
    for task in tasks {
        match task.await.unwrap() {
            Ok(outcome) => assert_eq!(outcome.code(), Some(0)),
            Err(error) => {
                assert_eq!((shell.runtime.remembers(), refusal::<()>(Err(error))), (false, FaultCode::Conflict));
            }
        }
    }
    assert_eq!(shell.out("cat count; echo $n").await, "x\ny\n1\n");
}

pub(crate) async fn another_text_under_the_same_name_is_refused(ground: &Ground) {
    let shell = ground.shell("main").await;
    let one = exec("echo one");
    shell.run_exec(one.clone()).await;
    let other = Exec { text: "touch ran".into(), ..one };
    assert_eq!(refusal(shell.try_exec(other).await), FaultCode::Conflict);
    assert!(!ground.outside("ran").exists());
}

pub(crate) async fn what_became_of_a_command_can_be_looked_up(ground: &Ground) {
    let shell = ground.shell("main").await;
    let ended = shell.run("echo out; (exit 3)").await.info;
    assert_eq!(shell.runtime.look_up(&ended.command).await.unwrap(), Some(ended));
    assert_eq!(shell.runtime.look_up(&exec("never").command).await.unwrap(), None);
}

pub(crate) async fn children_in_the_background_do_not_hold_up_the_end(ground: &Ground) {
    let shell = ground.shell("main").await;
    let outcome = shell.run("(sleep 1000; touch over) & echo done").await;
    assert_eq!(outcome.seen().1, "done\n");
    let outcome = shell.run("(setsid sleep 1000 &) ; (sleep 1000; echo late) & echo done").await;
    assert_eq!(outcome.seen().1, "done\n");
    assert!(!ground.outside("over").exists(), "the end came before the child's");
    assert_eq!(shell.out("echo next").await, "next\n");
}

pub(crate) async fn a_shell_that_rests_knows_what_it_knew(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("cd /usr; v=1; f() { echo f; }").await;
    let before = shell.runtime.capture().await.unwrap();
    for _ in 0..2 {
        shell.runtime.rest().await.unwrap();
        assert_eq!(shell.runtime.capture().await.unwrap(), before);
    }
    if ground.lives() {
        assert!(ground.bench.residents().iter().all(|stat| {
            !std::fs::read_to_string(format!("/proc/{}/comm", stat.pid)).is_ok_and(|comm| comm == "bash\n")
        }));
    }
    assert_eq!(shell.out("pwd; echo $v; f").await, "/usr\n1\nf\n");
}

pub(crate) async fn a_busy_shell_says_so_and_does_not_rest(ground: &Ground) {
    let shell = ground.shell("main").await;
    assert!(!shell.runtime.is_busy().await.unwrap());
    let mut gate = Gate::new(ground);
    let running = gate.running(&shell).await;
    assert!(shell.runtime.is_busy().await.unwrap());
    assert_eq!(refusal(shell.runtime.rest().await), FaultCode::Busy);
    gate.release();
    assert_eq!(running.await.unwrap().stdout, b"gate\n");
    assert!(!shell.runtime.is_busy().await.unwrap());
    shell.runtime.rest().await.unwrap();
}

pub(crate) async fn writing_to_a_running_command_works_or_is_refused(ground: &Ground) {
    let shell = ground.shell("main").await;
    let open = Exec { stdin: Stdin::Open, ..exec("touch ran; cat") };
    if !shell.runtime.remembers() {
        assert_eq!(refusal(shell.try_exec(open).await), FaultCode::Unsupported);
        assert!(!ground.outside("ran").exists());
        return;
    }
    // A reader that gets nothing waits, until it is told to stop.
    let running = {
        let (shell, open) = (shell.clone(), open.clone());
        tokio::spawn(async move { shell.run_exec(open).await })
    };
    until("it to run", || ground.outside("ran").exists()).await;
    shell.runtime.cancel(&open.command, FirstSignal::Interrupt).await.unwrap();
    assert_eq!(running.await.unwrap().ending().status, Status::Cancelled);
}

pub(crate) async fn a_caller_that_goes_away_leaves_the_shell_usable(ground: &Ground) {
    let shell = ground.shell("main").await;
    shell.run("v=1; cd /usr").await;
    let log = ground.outside("log");
    let left = exec(format!("for i in 1 2 3 4 5; do echo x >>{}/log; sleep 0.05; done", ground.cwd()));
    let task = {
        let shell = shell.clone();
        tokio::spawn(async move { shell.run_exec(left).await })
    };
    until("it to run", || length(&log) > 0).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), shell.out("echo $v; pwd")).await.unwrap(), "1\n/usr\n");
    if shell.runtime.remembers() {
        assert_eq!(length(&log), 10, "it goes on to its end");
    } else {
        // Nobody will ever ask for what it said: it ends, and its files with it.
        until("its processes to end", || ground.bench.processes().is_empty()).await;
        let scratch = ground.bench.path().join("scratch");
        until("its files to go", || std::fs::read_dir(&scratch).unwrap().next().is_none()).await;
    }
}

pub(crate) async fn a_text_with_a_nul_is_refused(ground: &Ground) {
    let shell = ground.shell("main").await;
    assert_eq!(refusal(shell.try_exec(exec("touch ran\0")).await), FaultCode::Invalid);
    let long = vec![b'#'; stead_model::proto::MAX_TEXT + 1];
    assert_eq!(refusal(shell.try_exec(exec(long)).await), FaultCode::Invalid);
    assert_eq!(shell.out("ls").await, "");
}
