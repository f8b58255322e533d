//! `kill -9` of the real server while hot memory is written: what was acknowledged is there, in every value and in no
//! other; what was under way is there whole or not at all.

use super::{fs, project};
use crate::rig::{Rig, rounds, wait_for};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const WRITERS: u64 = 4;
const FILES: u64 = 7;

/// What a writer knows of each of its files: what was acknowledged, and what may have been written since.
type Known = BTreeMap<String, (Option<String>, Option<Option<String>>)>;

struct Writer<'a> {
    rig: &'a Rig,
    agent: ureq::Agent,
    project: &'a str,
    number: u64,
    done: &'a AtomicU64,
    over: &'a AtomicBool,
}

impl Writer<'_> {
    /// Writes until the server is gone.
    fn work(&self, known: &mut Known, round: u32) {
        for step in 0.. {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            let path = format!("memories/hot/w{}/d{}/f", self.number, step % FILES);
            let value =
                (step % 5 != 4).then(|| format!("{round} {step} {}", "x".repeat(usize::try_from(step % 300).unwrap())));
            let place = known.entry(path.clone()).or_default();
            if value.is_none() && place.0.is_none() {
                continue;
            }
            place.1 = Some(value.clone());
            let method = if value.is_some() { "PUT" } else { "DELETE" };
            let uri = format!("{}{}", self.rig.url, fs(self.project, &path));
            let request = ureq::http::Request::builder().method(method).uri(uri);
            let request = request.header("authorization", format!("Bearer {}", self.rig.token));
            let body = value.clone().unwrap_or_default().into_bytes();
            let Ok(answer) = self.agent.run(request.body(body).unwrap()) else { return };
            assert!(answer.status().is_success(), "{method} {path}: {}", answer.status());
            *place = (value, None);
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn nothing_that_was_acknowledged_is_lost_however_often_the_server_is_killed() {
    let mut rig = Rig::with_config("[memory]\nsnapshot_interval_s = 1\n", &[]);
    let id = project(&rig);
    let mut known: Vec<Known> = (0..WRITERS).map(|_| Known::new()).collect();
    let done = AtomicU64::new(0);
    for round in 0..rounds(16) {
        let over = AtomicBool::new(false);
        let pid = rustix::process::Pid::from_child(rig.server.as_ref().unwrap());
        std::thread::scope(|scope| {
            for (number, known) in known.iter_mut().enumerate() {
                let config = ureq::Agent::config_builder().http_status_as_error(false).build();
                let number = u64::try_from(number).unwrap();
                let writer = Writer { rig: &rig, agent: config.into(), project: &id, number, done: &done, over: &over };
                scope.spawn(move || writer.work(known, round));
            }
            // At another moment each time; some rounds last long enough for snapshots to be taken.
            let enough = done.load(Ordering::Relaxed) + 20 + u64::from(round) * 37;
            wait_for("writes", || (done.load(Ordering::Relaxed) >= enough).then_some(()));
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            over.store(true, Ordering::Relaxed);
        });
        rig.kill();
        rig.start();
        for (path, (acknowledged, under_way)) in known.iter_mut().flatten() {
            let answer = rig.get(&fs(&id, path));
            let found = match answer.status {
                200 => Some(String::from_utf8(answer.body).unwrap()),
                404 => None,
                other => panic!("{path}: {other}"),
            };
            let is_it = found == *acknowledged || under_way.as_ref().is_some_and(|value| *value == found);
            assert!(is_it, "round {round}, {path}: {found:?} is neither {acknowledged:?} nor {under_way:?}");
            (*acknowledged, *under_way) = (found, None);
        }
        let warnings = rig.get(&format!("/api/projects/{id}/memory")).is(200)["warnings"].clone();
        assert_eq!(warnings, serde_json::json!([]), "round {round}");
    }
}
