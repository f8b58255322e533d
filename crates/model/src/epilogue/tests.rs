use super::*;
use crate::effect::effect_of;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn epilogue(text: &str, context: &Context) -> Epilogue {
    epilogue_of(text.as_bytes(), effect_of(text.as_bytes(), context), false, context)
}

#[test]
fn a_command_that_can_leave_neither_has_none() {
    let fresh = Context::default();
    for text in [
        "true",
        "ls -l; cd /tmp",
        "x=1",
        "a || b",
        "docker exec a b",
        "for i in 1 2; do echo \"$i\"; done",
        "echo \"it's\"",
    ] {
        assert_eq!(epilogue(text, &fresh), Epilogue::None, "{text}");
    }
}

#[test]
fn a_pipeline_leaves_statuses() {
    let fresh = Context::default();
    for text in ["false | true", "! true", "a |& b", "if a | b; then c; fi"] {
        assert_eq!(epilogue(text, &fresh), Epilogue::Statuses, "{text}");
    }
    assert_eq!(epilogue_of(b"f() { :; }", Effect::Unknown, true, &fresh), Epilogue::Statuses);
}

#[test]
fn a_redirection_of_the_shell_itself_is_seen_coming() {
    let fresh = Context::default();
    for text in [
        "exec 2>f",
        "if true; then exec >f; fi",
        "e''xec >f",
        "\\exec >f",
        "eval \"$x\"",
        ". ./file",
        "true; . ./file",
        "source file",
        "$e 2>f",
        "x=1; \"$e\" 2>f",
        "command exec 3>&1",
        "while :; do . f; done",
    ] {
        assert_eq!(epilogue(text, &fresh), Epilogue::Outputs, "{text}");
    }
    let known = Context { redefined: BTreeSet::from([b"log".to_vec()]), redirects: true, ..Context::default() };
    assert_eq!(epilogue("log", &known), Epilogue::Outputs);
    assert_eq!(epilogue("x=1", &known), Epilogue::None);
    let hooked = Context { hooked: true, redirects: true, ..Context::default() };
    assert_eq!(epilogue("true", &hooked), Epilogue::Outputs);
}

#[test]
fn where_a_line_of_ours_would_be_seen_or_swallowed_there_is_none() {
    let fresh = Context::default();
    for text in
        ["set -x; a | b", "set -o verbose; exec 2>f", "trap 'a | b' DEBUG", "a | cat <<EOF", "exec 2>f; echo 'x"]
    {
        assert_eq!(epilogue(text, &fresh), Epilogue::None, "{text}");
    }
    let watched = Context { watched: true, ..Context::default() };
    assert_eq!(epilogue("a | b", &watched), Epilogue::None);
    let builtin = Context { redefined: BTreeSet::from([b"builtin".to_vec()]), ..Context::default() };
    assert_eq!(epilogue("a | b", &builtin), Epilogue::None);
    for name in [b"command".as_slice(), b"if"] {
        let redefined = Context { redefined: BTreeSet::from([name.to_vec()]), ..Context::default() };
        assert_eq!(epilogue("exec 2>f", &redefined), Epilogue::Statuses);
    }
}

#[test]
fn statuses_that_say_no_more_than_the_status_are_not_carried() {
    let left = |status: u8, statuses: &[u8]| {
        let mut leftovers = Leftovers::default();
        leftovers.take_statuses(status, statuses);
        leftovers.pipe_status()
    };
    assert_eq!(left(3, b"1 0 3 "), Some(vec![1, 0, 3]));
    assert_eq!(left(0, b"1 "), Some(vec![1]));
    assert_eq!(left(3, b"3 "), None);
    assert_eq!(left(3, b""), None);
    assert_eq!(left(3, b"300 x"), None);
    assert_eq!(Leftovers::default().pipe_status(), None);
}

#[test]
fn the_next_line_keeps_what_was_handed_over_and_lets_go_of_the_rest() {
    let held = |kept, handed_over| Held { kept, handed_over };
    assert_eq!(keep([Target::Own; 2], Held::default()), "");
    let handed_over = held([false; 2], [false, true]);
    assert_eq!(keep([Target::Own, Target::Kept], handed_over), "\\command exec 242>&252 252>&-; ");
    assert_eq!(keep([Target::Own; 2], handed_over), "\\command exec 252>&-; ");
    assert_eq!(keep([Target::Own, Target::Kept], held([false, true], [false; 2])), "");
    assert_eq!(keep([Target::Own, Target::Closed], held([true; 2], [false; 2])), "\\command exec 241>&- 242>&-; ");
    let changed = held([true; 2], [true; 2]);
    assert_eq!(keep([Target::Kept; 2], changed), "\\command exec 241>&251 251>&- 242>&252 252>&-; ");
    let lost = held([false, true], [false; 2]).possible([Target::Kept; 2]);
    assert_eq!(lost, [Target::Own, Target::Kept]);
}

#[test]
fn outputs_lead_where_a_command_has_pointed_them() {
    assert_eq!(redirections([Target::Own; 2]), "");
    assert_eq!(redirections([Target::Own, Target::Other]), " 2>&1");
    assert_eq!(redirections([Target::Other, Target::Closed]), " >&2 2>&-");
    assert_eq!(redirections([Target::Kept, Target::Other]), " 2>&1 1>&241 241>&-");
    assert_eq!(redirections([Target::Kept; 2]), " 1>&241 241>&- 2>&242 242>&-");
}

proptest! {
    #[test]
    fn hostile_text_never_panics(text in prop::collection::vec(any::<u8>(), 0..300)) {
        epilogue_of(&text, Effect::Unknown, true, &Context::default());
    }
}
