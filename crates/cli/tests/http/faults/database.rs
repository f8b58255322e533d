//! A database that is damaged, or that another process holds.

use super::refusal;
use crate::rig::{Rig, wait_for};
use serde_json::json;
use sqlx::{Connection, Executor};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

fn digest(rig: &Rig) -> Vec<(String, Vec<u8>)> {
    let files = ["stead.db", "stead.db-wal", "token"];
    files.iter().map(|file| ((*file).to_owned(), std::fs::read(rig.data().join(file)).unwrap_or_default())).collect()
}

/// A server that has ended, with something in its database, and all of it in the one file.
fn ended() -> Rig {
    let mut rig = Rig::new();
    for number in 0..200 {
        rig.post("/api/threads", &json!({ "id": format!("t{number}") })).is(201);
    }
    assert!(rig.terminate().success());
    rig
}

#[test]
fn a_damaged_database_is_refused_with_what_to_do_and_left_as_it_is() {
    let mut rig = ended();
    let path = rig.data().join("stead.db");
    let whole = std::fs::read(&path).unwrap();
    let damage: [(&str, &dyn Fn()); 5] = [
        ("cut in half", &|| {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_len(whole.len() as u64 / 2).unwrap();
        }),
        ("cut inside a page", &|| {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_len(whole.len() as u64 - 1000).unwrap();
        }),
        ("no database at all", &|| std::fs::write(&path, "something else entirely\n".repeat(1000)).unwrap()),
        ("a page of noise", &|| {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[0xa5; 4096], 4096).unwrap();
        }),
        ("noise everywhere but the first page", &|| {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(&vec![0x5a; whole.len() - 4096], 4096).unwrap();
        }),
    ];
    for (what, wreck) in damage {
        std::fs::write(&path, &whole).unwrap();
        wreck();
        let before = digest(&rig);
        println!("{what}");
        let said = refusal(&rig);
        assert!(said.contains("stead.db"), "{what}: {said}");
        assert!(["backup", "move", "restore"].iter().any(|word| said.contains(word)), "{what}: {said}");
        assert!(digest(&rig) == before, "{what}: it changed something");
    }
    std::fs::write(&path, &whole).unwrap();
    rig.start();
    assert_eq!(rig.get("/api/threads?limit=1000").is(200)["items"].as_array().unwrap().len(), 200);
}

#[test]
fn while_another_process_holds_the_database_requests_wait_or_fail_by_name_and_nothing_is_lost() {
    let rig = Rig::new();
    rig.exec("t", "N=0");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("sqlite:{}", rig.data().join("stead.db").display());
    let mut other = runtime.block_on(async {
        let mut other = sqlx::SqliteConnection::connect(&url).await.unwrap();
        other.execute("BEGIN IMMEDIATE").await.unwrap();
        other
    });
    let held = Instant::now();
    let bearer = &rig;
    let (made, ran) = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..4)
            .map(|number| {
                scope.spawn(move || {
                    let id = format!("new{number}");
                    let answer = bearer.post("/api/threads", &json!({ "id": id }));
                    (id, answer)
                })
            })
            .collect();
        let runner = scope.spawn(|| {
            let mut answers = Vec::new();
            for number in 0..3 {
                let exec = json!({ "command": "N=$((N+1)); echo $N", "id": format!("c{number}") });
                answers.push((number, bearer.post("/api/threads/t/exec", &exec)));
            }
            answers
        });
        // Reading goes on.
        while held.elapsed() < Duration::from_secs(3) {
            rig.get("/api/threads/t").is(200);
        }
        runtime.block_on(async { other.execute("COMMIT").await.unwrap() });
        let made: Vec<_> = makers.into_iter().map(|maker| maker.join().unwrap()).collect();
        (made, runner.join().unwrap())
    });
    for (id, answer) in made {
        match answer.status {
            201 => assert_eq!(rig.get(&format!("/api/threads/{id}")).status, 200, "{id} was acknowledged"),
            _ => drop(answer.fails(503, "unavailable")),
        }
    }
    let mut done = 0;
    for (number, answer) in ran {
        if answer.status == 200 {
            done += 1;
            assert_eq!(answer.json()["stdout"], json!(format!("{done}\n")));
            assert_eq!(rig.get(&format!("/api/commands/c{number}")).is(200)["status"], "exited");
        } else {
            answer.fails(503, "unavailable");
        }
    }
    assert_eq!(rig.exec("t", "echo $N")["stdout"], format!("{done}\n"));
}

#[test]
fn a_command_that_the_database_refuses_for_a_while_is_found_then_and_later() {
    let rig = Rig::new();
    rig.post("/api/threads", &json!({ "id": "t", "provider": "local" })).is(201);
    rig.exec("t", "true");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("sqlite:{}", rig.data().join("stead.db").display());
    let mut other = runtime.block_on(async {
        let mut other = sqlx::SqliteConnection::connect(&url).await.unwrap();
        let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON commands BEGIN SELECT RAISE(ABORT, 'refused'); END";
        other.execute(refuse).await.unwrap();
        other
    });
    let answer = rig.exec("t", "echo kept; (exit 7)");
    wait_for("the refusal", || rig.log().contains("could not be written to the store").then_some(()));
    let id = answer["id"].as_str().unwrap();
    let found = || rig.get(&format!("/api/commands/{id}")).is(200);
    assert_eq!((&found()["status"], &found()["exit_code"]), (&json!("exited"), &json!(7)));
    runtime.block_on(async { other.execute("DROP TRIGGER refuse").await.unwrap() });
    wait_for("it in the history", || {
        let list = rig.get("/api/threads/t/commands").is(200);
        list["items"].as_array().unwrap().iter().any(|item| item["id"] == id).then_some(())
    });
    assert_eq!((&found()["status"], &found()["exit_code"]), (&json!("exited"), &json!(7)));
}
