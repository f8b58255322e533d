//! Day by day.

use super::clock::Clock;
use super::{ON_REQUEST, ids};
use crate::rig::{Rig, wait_for};
use serde_json::{Value, json};

#[test]
fn every_day_of_a_project_that_nobody_works_in_with_a_kill_each_night() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig(ON_REQUEST);
    let (idle, pinned, longer, used) =
        (rig.project("idle"), rig.project("pinned"), rig.project("longer"), rig.project("used"));
    rig.post(&format!("/api/projects/{pinned}/pin"), &json!({})).is(200);
    let extended = rig.post(&format!("/api/projects/{longer}/extend"), &json!({ "days": 10 })).is(200);
    assert!(extended["expires_at"].as_str() > rig.show(&idle)["expires_at"].as_str());
    std::fs::write(rig.place(&idle).join("repo/file"), "kept").unwrap();
    for day in [1, 20, 26, 27, 28, 29, 30, 31, 32] {
        clock.restart(&mut rig, &format!("+{day}d"));
        if day == 20 {
            assert_eq!(rig.work_in(&used, "worker", "echo hello > file")["exit_code"], 0);
        }
        let before = rig.show(&idle);
        let dry = rig.post("/api/projects/cleanup", &json!({ "dry_run": true })).is(200);
        assert_eq!(rig.show(&idle), before, "day {day}: a dry run changes nothing");
        let done = rig.clean();
        assert_eq!(done, dry, "day {day}: what would happen is what happens");
        let (warned, marked, deleted, purged, standing): (_, _, _, _, (&str, Option<&str>)) = match day {
            27 => (1, 0, 0, 0, ("warned", Some("warning"))),
            28 => (1, 0, 0, 0, ("warned", Some("reminder"))),
            29 => (1, 0, 0, 0, ("warned", Some("final"))),
            30 => (0, 1, 0, 0, ("marked", Some("final"))),
            31 => (0, 0, 1, 0, ("trashed", Some("final"))),
            32 => (0, 0, 0, 1, ("", None)),
            _ => (0, 0, 0, 0, ("active", None)),
        };
        for (list, many) in [("warned", warned), ("marked", marked), ("deleted", deleted), ("purged", purged)] {
            assert_eq!(ids(&done[list]), vec![idle.as_str(); many], "day {day}: {list}: {done}");
        }
        if day < 32 {
            let found = rig.standing(&idle);
            assert_eq!((found.0.as_str(), found.1.as_deref()), standing, "day {day}");
        }
        assert_eq!(rig.place(&idle).exists(), day < 31, "day {day}");
        assert_eq!(rig.in_trash(&idle).join("repo/file").exists(), day == 31, "day {day}");
        for other in [&pinned, &longer, &used] {
            assert_eq!(rig.standing(other).0, "active", "day {day}");
        }
        // Once, also if one looks again, and again after a kill.
        let nothing = rig.clean();
        assert!(
            ["warned", "marked", "deleted", "purged"].iter().all(|list| ids(&nothing[*list]).is_empty()),
            "{nothing}"
        );
    }
    rig.get(&format!("/api/projects/{idle}")).fails(404, "not_found");
    let said = ["warning", "reminder", "final", "marked", "trashed", "purged"].map(|what| format!("project.{what}"));
    assert_eq!(rig.said(&idle), said);
    assert!(rig.said(&pinned).is_empty() && rig.said(&used).is_empty());
    // Ten days later the one that was extended.
    clock.restart(&mut rig, "+37d");
    assert_eq!(ids(&rig.clean()["warned"]), [longer.as_str()]);
}

#[test]
fn work_takes_back_what_was_said_and_looking_does_not() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig(ON_REQUEST);
    let names = ["looked", "ran", "wrote", "extended", "pinned", "attached"];
    let all = names.map(|name| rig.project(name));
    let [looked, ran, wrote, extended, pinned, attached] = &all;
    for project in [ran, wrote, attached, looked] {
        rig.post("/api/threads", &json!({ "id": format!("t-{project}"), "project_id": project })).is(201);
    }
    clock.restart(&mut rig, "+30d");
    assert_eq!(ids(&rig.clean()["marked"]).len(), 6);
    let expires = rig.show(looked)["expires_at"].clone();
    rig.get("/api/projects").is(200);
    rig.get(&format!("/api/threads/t-{looked}")).is(200);
    rig.get(&format!("/api/threads/t-{looked}/files/list?path=/workspace")).is(200);
    rig.get(&format!("/api/projects/{looked}/snapshots")).is(200);
    assert_eq!(rig.exec(&format!("t-{ran}"), "true")["exit_code"], 0);
    let put = rig.call("PUT", &format!("/api/threads/t-{wrote}/files?path=a.txt"), &[], b"text");
    assert_eq!(put.status, 201);
    rig.post(&format!("/api/projects/{extended}/extend"), &json!({ "days": 7 })).is(200);
    rig.post(&format!("/api/projects/{pinned}/pin"), &json!({})).is(200);
    let ws = attach(&rig, &format!("t-{attached}"));
    for project in [ran, wrote, extended, pinned, attached] {
        assert_eq!(rig.standing(project), ("active".to_owned(), None), "{project}");
    }
    drop(ws);
    assert_eq!(rig.standing(looked).0, "marked");
    assert_eq!(rig.show(looked)["expires_at"], expires);
    clock.restart(&mut rig, "+31d");
    assert_eq!(ids(&rig.clean()["deleted"]), [looked.as_str()]);
}

/// A person at the terminal.
fn attach(rig: &Rig, thread: &str) -> std::net::TcpStream {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(rig.address()).unwrap();
    let request = format!(
        "GET /api/threads/{thread}/pty?cols=80&rows=24 HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        rig.address(),
        rig.token
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 101");
    // The first frame comes when it sits.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    stream.read_exact(&mut [0; 2]).unwrap();
    stream
}

#[test]
fn after_weeks_without_a_server_nothing_goes_that_was_not_marked_a_day_before() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig(ON_REQUEST);
    let project = rig.project("forgotten");
    clock.restart(&mut rig, "+90d");
    let done = rig.clean();
    assert_eq!((ids(&done["warned"]), ids(&done["marked"])), (vec![project.as_str()], vec![project.as_str()]));
    assert_eq!(rig.said(&project), ["project.final", "project.marked"]);
    clock.restart(&mut rig, "+2172h");
    assert_eq!(rig.clean()["deleted"], json!([]), "half a day is not a day");
    clock.restart(&mut rig, "+91d");
    assert_eq!(ids(&rig.clean()["deleted"]), [project.as_str()]);
}

#[test]
fn a_clock_that_leaps_or_is_set_back_deletes_nothing_early() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig(ON_REQUEST);
    let project = rig.project("leap");
    clock.restart(&mut rig, "+30d");
    assert_eq!(ids(&rig.clean()["marked"]), [project.as_str()]);
    // Under the running server: nobody waited two days.
    clock.set("+32d");
    assert_eq!(rig.clean()["deleted"], json!([]));
    assert_eq!(rig.standing(&project).0, "marked");
    assert!(rig.log().contains("leapt"), "{}", rig.log());
    // Nor did anybody when that server died.
    clock.restart(&mut rig, "+32d");
    assert_eq!(rig.clean()["deleted"], json!([]));
    clock.restart(&mut rig, "+33d");
    assert_eq!(ids(&rig.clean()["deleted"]), [project.as_str()]);
    clock.set("+60d");
    assert_eq!(rig.clean()["purged"], json!([]), "nor were its hours in the trash");
    // Set back to before everything: what is in the trash stays in it, and can be taken out.
    clock.restart(&mut rig, "+1d");
    assert_eq!(rig.clean()["purged"], json!([]));
    rig.post(&format!("/api/projects/{project}/restore"), &json!({})).is(200);
    assert_eq!(rig.standing(&project).0, "active");
    // A machine that was in another century, and is told better: what it said is void.
    let other = rig.project("century");
    clock.restart(&mut rig, "+20000d");
    wait_for("a round of its own", || (rig.standing(&other).0 == "marked").then_some(()));
    clock.restart(&mut rig, "+2d");
    assert_eq!(rig.clean()["deleted"], json!([]));
    assert_eq!(rig.standing(&other), ("active".to_owned(), None));
    // The same under the running server.
    clock.set("+20000d");
    assert!(ids(&rig.clean()["marked"]).contains(&other.as_str()));
    clock.set("+2d");
    assert_eq!(rig.clean()["deleted"], json!([]));
    assert_eq!(rig.standing(&other), ("active".to_owned(), None));
}

#[test]
fn it_happens_by_itself_when_a_day_has_gone_by() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig("");
    let project = rig.project("alone");
    clock.restart(&mut rig, "+27d");
    wait_for("warning", || (rig.standing(&project).1.as_deref() == Some("warning")).then_some(()));
    clock.restart(&mut rig, "+30d");
    wait_for("mark", || (rig.standing(&project).0 == "marked").then_some(()));
    let events = rig.get(&format!("/api/projects/{project}/events")).is(200);
    let sources: Vec<&Value> = events["items"].as_array().unwrap().iter().map(|event| &event["source"]).collect();
    assert!(sources.iter().all(|source| **source == "cleanup"), "{events}");
}

#[test]
fn switched_off_only_the_trash_is_emptied() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig("[projects]\ncleanup_enabled = false\n");
    let (idle, deleted) = (rig.project("idle"), rig.project("deleted"));
    rig.delete(&format!("/api/projects/{deleted}")).is(204);
    clock.restart(&mut rig, "+40d");
    wait_for("purge", || (rig.get(&format!("/api/projects/{deleted}")).status == 404).then_some(()));
    assert_eq!(rig.standing(&idle), ("active".to_owned(), None));
    assert_eq!(ids(&rig.clean()["marked"]), [idle.as_str()], "asked for it happens all the same");
}

#[test]
fn threads_without_a_project_go_the_same_way() {
    let Some(clock) = Clock::new() else { return };
    let mut rig = clock.rig(ON_REQUEST);
    for thread in ["idle", "used"] {
        assert_eq!(rig.exec(thread, "echo data > file; pwd")["exit_code"], 0);
    }
    let standing = |rig: &Rig, thread: &str| {
        let shown = rig.get(&format!("/api/threads/{thread}")).is(200)["retention"].clone();
        (shown["status"].as_str().unwrap().to_owned(), shown["warning_level"].as_str().map(str::to_owned))
    };
    assert_eq!(standing(&rig, "idle"), ("active".to_owned(), None));
    for (day, status, level) in [
        (27, "warned", "warning"),
        (28, "warned", "reminder"),
        (29, "warned", "final"),
        (30, "marked", "final"),
        (31, "trashed", "final"),
    ] {
        clock.restart(&mut rig, &format!("+{day}d"));
        let dry = rig.post("/api/projects/cleanup", &json!({ "dry_run": true })).is(200);
        let done = rig.clean();
        assert_eq!(done, dry, "day {day}");
        assert_eq!(standing(&rig, "idle"), (status.to_owned(), Some(level.to_owned())), "day {day}: {done}");
        if day == 30 {
            assert_eq!(standing(&rig, "used").0, "marked");
            assert_eq!(rig.exec("used", "cat file")["stdout"], "data\n");
            assert_eq!(standing(&rig, "used"), ("active".to_owned(), None));
        }
    }
    let listed = rig.get("/api/threads").is(200);
    assert!(
        listed["items"].as_array().unwrap().iter().any(|item| item["retention"]["status"] == "trashed"),
        "{listed}"
    );
    clock.restart(&mut rig, "+32d");
    assert_eq!(ids(&rig.clean()["threads"]["purged"]), ["idle"]);
    rig.get("/api/threads/idle").fails(404, "not_found");
    assert_eq!(rig.exec("used", "cat file")["stdout"], "data\n");
}
