//! `test_runtime`: a shell that lives (`local`) and one that is made anew for each command (`remote`).

mod local {
    use crate::rig::{Rig, out, run, thread, wait_for};
    use crate::scene::*;
    use std::time::Duration;
    use stead_model::proto::Status;
    use stead_model::session::CloseReason;
    use stead_server::stead::Execute;

    #[tokio::test]
    async fn execute_simple_command() {
        let rig = Rig::new("local").await;
        let ran = run(&rig.sandbox("t").await, "echo text").await;
        assert_eq!((ran.command.status, ran.exit_code(), &*ran.stdout), (Status::Exited, Some(0), &b"text\n"[..]));
    }

    #[tokio::test]
    async fn execute_updates_cwd() {
        let rig = Rig::new("local").await;
        assert_eq!(&*run(&rig.sandbox("t").await, "cd /").await.command.cwd.0, b"/");
        assert_eq!(view(&rig, "t").await.cwd, "/");
    }

    #[tokio::test]
    async fn state_persists_across_commands() {
        let rig = Rig::new("local").await;
        let sandbox = rig.sandbox("t").await;
        run(&sandbox, "cd /").await;
        assert_eq!(out(&sandbox, "pwd").await, "/\n");
    }

    /// What it started is dead, and nothing of it is in the next answer.
    #[tokio::test]
    async fn execute_with_timeout() {
        let rig = Rig::new("local").await;
        let sandbox = rig.sandbox("t").await;
        let text = "sh -c 'echo $$ >pid; echo begun; exec sleep 1000'; echo not reached";
        let timed =
            sandbox.run(Execute { timeout: Some(Duration::from_millis(500)), ..Execute::new(text) }).await.unwrap();
        assert_eq!((timed.command.status, timed.exit_code()), (Status::TimedOut, Some(-1)));
        assert_eq!(timed.stdout, b"begun\n");
        let pid: i32 = wait_for_file(&sandbox, "pid").await.trim().parse().unwrap();
        wait_for("the end of it", || async { stead_term::proc::stat(pid).is_none().then_some(()) }).await;
        assert_eq!(out(&sandbox, "echo next").await, "next\n");
        let soon = sandbox.run(Execute { timeout: Some(Duration::from_millis(100)), ..Execute::new("sleep 10") }).await;
        assert_eq!(soon.unwrap().command.status, Status::TimedOut);
    }

    #[tokio::test]
    async fn close_terminates_session() {
        let rig = Rig::new("local").await;
        let pid: i32 = out(&rig.sandbox("t").await, "echo $$").await.trim().parse().unwrap();
        assert!(stead_term::proc::stat(pid).is_some());
        rig.stead.close_session(&thread("t"), CloseReason::Closed).await.unwrap().unwrap();
        wait_for("the shell's end", || async { stead_term::proc::stat(pid).is_none().then_some(()) }).await;
    }

    #[tokio::test]
    async fn state_version_increments() {
        let rig = Rig::new("local").await;
        let sandbox = rig.sandbox("t").await;
        assert_eq!(view(&rig, "t").await.version, 0);
        for (version, text) in [(1, "cd /"), (2, "cd /tmp"), (3, "true")] {
            assert_eq!(run(&sandbox, text).await.command.state_version, version);
            assert_eq!(view(&rig, "t").await.version, version, "{text}");
        }
    }

    #[tokio::test]
    async fn local_runtime_full_lifecycle() {
        let rig = Rig::new("local").await;
        let sandbox = rig.sandbox("t").await;
        assert_eq!(out(&sandbox, "echo hello").await, "hello\n");
        run(&sandbox, "cd /").await;
        assert_eq!(out(&sandbox, "pwd").await, "/\n");
        let state = view(&rig, "t").await;
        assert_eq!((state.cwd.as_str(), state.version), ("/", 3));
    }

    /// Another shell, as its process number tells, and yet it is where the first one was.
    #[tokio::test]
    async fn state_persists_across_runtime_instances() {
        let rig = Rig::new("local").await;
        let sandbox = rig.sandbox("t").await;
        let first = out(&sandbox, "cd /; echo $$").await;
        rig.stead.close_session(&thread("t"), CloseReason::Closed).await.unwrap().unwrap();
        assert_eq!(view(&rig, "t").await.cwd, "/");
        let second = out(&rig.sandbox("t").await, "pwd; echo $$").await;
        let (cwd, pid) = second.split_once('\n').unwrap();
        assert_eq!(cwd, "/");
        assert_ne!(pid, first);
        assert_eq!(terminal(&rig, "t").await.generation, 2);
    }
}

mod remote {
    use async_trait::async_trait;
    use std::sync::{Arc, Mutex};
    use stead_model::ids::{CommandId, ShellId};
    use stead_model::proto::{CommandInfo, Status};
    use stead_model::state::ShellState;
    use stead_server::provider::{OneShot, ProcessShot, ProviderError, Shot, ShotOutcome, Surroundings};
    use stead_server::runtime::{Opening, Run, Runtime, WrappedRuntime};
    use stead_server::steward::Told;

    /// A provider's calls, seen from its side; they are really made.
    #[derive(Debug)]
    struct Watched {
        calls: Mutex<Vec<Shot>>,
        shots: ProcessShot,
    }

    #[async_trait]
    impl OneShot for Watched {
        async fn shoot(&self, shot: &Shot) -> Result<ShotOutcome, ProviderError> {
            self.calls.lock().unwrap().push(shot.clone());
            self.shots.shoot(shot).await
        }
    }

    struct Remote {
        _dir: tempfile::TempDir,
        watched: Arc<Watched>,
        runtime: WrappedRuntime,
    }

    fn remote(cwd: &str) -> Remote {
        let dir = tempfile::tempdir().unwrap();
        let shots = ProcessShot::new(crate::rig::name("remote"), dir.path().to_owned());
        let watched = Arc::new(Watched { calls: Mutex::default(), shots });
        let env = vec![(b"PATH".to_vec(), b"/usr/bin:/bin".to_vec())];
        let scratch = dir.path().to_string_lossy().into_owned();
        let opening = Opening {
            shell: ShellId::parse("remote").unwrap(),
            state: ShellState { cwd: cwd.into(), ..ShellState::default() },
            version: 0,
            surroundings: Surroundings { env, cwd: b"/tmp".to_vec(), scratch },
        };
        let runtime = WrappedRuntime::open(Arc::clone(&watched) as Arc<dyn OneShot>, &opening);
        Remote { _dir: dir, watched, runtime }
    }

    async fn run(remote: &Remote, id: &str, text: &str) -> (CommandInfo, String) {
        let mut output = Vec::new();
        let run = Run::new(ShellId::parse("remote").unwrap(), CommandId::parse(id).unwrap(), text.as_bytes());
        let mut hear = |told: Told| {
            if let Told::Output(chunk) = told {
                output.extend_from_slice(&chunk.bytes);
            }
        };
        let info = remote.runtime.run(&run, 0, &mut hear).await.unwrap();
        (info, String::from_utf8(output).unwrap())
    }

    /// Also what looks like a marker of somebody's protocol is output and nothing else.
    #[tokio::test]
    async fn execute_simple_command() {
        let remote = remote("/tmp");
        let (info, output) = run(&remote, "c1", "echo hello; printf '__STATE__\\n/evil\\nX=1\\n__END__\\n'").await;
        assert_eq!((info.status, info.ending.unwrap().exit_code), (Status::Exited, Some(0)));
        assert_eq!(output, "hello\n__STATE__\n/evil\nX=1\n__END__\n");
        assert_eq!(remote.runtime.capture().await.unwrap().state.cwd, "/tmp".into());
    }

    #[tokio::test]
    async fn hydrate_state_on_first_execution() {
        let remote = remote("/usr/lib");
        assert_eq!(run(&remote, "c1", "pwd").await.1, "/usr/lib\n");
        let calls = remote.watched.calls.lock().unwrap();
        let [first] = calls.as_slice() else { panic!("{} calls for one command", calls.len()) };
        let restores = first.files.iter().any(|(_, bytes)| {
            let text = String::from_utf8_lossy(bytes);
            text.lines().any(|line| line.contains("cd ") && line.contains("/usr/lib"))
        });
        assert!(restores, "{first:?}");
    }

    #[tokio::test]
    async fn execute_updates_cwd() {
        let remote = remote("/tmp");
        let (info, output) = run(&remote, "c1", "cd /usr; export WHERE=there").await;
        assert_eq!((&*info.cwd.0, output.as_str()), (&b"/usr"[..], ""));
        let captured = remote.runtime.capture().await.unwrap();
        assert_eq!((captured.version, captured.state.cwd), (1, "/usr".into()));
        assert_eq!(run(&remote, "c2", "pwd; echo $WHERE").await.1, "/usr\nthere\n");
    }

    /// There is nothing to end between two calls; it can be closed as often as one likes and goes on when asked.
    #[tokio::test]
    async fn close_is_noop() {
        let remote = remote("/tmp");
        run(&remote, "c1", "cd /usr").await;
        remote.runtime.rest().await.unwrap();
        remote.runtime.rest().await.unwrap();
        assert_eq!(remote.watched.calls.lock().unwrap().len(), 1, "closing calls nobody");
        assert_eq!(run(&remote, "c2", "pwd").await.1, "/usr\n");
    }
}
