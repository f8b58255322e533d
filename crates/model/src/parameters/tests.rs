use super::*;
use crate::effect::effect_of;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn closing(text: &str) -> Closing {
    let context = Context { redefined: BTreeSet::from([b"ll".to_vec()]), hooked: false };
    closing_of(text.as_bytes(), effect_of(text.as_bytes(), &context), &context, true)
}

fn simple(word: &str, if_success: bool) -> Closing {
    Closing::Simple(Argument { word: Bytes::from(word), if_success })
}

#[test]
fn simple_commands_tell_by_their_text() {
    for (text, word, if_success) in [
        ("true", "'true'", false),
        ("mkdir -p a/b", "'a/b'", false),
        ("cd /tmp; ls -l 'x y' >out 2>&1", "'x y'", false),
        ("cd /tmp && ls -l", "'-l'", true),
        ("x=1", "", false),
        ("x=1 echo a", "'a'", false),
        ("export X=1", "'X=1'", false),
        ("mkdir \"$d/x\"", "\"${d-}/x\"", false),
        ("echo ${d}", "${d-}", false),
        ("eval 'false | true'", "'false | true'", false),
        (". ./file", "'./file'", false),
        ("echo a # b", "'a'", false),
    ] {
        assert_eq!(closing(text), simple(word, if_success), "{text}");
    }
}

#[test]
fn other_texts_are_asked_if_they_are_whole() {
    for text in [
        "false | true | (exit 3)",
        "! true",
        "while false; do :; done",
        "ls *.rs",
        "ll x",
        "echo \"$(date)\"",
        "echo \"${x:-\"a b\"}\" | cat",
        "cat <<EOF | sh\necho 'it\nEOF",
        "cat <<-'EOF'\n\ta\n\tEOF\ntrue | false",
        "echo $'it\\'s' | cat",
        "sleep 1 &",
        "case x in x) echo a;; esac",
        "echo a | cat # it's",
        "f() { a | b; }",
        "echo $PWD",
        "cat <<< x | cat",
        "x=5; echo $x",
        "echo $(( 1 + 2 )) | cat",
        "echo `date` | cat",
    ] {
        assert_eq!(closing(text), Closing::Asked, "{text}");
    }
}

#[test]
fn nothing_is_put_behind_what_could_take_it_in() {
    for text in [
        "echo 'abc",
        "echo \"abc | cat",
        "a | cat \\",
        "cat <<EOF | cat\nhi",
        "cat <<EOF | cat",
        "a | b |",
        "(a) ||",
        "(a) &&",
        "(a) |&",
        "(a) && # and",
        "echo $(a | b",
        "echo ${x | b",
        "echo $'a\\'",
        "set -x; a | b",
        "set -ev; a | b",
        "set -o xtrace; a | b",
        "trap : DEBUG; a | b",
        "a | b `c",
        "cat <<$x | b\n$x",
        "cat <<'a b'\na b\na | b",
        "echo \"$(case x in x) echo ')';; esac)\"",
    ] {
        assert_eq!(closing(text), Closing::Unknown, "{text}");
    }
}

#[test]
fn a_text_without_a_command_changes_nothing() {
    for text in ["", " \n", "# a", "  # a\n\n# b"] {
        assert_eq!(closing(text), Closing::Nothing, "{text}");
    }
}

proptest! {
    #[test]
    fn hostile_text_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = closing_of(&bytes, Effect::Unknown, &Context::default(), true);
    }

    /// What is closed by something behind it was not whole.
    #[test]
    fn what_a_quote_closes_was_not_whole(text in "[a-z '\"$(){}`\\\\\n#|&<]{0,24}") {
        for close in ["'", "\"", "`"] {
            let closed = format!("{text}{close}");
            prop_assert!(!(is_whole(text.as_bytes()) && is_whole(closed.as_bytes()) && !text.contains('#')), "{text}");
        }
    }
}
