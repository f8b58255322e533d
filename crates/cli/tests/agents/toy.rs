//! A sixth agent, which nobody has written code for: a small program that talks to people, described by what its screen
//! looks like.

use crate::rig::wait_for;
use crate::scene::{Scene, last, marked, names, said};
use serde_json::{Value, json};

const TOY: &str = r#"#!/bin/bash
# Counts its messages, echoes them, asks before it writes, and remembers nothing when it ends.
turn=0
printf 'toy agent\n'
while true; do
  IFS= read -r -e -p 'toy> ' line || exit 0
  turn=$((turn + 1))
  case $line in
    *WRITE*)
      IFS= read -r -p 'write the file? [y/n] ' answer
      if [ "$answer" = y ]; then : > toy.txt; printf '* written\n'; else printf '* not written\n'; fi ;;
    *DIE*) exit 3 ;;
    *GATE*)
      printf '* begins\n  goes on\n'
      trap 'stopped=1' INT; stopped=
      until [ -e go ] || [ "$stopped" ]; do sleep 0.05; done
      trap - INT; rm -f go; printf '  ends\n' ;;
    *SPIN*)
      trap 'stopped=1' INT; stopped=; seconds=0
      until [ "$stopped" ]; do printf '\r\033[Kthinking %d s' $((seconds += 1)); sleep 0.1; done
      trap - INT; printf '\r\033[K* stopped\n' ;;
    *FLOOD*) printf '* begins\n'; printf '  line %d of a flood\n' {0..1999} ;;
    *) printf 'thinking'; printf '\r\033[K* turn=%d you said: %s\n  and that is all\n' "$turn" "$line" ;;
  esac
done
"#;

pub(crate) fn toy(more: &str) -> (tempfile::TempDir, Scene) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("toy");
    std::fs::write(&program, TOY).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let settings = format!(
        r#"{more}
        [agent.toy]
        command = ['{}']
        transport = 'pty'
        [agent.toy.screen]
        prompt = '^toy> ?$'
        busy = '^thinking'
        echo = 'toy> '
        answer = '* '
        paste = false
        permission = {{ pattern = 'write the file\? \[y/n\] ?$', allow = "y\r", deny = "n\r" }}
        "#,
        program.display()
    );
    let scene = Scene::plain("toy", &settings);
    (dir, scene)
}

#[test]
fn it_answers_through_its_screen_and_keeps_its_conversation() {
    let (_dir, scene) = toy("");
    let first = scene.say("hello there");
    last(&first, "done");
    assert_eq!(said(&first), "turn=1 you said: hello there\nand that is all", "{first:#?}");
    assert_eq!(names(&first), ["start", "status", "delta", "message", "done"]);
    let second = scene.say("and again");
    last(&second, "done");
    assert_eq!(said(&second), "turn=2 you said: and again\nand that is all", "{second:#?}");
}

#[test]
fn it_is_answered_with_keys() {
    let (_dir, scene) = toy("");
    for (kind, answer) in [("reject_once", "not written"), ("allow_once", "written")] {
        let stream = scene.chat(json!({"message": "WRITE it"}));
        let mut events = stream.until("permission");
        let permission = events.last().unwrap().data.clone();
        let options = permission["options"].as_array().unwrap();
        let option = options.iter().find(|option| option["kind"] == kind).unwrap();
        let choice = json!({"permission_id": permission["id"], "option_id": option["id"]});
        assert_eq!(scene.rig.post(&format!("/api/chat/runs/{}/permission", stream.run()), &choice).status, 204);
        events.extend(stream.rest());
        last(&events, "done");
        let message = &events[events.len() - 2];
        assert!(message.data["text"].as_str().unwrap().ends_with(answer), "{events:#?}");
    }
}

/// Lets it go on behind its gate.
fn let_go_on(scene: &Scene, thread: &str) {
    let path = format!("/api/threads/{thread}/files?path=/workspace/go");
    assert!(scene.rig.call("PUT", &path, &[], b"").status < 300);
}

#[test]
fn its_answer_is_told_before_it_has_ended_and_whoever_leaves_stops_nothing() {
    let (_dir, scene) = toy("");
    let stream = scene.chat(json!({"message": "GATE one", "id": "run-mine"}));
    let before = stream.until("delta");
    drop(stream);
    let_go_on(&scene, "t");
    let all = scene.replay("run-mine", 0).rest();
    last(&all, "done");
    assert_eq!(all[..before.len()], before[..]);
    assert_eq!(said(&all), "begins\ngoes on\nends");
}

#[test]
fn its_turn_is_aborted_and_the_next_goes_on() {
    let (_dir, scene) = toy("");
    let stream = scene.chat(json!({"message": "GATE for ever"}));
    let mut events = stream.until("delta");
    scene.rig.post("/api/chat/abort", &json!({"run_id": stream.run()})).is(200);
    events.extend(stream.rest());
    last(&events, "aborted");
    let next = scene.say("and on");
    last(&next, "done");
    assert_eq!(said(&next), "turn=2 you said: and on\nand that is all");
}

#[test]
fn its_turn_goes_on_when_the_server_is_killed() {
    let (_dir, mut scene) = toy("");
    let stream = scene.chat(json!({"message": "GATE one"}));
    let before = stream.until("delta");
    let run = stream.run();
    scene.rig.kill();
    scene.rig.start();
    let_go_on(&scene, "t");
    let all = scene.replay(&run, 0).rest();
    last(&all, "done");
    assert_eq!(all[..before.len()], before[..], "what was told is told again as it was");
    assert_eq!(said(&all), "begins\ngoes on\nends");
}

#[test]
fn a_reset_of_its_workspace_touches_no_other_and_waits_for_its_turn() {
    let root = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let dir = root.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir.canonicalize().unwrap()
    };
    let (one, ten) = (place("p1"), place("p10"));
    let (_dir, scene) = toy(&format!("[agents]\nallowed_roots = ['{}']\n", root.path().display()));
    let say = |workspace: &std::path::Path, message: &str| {
        scene.chat(json!({"workspace": workspace.display().to_string(), "message": message}))
    };
    last(&say(&ten, "hello").rest(), "done");
    let busy = say(&one, "GATE one");
    let mut events = busy.until("delta");
    let reset = json!({"workspace": one.display().to_string()});
    scene.rig.post("/api/chat/reset", &reset).fails(409, "session_in_use");
    std::fs::write(one.join("go"), "").unwrap();
    events.extend(busy.rest());
    last(&events, "done");
    assert_eq!(
        scene.rig.post("/api/chat/reset", &reset).is(200)["reset"],
        json!([format!("toy:{}:default", one.display())])
    );
    assert!(said(&say(&one, "again").rest()).starts_with("turn=1"));
    assert!(said(&say(&ten, "again").rest()).starts_with("turn=2"));
}

#[test]
fn it_is_ended_when_nobody_uses_it_and_not_before() {
    let (_dir, scene) = toy("[agents]\nidle_timeout_s = 2\n");
    scene.thread("u");
    let busy = scene.chat(json!({"thread_id": "u", "message": "GATE one"}));
    let mut events = busy.until("delta");
    last(&scene.say("hello"), "done");
    let session = |used: bool| -> Value {
        let all = scene.sessions();
        all.into_iter().find(|session| (session["run_id"] == json!(busy.run())) == used).unwrap()
    };
    let resting = session(false);
    assert_eq!(resting["running"], json!(true), "used just now");
    wait_for("it to rest", || (session(false)["running"] == json!(false)).then_some(()));
    assert!(marked(&[resting["id"].as_str().unwrap().to_owned()]).is_empty());
    assert_eq!((&session(true)["running"], &session(true)["in_use"]), (&json!(true), &json!(true)));
    let_go_on(&scene, "u");
    events.extend(busy.rest());
    last(&events, "done");
}

#[test]
fn a_screen_that_only_turns_does_not_keep_its_turn_open() {
    let (_dir, scene) = toy("[agents]\nactivity_timeout_s = 3\n");
    let events = scene.say("SPIN");
    assert_eq!(last(&events, "error")["error"]["code"], "agent_timeout", "{events:#?}");
    last(&scene.say("still there"), "done");
}

#[test]
fn an_answer_that_its_screen_can_not_hold_is_said_to_be_cut() {
    let (_dir, scene) = toy("");
    let events = scene.say("FLOOD me");
    last(&events, "done");
    let told = |name: &str| events.iter().rfind(|event| event.name == name).unwrap().data["text"].as_str().unwrap();
    assert!(told("message").ends_with("\nline 1998 of a flood\nline 1999 of a flood"), "{}", told("message"));
    assert!(told("status").contains("may be missing"), "{events:#?}");
}

#[test]
fn it_outlives_the_server_and_its_death_is_told() {
    let (_dir, mut scene) = toy("");
    last(&scene.say("hello there"), "done");
    scene.rig.kill();
    scene.rig.start();
    let second = scene.say("and again");
    last(&second, "done");
    assert_eq!(said(&second), "turn=2 you said: and again\nand that is all", "{second:#?}");
    let died = scene.say("DIE now");
    assert_eq!(last(&died, "error")["error"]["code"], "agent_died", "{died:#?}");
    let fresh = scene.say("hello once more");
    last(&fresh, "done");
    assert!(said(&fresh).starts_with("turn=1"), "{fresh:#?}");
}
