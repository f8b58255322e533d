//! What people see: late, together, in windows of any size, after the death of the steward, and of programs that mean harm.

use super::person::{Person, shell_and_person};
use super::rig::{Rig, is_alive, kill, wait_for};
use stead_model::proto::{Attach, Detached, Event, FaultCode, Request, Size, Stdin};
use stead_steward::client::ClientError;

/// A full-screen program: shows each key it gets, on a screen of its own, until `q`.
const FULL_SCREEN: &str = r#"
fullscreen() {
  stty -echo -icanon
  printf '\e[?1049h\e[2J\e[H\e[7mFULL SCREEN %s\e[m\e[3;1Hkeys: ' "$(stty size)"
  while IFS= read -r -n1 key && [ "$key" != q ]; do printf '%s' "$key"; done
  printf '\e[?1049l'
  stty sane
  echo left
}
"#;

#[test]
fn a_late_one_sees_the_same_screen_and_both_see_what_follows() {
    let rig = Rig::new();
    let (shell, mut one) = shell_and_person(&rig);
    one.press("printf '\\e[1;31mred\\e[m plain\\n'; echo 'häßlich 漢字'\r");
    one.wait_line("häßlich 漢字");
    one.wait_last("$");
    let mut two = Person::at(&rig, &shell.id);
    two.wait_last("$");
    assert_eq!(two.text(), one.text());
    assert_eq!(two.screen.frame(), one.screen.frame());
    two.press("echo from two\r");
    one.wait_line("from two");
    two.wait_line("from two");
}

#[test]
fn a_full_screen_program_is_seen_by_a_late_one_and_leaves_the_screen_as_it_was() {
    let rig = Rig::new();
    let (mut shell, mut one) = shell_and_person(&rig);
    shell.out(FULL_SCREEN);
    one.press("echo before; fullscreen\r");
    one.wait_line("FULL SCREEN 24 80");
    one.press("abc");
    one.wait_line("keys: abc");
    let mut two = Person::at(&rig, &shell.id);
    two.wait_line("keys: abc");
    two.press("d");
    one.wait_line("keys: abcd");
    one.press("q");
    for person in [&mut one, &mut two] {
        person.wait_line("left");
        person.wait_last("$");
        assert!(person.text().contains("before") && !person.text().contains("FULL"), "{}", person.text());
    }
}

#[test]
fn vim_is_left_as_it_was_entered() {
    if !std::path::Path::new("/usr/bin/vim").exists() {
        return;
    }
    let rig = Rig::new();
    let (mut shell, mut person) = shell_and_person(&rig);
    person.press("vim -u NONE -N note\r");
    person.wait_text("~");
    person.press("ihello from vim\x1b:wq\r");
    person.wait("the prompt", |person| person.text().lines().last() == Some("$"));
    assert_eq!(shell.out("cat note"), "hello from vim\n");
}

#[test]
fn the_smallest_window_decides_and_a_larger_one_shows_it_in_its_corner() {
    let rig = Rig::new();
    let (shell, mut large) = shell_and_person(&rig);
    let mut small = Person::with_window(&rig, &shell.id, 40, 10);
    small.wait_last("$");
    large.wait("the new size", |person| person.events.contains(&Event::Resized(Size { columns: 40, rows: 10 })));
    small.press("stty size; seq 30\r");
    for person in [&mut small, &mut large] {
        person.wait_line("30");
        person.wait_last("$");
        assert_eq!(person.text().lines().count(), 10, "{}", person.text());
    }
    assert_eq!(large.text(), small.text());
    small.attachment.detach().unwrap();
    assert_eq!(small.wait_left(), Detached::Asked);
    large.press("stty size\r");
    large.wait_line("24 80");
    large.attachment.resize(Size { columns: 60, rows: 20 }).unwrap();
    large.screen.resize(Size { columns: 60, rows: 20 });
    large.press("stty size\r");
    large.wait_line("20 60");
}

#[test]
fn a_program_is_told_that_the_window_changed() {
    let rig = Rig::new();
    let (_shell, mut person) = shell_and_person(&rig);
    person.press("trap 'echo changed: $(stty size)' WINCH; echo set; while :; do read -t 1 x; done\r");
    person.wait_line("set");
    person.attachment.resize(Size { columns: 70, rows: 22 }).unwrap();
    person.screen.resize(Size { columns: 70, rows: 22 });
    person.wait_line("changed: 22 70");
    person.press("\x03");
    person.wait_last("$");
}

#[test]
fn questions_are_answered_with_nobody_there() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let ask = "exec 5<>/dev/tty; stty -echo -icanon <&5; printf '\\e[6n' >&5; IFS= read -r -d R -t 20 answer <&5; \
               printf '\\e[c' >&5; IFS= read -r -d c -t 20 attributes <&5; stty sane <&5; exec 5<&-; \
               printf '%q %q\\n' \"$answer\" \"$attributes\"";
    assert_eq!(shell.out(ask), "$'\\E[1;1' $'\\E[?6'\n");
}

#[test]
fn what_a_program_of_an_agent_writes_to_the_terminal_is_seen() {
    let rig = Rig::new();
    let (mut shell, mut person) = shell_and_person(&rig);
    shell.out("echo for people >/dev/tty");
    person.wait_text("for people");
}

#[test]
fn everything_goes_on_after_the_death_of_the_steward() {
    let rig = Rig::new();
    let (mut shell, mut one) = shell_and_person(&rig);
    shell.out(FULL_SCREEN);
    one.press("echo before; fullscreen\r");
    one.wait_line("FULL SCREEN 24 80");
    one.press("abc");
    one.wait_line("keys: abc");
    let running = shell.info().running.unwrap();
    kill(rig.steward_pid());
    let mut two = Person::at(&rig, &shell.id);
    two.wait_line("keys: abc");
    two.wait_line("FULL SCREEN 24 80");
    assert_eq!(two.text(), one.text());
    two.press("d");
    two.wait_line("keys: abcd");
    kill(rig.steward_pid());
    let mut three = Person::at(&rig, &shell.id);
    three.wait_line("keys: abcd");
    three.press("q");
    three.wait_line("left");
    three.wait_last("$");
    three.wait_line("before");
    shell.client = rig.client();
    let output = String::from_utf8(shell.end_of(&running).stdout).unwrap();
    assert!(output.starts_with("before\r\n\x1b[?1049h") && output.ends_with("\x1b[?1049lleft\r\n"), "{output:?}");
    assert_eq!(output.matches("abcd").count() + output.matches("keys: ").count(), 2, "{output:?}");
}

#[test]
fn half_a_line_survives_the_steward() {
    let rig = Rig::new();
    let (mut shell, mut one) = shell_and_person(&rig);
    one.press("echo half");
    one.wait_last("$ echo half");
    kill(rig.steward_pid());
    shell.client = rig.client();
    shell.out("X=1");
    let mut two = Person::at(&rig, &shell.id);
    two.wait_last("$ echo half");
    two.press(" and half\r");
    two.wait_line("half and half");
    two.wait_last("$");
    two.press("\x1b[A");
    two.wait_last("$ echo half and half");
}

#[test]
fn a_prompt_that_was_killed_comes_back() {
    let rig = Rig::new();
    let (shell, mut person) = shell_and_person(&rig);
    let who = std::fs::read_to_string(rig.path().join("run/1/p/who")).unwrap();
    let pid: i32 = who.split(' ').nth(1).unwrap().parse().unwrap();
    kill(pid);
    wait_for("its end", || (!is_alive(pid)).then_some(()));
    person.wait("another prompt", |person| person.text().lines().filter(|line| *line == "$").count() == 2);
    person.press("echo again\r");
    person.wait_line("again");
    drop(shell);
}

#[test]
fn hostile_output_is_bounded_and_others_are_served() {
    let rig = Rig::new();
    let (mut shell, mut person) = shell_and_person(&rig);
    // Noise may be cut so that half a sequence becomes a question.
    person.strict = false;
    let mut other = rig.shell_named("other");
    person.press(
        "for i in {1..100}; do printf 'a\\e[65535b'; done; head -c 400000 /dev/urandom; printf '\\ec'; echo over\r",
    );
    wait_for("it to run", || shell.info().running);
    for _ in 0..20 {
        assert_eq!(other.out("echo served"), "served\n");
    }
    person.wait_line("over");
    let log = rig.path().join("journal/1/screen").metadata().unwrap().len();
    assert!(log < 4 << 20, "the screen's log has {log} bytes");
    kill(rig.steward_pid());
    let mut again = Person::at(&rig, &shell.id);
    again.wait_line("over");
}

#[test]
fn one_who_reads_nothing_holds_up_nobody_and_gets_the_screen_anew() {
    let rig = Rig::new();
    let (shell, mut person) = shell_and_person(&rig);
    let mut lazy = Person::at(&rig, &shell.id);
    person.press("seq 300000; echo over\r");
    person.wait_line("over");
    person.wait_last("$");
    lazy.wait_line("over");
    lazy.wait_last("$");
    assert_eq!(lazy.text(), person.text());
}

#[test]
fn those_who_look_are_told_when_the_shell_rests_or_is_closed() {
    let rig = Rig::new();
    let (mut shell, mut person) = shell_and_person(&rig);
    shell.client.request(&Request::RestShell(shell.id.clone())).unwrap();
    assert_eq!(person.wait_left(), Detached::Closed);
    let mut person = Person::at(&rig, &shell.id);
    person.wait_last("$");
    person.press("echo awake\r");
    person.wait_line("awake");
    shell.client.request(&Request::CloseShell(shell.id.clone())).unwrap();
    assert_eq!(person.wait_left(), Detached::Closed);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let rig = Rig::new();
    let shell = rig.shell();
    let mut client = rig.client();
    let nowhere =
        Attach { shell: stead_model::ids::ShellId::parse("nowhere").unwrap(), size: Size::default(), credit: 1 };
    let refused = |answer: Result<_, ClientError>| answer.map(drop).unwrap_err().fault();
    assert_eq!(refused(client.request(&Request::Attach(nowhere))), Some(FaultCode::NotFound));
    assert_eq!(refused(client.request(&Request::Detach(77))), Some(FaultCode::NotFound));
    let mut exec = shell.exec("tty");
    exec.stdin = Stdin::Terminal;
    let outcome = client.exec(exec).unwrap();
    assert!(outcome.stdout.starts_with(b"/dev/pts/"), "{outcome:?}");
}
