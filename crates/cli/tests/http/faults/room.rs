//! A disk that is full, and has room again.

use crate::rig::{Rig, wait_for};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system at a place; gone with it.
pub(crate) struct Small(PathBuf);

impl Small {
    pub(crate) fn mount(path: &Path) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=48m,mode=700", "tmpfs"]).arg(path);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self(path.to_owned()))
    }

    /// Takes all the room there is.
    pub(crate) fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("ballast")).unwrap();
        for size in [1 << 20, 4096, 1] {
            while file.write_all(&vec![b'x'; size]).is_ok() {}
        }
    }

    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_full_disk_is_told_by_name_loses_nothing_and_all_goes_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let Some(small) = Small::mount(&data) else {
        println!("SKIPPED: no file system can be mounted here (it needs root)");
        return;
    };
    let rig = Rig::with_all("", &["--data", data.to_str().unwrap()], &[]);
    rig.exec("t", "N=1; echo kept > /workspace/f");
    let begin =
        json!({ "command": "read x; seq 1 200000; echo $x", "stdin_open": true, "background": true, "id": "long" });
    rig.post("/api/threads/writer/exec", &begin).is(202);
    wait_for("a running command", || (rig.get("/api/commands/long").is(200)["status"] == "running").then_some(()));
    small.fill();
    // One that writes stands still, another that begins is refused or waits; nothing is made up.
    rig.call("POST", "/api/commands/long/stdin?eof=true", &[], b"end\n");
    let refused = wait_for("somebody to be told", || {
        let answer = rig.post(
            "/api/threads",
            &json!({ "id": format!("n{}", "x".repeat(100)), "env": { "A": "x".repeat(100_000) } }),
        );
        (answer.status != 201).then_some(answer)
    });
    let error = refused.fails(507, "no_space");
    assert_eq!(error["retryable"], true);
    let exec = json!({ "command": "N=2; echo ran", "id": "under", "timeout_ms": 5000 });
    let under = rig.post("/api/threads/t/exec", &exec);
    match under.status {
        200 => {
            let record = under.json();
            let fair = record["status"] == "exited" || record["error"]["code"] == "no_space";
            assert!(fair, "{record}");
        }
        _ => drop(under.fails(507, "no_space")),
    }
    assert_eq!(rig.get("/api/threads/t").status, 200);
    assert_eq!(rig.get("/healthz").status, 200);
    small.make_room();
    let end = rig.events("GET", "/api/commands/long/events", &Value::Null).last().unwrap();
    assert_eq!((&end.data["status"], &end.data["exit_code"]), (&json!("exited"), &json!(0)), "{end:?}");
    let all = (1..=200_000).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat() + "end\n";
    assert!(rig.get("/api/commands/long/output/stdout").body == all.as_bytes(), "the output differs");
    let again = wait_for("it to run", || {
        let answer = rig.post("/api/threads/t/exec", &json!({ "command": "echo on; cat /workspace/f" }));
        (answer.status == 200).then(|| answer.json())
    });
    assert_eq!(again["stdout"], "on\nkept\n");
    rig.post("/api/threads", &json!({ "id": "new" })).is(201);
}
