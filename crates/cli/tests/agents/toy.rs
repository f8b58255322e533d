//! A sixth agent, which nobody has written code for: a small program that talks to people, described by what its screen
//! looks like.

use crate::scene::{Scene, last, names, said};
use serde_json::json;

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
    *SLEEP*) trap 'printf "* interrupted\n"' INT; printf 'thinking\n'; sleep 600; trap - INT ;;
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
        busy = '^thinking$'
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
    assert_eq!(names(&first), ["status", "start", "delta", "message", "done"]);
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
