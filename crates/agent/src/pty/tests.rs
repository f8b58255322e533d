use super::*;
use crate::spec::Specs;
use proptest::prelude::*;

static TOY: std::sync::LazyLock<Screen> = std::sync::LazyLock::new(make_toy);

fn toy() -> Screen {
    TOY.clone()
}

fn make_toy() -> Screen {
    let toml = r#"
        [toy]
        command = ["toy"]
        transport = "pty"
        [toy.screen]
        prompt = '^toy> $'
        busy = 'thinking'
        end = '^-- \d+ ms$'
        echo = ["toy> ", ""]
        answer = "* "
        noise = ['^~~']
        busy_title = '^Working'
        idle_title = '^Ready'
        permission = [
          { pattern = 'allow\? \[y/n\]', allow = "y\r", deny = "n\r" },
          { pattern = 'run it\?', allow = "1", deny = "3", kind = "execute" },
          { pattern = 'run it there\?', allow = "2", deny = "4", kind = "execute" },
        ]
    "#;
    Specs::parse(toml).unwrap().get("toy").unwrap().screen.clone().unwrap()
}

fn see(pty: &mut Pty, lines: &str, signals: &[Signal], settled: bool) -> Effects {
    let kept = serde_json::to_string(&pty).unwrap();
    *pty = serde_json::from_str(&kept).unwrap();
    let lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    pty.see(&TOY, View { lines: &lines, signals, settled })
}

fn ready() -> Pty {
    let mut pty = Pty::default();
    assert_eq!(see(&mut pty, "welcome", &[], true), Effects::default());
    assert_eq!(see(&mut pty, "welcome\ntoy> ", &[], false), Effects::default(), "it may not listen yet");
    let effects = see(&mut pty, "welcome\ntoy> ", &[], true);
    assert_eq!(effects.told, [Told::Ready { id: None, resumed: false }]);
    pty
}

fn working(message: &str) -> Pty {
    let mut pty = ready();
    let typed = pty.prompt(&toy(), message);
    assert!(typed.write.starts_with(b"\x1b[200~") && typed.write.ends_with(b"\x1b[201~"));
    let entered = see(&mut pty, &format!("toy> {message}"), &[], false);
    assert_eq!(entered.write, b"\r");
    pty
}

fn events(effects: Effects) -> Vec<Event> {
    effects
        .told
        .into_iter()
        .map(|told| match told {
            Told::Event(ref event) => event.clone(),
            Told::Ready { .. } | Told::Named(_) | Told::CannotResume => panic!("{told:?}"),
        })
        .collect()
}

#[test]
fn enter_waits_for_the_echo() {
    let mut pty = ready();
    pty.prompt(&toy(), "hello there");
    assert_eq!(see(&mut pty, "toy> hel", &[], false), Effects::default());
    assert_eq!(see(&mut pty, "toy> hello there", &[], false).write, b"\r");
}

#[test]
fn an_answer_is_told_line_by_line_and_ends_when_it_is_quiet() {
    let mut pty = working("hi");
    let delta = |text: &str| Event::Delta { text: text.to_owned() };
    assert_eq!(events(see(&mut pty, "toy> hi\nthinking", &[], true)), []);
    assert_eq!(events(see(&mut pty, "toy> hi\n* one\n  two", &[], false)), [delta("one\n")]);
    assert_eq!(events(see(&mut pty, "toy> hi\n* one\n  two", &[], true)), [], "no prompt, no end");
    let last = events(see(&mut pty, "toy> hi\n* one\n  two\n~~ noise\n-- 12 ms\ntoy> ", &[], true));
    assert_eq!(last, [delta("two"), Event::Message { text: "one\ntwo".to_owned() }, Event::Done { usage: None }]);
    assert!(!pty.is_in_turn());
}

#[test]
fn what_the_program_says_of_itself_needs_no_silence() {
    let mut pty = working("hi");
    see(&mut pty, "toy> hi", &[Signal::Working], false);
    assert_eq!(events(see(&mut pty, "toy> hi\n* x\ntoy> ", &[], true)), [], "it works until it says otherwise");
    let last = events(see(&mut pty, "toy> hi\n* x\ntoy> ", &[Signal::Done], false));
    assert_eq!(last.last(), Some(&Event::Done { usage: None }));
}

#[test]
fn an_idle_signal_before_anything_was_done_is_of_before() {
    let mut pty = working("hi");
    assert_eq!(events(see(&mut pty, "toy> hi", &[Signal::Idle], false)), []);
    assert!(pty.is_in_turn());
}

#[test]
fn a_question_is_asked_once_and_answered_with_keys() {
    let mut pty = working("rm");
    assert_eq!(events(see(&mut pty, "toy> rm\nallow? [y/n]", &[], false)), [], "it may still be drawn");
    let asked = events(see(&mut pty, "toy> rm\nallow? [y/n]", &[], true));
    let [Event::Permission(permission)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(permission.title, "allow? [y/n]");
    assert_eq!(events(see(&mut pty, "toy> rm\nallow? [y/n]", &[], true)), []);
    let id = permission.id.clone();
    assert_eq!(pty.answer(&toy(), &id, Some("allow")).write, b"y\r");
    assert_eq!(pty.answer(&toy(), &id, Some("allow")), Effects::default());
    assert_eq!(events(see(&mut pty, "toy> rm\nallow? [y/n]", &[], false)), [], "still drawn");
    assert_eq!(events(see(&mut pty, "toy> rm\n* begins\ntoy> ", &[], true)), [], "what was allowed takes its time");
    let last = events(see(&mut pty, "toy> rm\n* done\n-- 3 ms\ntoy> ", &[], true));
    assert_eq!(last.last(), Some(&Event::Done { usage: None }));
}

#[test]
fn a_question_beside_which_something_moves_is_asked_too() {
    let mut pty = working("rm");
    let asked = (0..MOVING).flat_map(|look| {
        let screen = format!("toy> rm\nallow? [y/n]\n~~ {look} s");
        events(see(&mut pty, &screen, &[], false))
    });
    assert_eq!(asked.count(), 1);
}

#[test]
fn a_question_is_of_the_kind_that_its_pattern_is_for() {
    let mut pty = working("rm");
    let asked = events(see(&mut pty, "toy> rm\nrun it?", &[], true));
    let [Event::Permission(permission)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(permission.kind, "execute");
    assert_eq!(pty.answer(&toy(), &permission.id, Some("deny")).write, b"3");
}

#[test]
fn a_title_that_says_it_works_counts_more_than_a_prompt() {
    let mut pty = working("hi");
    let title = |text: &str| [Signal::Title(text.to_owned())];
    see(&mut pty, "toy> hi\n* part one\ntoy> ", &title("Working.."), false);
    assert_eq!(events(see(&mut pty, "toy> hi\n* part one\ntoy> ", &[], true)), [], "its title says that it works");
    let both = "toy> hi\n* part one\n  part two\ntoy> ";
    see(&mut pty, both, &title("neither"), false);
    assert!(pty.is_in_turn());
    see(&mut pty, both, &title("Ready (p4)"), false);
    assert!(pty.is_in_turn(), "the last line may be yet to come");
    let last = events(see(&mut pty, both, &[], true));
    assert!(last.contains(&Event::Message { text: "part one\npart two".to_owned() }), "{last:?}");
}

#[test]
fn a_line_like_the_prompt_is_part_of_the_answer_when_more_is_said() {
    let mut pty = working("hi");
    let last = events(see(&mut pty, "toy> hi\n* type\ntoy> \n  and more\n\ntoy> \n~~ hint", &[], true));
    assert!(last.contains(&Event::Message { text: "type\ntoy> \nand more".to_owned() }), "{last:?}");
}

#[test]
fn a_message_that_is_echoed_without_its_mark_is_no_part_of_the_answer() {
    let mut pty = working("hi");
    let last = events(see(&mut pty, "welcome\nhi\n* old\nhi\nhi there\ntoy> ", &[], true));
    assert!(last.contains(&Event::Message { text: "hi there".to_owned() }), "{last:?}");
}

#[test]
fn a_busy_line_that_stays_above_the_answer_is_of_before() {
    let mut pty = working("hi");
    assert_eq!(events(see(&mut pty, "toy> hi\nthinking\ntoy> ", &[], true)), [], "it is the last word");
    let last = events(see(&mut pty, "toy> hi\nthinking\n* x\ntoy> ", &[], true));
    assert_eq!(last.last(), Some(&Event::Done { usage: None }));
}

#[test]
fn one_that_was_started_for_a_conversation_goes_on_with_it() {
    let mut pty = Pty::begin(Some("s1".to_owned()));
    let effects = see(&mut pty, "toy> ", &[], true);
    assert_eq!(effects.told, [Told::Ready { id: Some("s1".to_owned()), resumed: true }]);
}

#[test]
fn one_that_is_idle_for_a_moment_has_not_ended() {
    let mut pty = working("hi");
    see(&mut pty, "toy> hi", &[Signal::Working], false);
    assert_eq!(events(see(&mut pty, "toy> hi\n* x\ntoy> ", &[Signal::Idle, Signal::Working], false)), []);
    assert_eq!(events(see(&mut pty, "toy> hi\n* x\ntoy> ", &[], true)), [], "it works on");
    assert_eq!(events(see(&mut pty, "toy> hi\n* x\ntoy> ", &[Signal::Idle], false)), []);
    let last = events(see(&mut pty, "toy> hi\n* x\ntoy> ", &[], true));
    assert_eq!(last.last(), Some(&Event::Done { usage: None }));
}

#[test]
fn an_interruption_ends_when_the_program_prompts_again() {
    let mut pty = working("hi");
    assert_eq!(pty.interrupt(&toy()).write, b"\x03");
    let last = events(see(&mut pty, "toy> hi\n* par\ntoy> ", &[], true));
    assert_eq!(last.last(), Some(&Event::Aborted {}));
}

#[test]
fn one_that_says_it_is_idle_listens_as_soon_as_it_prompts() {
    let mut pty = Pty::default();
    assert_eq!(see(&mut pty, "welcome", &[Signal::Idle], false), Effects::default(), "nothing to type into yet");
    assert_eq!(see(&mut pty, "welcome\ntoy> ", &[], false).told, [Told::Ready { id: None, resumed: false }]);
}

#[test]
fn a_question_is_called_as_the_program_calls_it() {
    let mut pty = working("rm");
    let blocked = Signal::Blocked { kind: Some("permission".to_owned()), message: Some("approve: rm x".to_owned()) };
    assert_eq!(events(see(&mut pty, "toy> rm\nallow? [y/n]", &[Signal::Working, blocked], false)), []);
    let asked = events(see(&mut pty, "toy> rm\nallow? [y/n]", &[], true));
    let [Event::Permission(permission)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((permission.title.as_str(), permission.kind.as_str()), ("approve: rm x", "other"));
    assert_eq!(pty.answer(&toy(), &permission.id, Some("deny")).write, b"n\r");
    see(&mut pty, "toy> rm", &[Signal::Working], false);
    let next = events(see(&mut pty, "toy> rm\nrun it?", &[], true));
    let [Event::Permission(permission)] = &next[..] else { panic!("{next:?}") };
    assert_eq!(permission.title, "run it?", "what was said of another question is of that one");
}

#[test]
fn a_question_is_answered_with_the_keys_that_it_asks_for_whatever_it_is_called() {
    let mut pty = working("rm");
    let blocked = Signal::Blocked { kind: None, message: Some("run it?".to_owned()) };
    see(&mut pty, "toy> rm\nrun it there?", &[blocked], false);
    let asked = events(see(&mut pty, "toy> rm\nrun it there?", &[], true));
    let [Event::Permission(permission)] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!(pty.answer(&toy(), &permission.id, Some("allow")).write, b"2");
}

#[test]
fn a_screen_that_only_turns_is_no_sign_of_life() {
    let mut pty = working("hi");
    let mut look = |text: &str, signals: &[Signal]| {
        let before = pty.moves();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        pty.see(&TOY, View { lines: &lines, signals, settled: false });
        pty.moves() > before
    };
    assert!(look("toy> hi\nthinking 1", &[Signal::Working]));
    assert!(!look("toy> hi\nthinking 2\n~~ hint", &[Signal::Working, Signal::Title("2".to_owned())]));
    assert!(look("toy> hi\n* one", &[]));
    assert!(!look("toy> hi\n* one\nthinking 3", &[]));
    assert!(look("toy> hi\n* one", &[Signal::Idle]));
}

#[test]
fn an_answer_that_is_longer_than_the_screen_remembers_is_said_to_be_cut() {
    let mut pty = working("hi");
    assert_eq!(events(see(&mut pty, "welcome\n  or other\n", &[], false)), [], "nobody knows what that is");
    let last = events(see(&mut pty, "  the last\n  lines\ntoy> ", &[], true));
    let [Event::Status { text }, Event::Message { .. }, Event::Done { .. }] = &last[..] else { panic!("{last:?}") };
    assert!(text.contains("may be missing"), "{text}");
}

#[test]
fn control_characters_of_a_message_are_not_typed() {
    let typed = ready().prompt(&toy(), "a\x1b[201~\x03b");
    assert_eq!(typed.write, b"\x1b[200~a[201~b\x1b[201~");
}

proptest! {
    #[test]
    fn any_screens_end_a_turn_at_most_once(screens in proptest::collection::vec(("(toy> |\\* |hi|thinking|\n|allow\\? \\[y/n\\]|-- 3 ms){0,12}", any::<bool>(), 0u8..5), 0..30)) {
        let mut pty = working("hi");
        let mut ends = 0;
        for (text, settled, signal) in screens {
            let signals = match signal {
                0 => vec![Signal::Working],
                1 => vec![Signal::Done],
                2 => vec![Signal::Blocked { kind: None, message: None }],
                _ => vec![],
            };
            let effects = see(&mut pty, &text, &signals, settled);
            ends += effects.told.iter().filter(|told| matches!(told, Told::Event(event) if event.is_last())).count();
        }
        prop_assert!(ends <= 1);
        prop_assert_eq!(ends == 1, !pty.is_in_turn());
    }
}
