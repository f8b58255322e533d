//! A person at a terminal, through all layers.

use crate::rig::{Rig, out, thread, wait_for};
use std::time::Duration;
use stead_model::proto::{Detached, Size, Status};
use stead_server::lease::Force;
use stead_server::stead::{AttachEvent, Attachment, Where};
use stead_server::store::Page;
use stead_term::screen::{PIECE, Screen};

struct Person {
    attachment: Attachment,
    screen: Screen,
    exits: Vec<Option<i32>>,
    left: Option<Detached>,
}

impl Person {
    async fn at(rig: &Rig, id: &str) -> Self {
        let size = Size { columns: 80, rows: 24 };
        let attachment = rig.stead.attach(Where::thread(thread(id)), size).await.unwrap();
        Self { attachment, screen: Screen::new(size), exits: Vec::new(), left: None }
    }

    async fn press(&self, keys: &str) {
        self.attachment.send(keys).await.unwrap();
    }

    async fn wait(&mut self, what: &str, check: impl Fn(&Self) -> bool) {
        while !check(self) {
            let next = tokio::time::timeout(Duration::from_secs(20), self.attachment.recv()).await;
            let Ok(next) = next else { panic!("waited too long for {what}; the screen:\n{}\n---", self.screen.text()) };
            match next {
                Some(AttachEvent::Bytes(bytes)) => {
                    for piece in bytes.chunks(PIECE) {
                        self.screen.feed(piece);
                    }
                }
                Some(AttachEvent::Exit(end)) => self.exits.push(end.exit_code),
                Some(AttachEvent::Resized(_)) => {}
                Some(AttachEvent::Detached(why)) => self.left = Some(why),
                None => panic!("it is over before {what}; the screen:\n{}\n---", self.screen.text()),
            }
        }
    }

    async fn wait_line(&mut self, line: &str) {
        self.wait(line, |person| person.screen.text().lines().any(|shown| shown == line)).await;
    }

    async fn wait_last(&mut self, line: &str) {
        self.wait(line, |person| person.screen.text().lines().last() == Some(line)).await;
    }

    async fn wait_left(mut self) -> Detached {
        self.wait("the end", |person| person.left.is_some()).await;
        assert_eq!(self.attachment.recv().await, None, "nothing comes after the last");
        assert!(self.attachment.send("x").await.is_err());
        self.left.unwrap()
    }
}

async fn a_person_and_an_agent(provider: &str) {
    let rig = Rig::new(provider).await;
    if provider == "namespace" && !crate::rig::can_isolate(&rig).await {
        return;
    }
    let sandbox = rig.sandbox("shared").await;
    out(&sandbox, "PS1='$ '").await;
    let mut person = Person::at(&rig, "shared").await;
    person.wait_last("$").await;
    person.press("cd /usr && export BY=person; echo typed\r").await;
    person.wait_line("typed").await;
    person.wait_last("$").await;
    assert_eq!(out(&sandbox, "echo $BY $PWD").await, "person /usr\n");
    // It has a row, as every command, and its state reaches the store.
    let store = rig.store().await;
    wait_for("the row of the person's command", || async {
        let rows = store.commands_of_thread(&thread("shared"), &Page::all()).await.unwrap();
        let row = rows.into_iter().find(|row| row.text.0.starts_with(b"cd /usr"))?;
        (row.status == Status::Exited && row.stdout_bytes == 7).then_some(())
    })
    .await;
    wait_for("the state", || async {
        let terminal = store.terminal(sandbox.terminal()).await.unwrap().unwrap();
        (terminal.state.cwd.0 == b"/usr").then_some(())
    })
    .await;
    person.press("exit 3\r").await;
    person.wait("the exit", |person| person.exits == [Some(3)]).await;
    person.wait_last("$").await;
    person.press("echo $BY again\r").await;
    person.wait_line("person again").await;
}

#[tokio::test]
async fn a_person_and_an_agent_share_a_shell_on_local() {
    a_person_and_an_agent("local").await;
}

#[tokio::test]
async fn a_person_and_an_agent_share_a_shell_in_a_namespace() {
    a_person_and_an_agent("namespace").await;
}

#[tokio::test]
async fn an_attachment_survives_the_steward() {
    let rig = Rig::new("local").await;
    let sandbox = rig.sandbox("lasting").await;
    out(&sandbox, "PS1='$ '").await;
    let mut person = Person::at(&rig, "lasting").await;
    person.wait_last("$").await;
    person.press("echo before\r").await;
    person.wait_line("before").await;
    person.wait_last("$").await;
    person.press("read x; echo \"got $x\"\r").await;
    person.wait_line("$ read x; echo \"got $x\"").await;
    let pid = out_of_steward(&rig);
    stead_term::proc::signal(pid, rustix::process::Signal::KILL);
    wait_for("another steward", || async { (out_of_steward(&rig) != pid).then_some(()) }).await;
    // The screen begins anew, and the program goes on.
    person.screen = Screen::new(person.screen.size());
    person.wait_line("before").await;
    person.press("it\r").await;
    person.wait_line("got it").await;
    assert_eq!(out(&sandbox, "echo $x").await, "it\n");
}

/// The process of the only steward.
fn out_of_steward(rig: &Rig) -> i32 {
    let found = std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        (line.contains(rig.path().to_str()?) && line.split('\0').nth(2) == Some("run")).then_some(pid)
    });
    found.unwrap_or(0)
}

#[tokio::test]
async fn an_attachment_ends_with_the_thread_the_session_or_a_pause() {
    let rig = Rig::new("local").await;
    let mut person = Person::at(&rig, "one").await;
    person.wait("a prompt", |person| person.screen.text().ends_with(['#', '$'])).await;
    rig.stead.delete_thread(&thread("one")).await.unwrap();
    assert_eq!(person.wait_left().await, Detached::Closed);
    let mut person = Person::at(&rig, "two").await;
    person.wait("a prompt", |person| person.screen.text().ends_with(['#', '$'])).await;
    rig.stead.pause(&thread("two"), Force::Yes).await.unwrap();
    assert_eq!(person.wait_left().await, Detached::Closed);
}

#[tokio::test]
async fn typing_is_use_of_the_session_and_looking_is_not() {
    let rig = Rig::new("local").await;
    let mut person = Person::at(&rig, "idle").await;
    person.wait("a prompt", |person| person.screen.text().ends_with(['#', '$'])).await;
    rig.clock.advance(Duration::from_mins(45));
    person.press("echo here\r").await;
    person.wait_line("here").await;
    rig.clock.advance(Duration::from_mins(45));
    rig.stead.reap().await.unwrap();
    person.press("echo still\r").await;
    person
        .wait("the prompt behind it", |person| {
            let text = person.screen.text();
            text.contains("\nstill\n") && text.ends_with(['#', '$'])
        })
        .await;
    // A server that doesn't know yet that it has ended takes the terminal for busy.
    let store = rig.store().await;
    wait_for("the ends of both commands", || async {
        let rows = store.commands_of_thread(&thread("idle"), &Page::all()).await.unwrap();
        (rows.len() == 2 && rows.iter().all(|row| row.status == Status::Exited)).then_some(())
    })
    .await;
    rig.clock.advance(Duration::from_mins(75));
    rig.stead.reap().await.unwrap();
    assert_eq!(person.wait_left().await, Detached::Closed);
}

#[tokio::test]
async fn a_provider_without_terminals_says_so() {
    let rig = Rig::new("fake").await;
    let refused = rig.stead.attach(Where::thread(thread("none")), Size::default()).await;
    assert_eq!(refused.map(drop).unwrap_err().code(), "unsupported");
}

#[tokio::test]
async fn whoever_leaves_is_gone_for_the_others() {
    let rig = Rig::new("local").await;
    let mut one = Person::at(&rig, "leaving").await;
    one.wait("a prompt", |person| person.screen.text().ends_with(['#', '$'])).await;
    let small = rig.stead.attach(Where::thread(thread("leaving")), Size { columns: 40, rows: 10 }).await.unwrap();
    one.press("stty size\r").await;
    one.wait_line("10 40").await;
    drop(small);
    one.press("until [ \"$(stty size)\" = '24 80' ]; do :; done; stty size\r").await;
    one.wait_line("24 80").await;
}
