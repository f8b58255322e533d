//! The law for states that nobody thought of.

use super::{LOOK, rehydrated};
use crate::rig::{Rig, code, rounds, seen};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use std::sync::atomic::{AtomicU32, Ordering};
use stead_model::proto::Request;
use stead_model::word::quote;

/// Any bytes that a shell can hold, and more often those that mean something to it.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"declare -x FAKE=\"1\"\n".to_vec()),
        Just(b"'".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"\\".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"$(false)".to_vec()),
        Just(b"`".to_vec()),
        Just(b"$'".to_vec()),
        Just(b"\x01".to_vec()),
        Just(b"\x7f".to_vec()),
        Just(b"\xff".to_vec()),
        Just("ü漢".as_bytes().to_vec()),
        Just(b")".to_vec()),
        Just(b"]=".to_vec()),
        Just(b"!".to_vec()),
        Just(b" \t".to_vec()),
        Just(b"~".to_vec()),
        prop::collection::vec(1_u8..=255, 0..12),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// Behind a prefix, so that it is never one of the shell's own; integers and arrays have another, because a variable that
/// is one can't become the other with any text.
const NAME: &str = "v_[a-zA-Z0-9_]{0,8}";
const ARRAY_NAME: &str = "w_[a-zA-Z0-9_]{0,8}";

/// A statement that gives a variable its value.
fn variable() -> impl Strategy<Value = Vec<u8>> {
    let name = NAME;
    prop_oneof![
        (name, value()).prop_map(|(name, value)| [name.as_bytes(), b"=", &quote(&value)].concat()),
        (name, value()).prop_map(|(name, value)| [b"export ", name.as_bytes(), b"=", &quote(&value)].concat()),
        (name, value()).prop_map(|(name, value)| [b"declare -l ", name.as_bytes(), b"=", &quote(&value)].concat()),
        (name, any::<i64>()).prop_map(|(name, value)| format!("declare -i n{name}={value}").into_bytes()),
    ]
}

fn array() -> impl Strategy<Value = Vec<u8>> {
    let name = ARRAY_NAME;
    let key = value().prop_filter("a key can't be empty", |key| !key.is_empty());
    prop_oneof![
        (name, prop::collection::btree_map(0_u16..2000, value(), 0..5)).prop_map(|(name, elements)| {
            let elements = elements.iter().map(|(at, value)| [format!(" [{at}]=").as_bytes(), &quote(value)].concat());
            [b"declare -a ", name.as_bytes(), b"=(", elements.collect::<Vec<_>>().concat().as_slice(), b" )"].concat()
        }),
        (name, prop::collection::btree_map(key, value(), 0..4)).prop_map(|(name, elements)| {
            let elements =
                elements.iter().map(|(key, value)| [b" [".as_slice(), &quote(key), b"]=", &quote(value)].concat());
            [b"declare -A m", name.as_bytes(), b"=(", elements.collect::<Vec<_>>().concat().as_slice(), b" )"].concat()
        }),
    ]
}

fn alias() -> impl Strategy<Value = Vec<u8>> {
    ("a_[a-z0-9.:-]{0,6}", value())
        .prop_map(|(name, value)| [b"alias -- ", name.as_bytes(), b"=", &quote(&value)].concat())
}

fn function() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "echo \"$1\" '${2}' $'\\x01\\n'",
        "cat <<'EOF'\n}\nf () {\n'\"\nEOF",
        "cat <<-EOF\n\t$x `echo y`\n\tEOF",
        "for i in 1 2; do :; done",
        "case $1 in a|b) echo c;; (d) ;& *) ;;& esac",
        "[[ $1 == a* && -n $2 ]] || return 3",
        "(( x = 1 << 2 ))",
        "local y=(1 \"2 3\")",
        "if true; then ( : ) & fi",
        "while false; do break; done 2>/dev/null | cat",
        "inner() { echo in; }",
        "echo ${1//a/\\'} ${#2} ${!3}",
        "select z in a; do break; done <<< 1",
        "time -p :",
        "! false",
        "{ echo a; echo b; } >&2",
        "echo # no comment\\\n more",
    ]);
    ("f_[a-z0-9.@+-]{0,6}", prop::collection::vec(piece, 1..5))
        .prop_map(|(name, body)| format!("function {name} {{\n{}\n}}", body.join("\n")).into_bytes())
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let set = [
        "allexport",
        "braceexpand",
        "errexit",
        "errtrace",
        "functrace",
        "hashall",
        "ignoreeof",
        "keyword",
        "noclobber",
        "noglob",
        "notify",
        "nounset",
        "physical",
        "pipefail",
        "posix",
    ];
    let shopt = [
        "autocd",
        "cdspell",
        "checkwinsize",
        "dotglob",
        "execfail",
        "expand_aliases",
        "extglob",
        "failglob",
        "globasciiranges",
        "globstar",
        "histappend",
        "huponexit",
        "inherit_errexit",
        "lastpipe",
        "localvar_inherit",
        "nocaseglob",
        "nocasematch",
        "nullglob",
        "patsub_replacement",
        "shift_verbose",
        "sourcepath",
        "xpg_echo",
    ];
    let set = set.map(|name| ("set", "-o", "+o", name));
    let shopt = shopt.map(|name| ("shopt", "-s", "-u", name));
    let all: Vec<_> = set.into_iter().chain(shopt).collect();
    let some = prop::sample::subsequence(all, 0..6);
    (some, any::<bool>()).prop_map(|(some, on)| {
        let lines = some.iter().map(|(word, yes, no, name)| format!("{word} {} {name}\n", if on { yes } else { no }));
        lines.collect::<String>().into_bytes()
    })
}

/// The text of a command that makes a state.
fn making(variable: BoxedStrategy<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let several = |what: BoxedStrategy<Vec<u8>>| prop::collection::vec(what, 0..5);
    let trap = ("USR1|USR2|ALRM", value())
        .prop_map(|(signal, value)| [b"trap -- ", quote(&value).as_slice(), b" ", signal.as_bytes()].concat());
    let arguments = prop::collection::vec(value(), 0..4).prop_map(|arguments| {
        let quoted: Vec<_> = arguments.iter().map(|argument| quote(argument)).collect();
        [b"set -- ".as_slice(), &quoted.join(&b' ')].concat()
    });
    let umask = (0_u32..0o1000).prop_map(|mask| format!("umask {mask:o}").into_bytes());
    let parts = (
        several(variable),
        several(function().boxed()),
        several(alias().boxed()),
        several(trap.boxed()),
        arguments,
        umask,
        options(),
    );
    parts.prop_map(|(variables, functions, aliases, traps, arguments, umask, options)| {
        let mut lines = [variables, functions, aliases, traps].concat();
        // A later declaration of the same name may not fit an earlier one; that is no failure of the whole.
        lines.extend([arguments, umask, options, b":".to_vec()]);
        lines.join(&b'\n')
    })
}

#[test]
fn capture_then_rehydrate_then_capture_is_the_identity() {
    is_the_identity_on(&making(variable().boxed()));
}

#[test]
fn capture_then_rehydrate_then_capture_is_the_identity_with_arrays_too() {
    is_the_identity_on(&making(prop_oneof![variable(), array()].boxed()));
}

fn is_the_identity_on(making: &impl Strategy<Value = Vec<u8>>) {
    let rig = Rig::new();
    let number = AtomicU32::new(0);
    let mut runner = TestRunner::new(Config {
        cases: rounds(40),
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    });
    let law = runner.run(making, |text| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let mut first = rig.shell_named(&format!("first-{number}"));
        let made = first.run(text);
        prop_assert_eq!(code(&made), Some(0), "{:?}", seen(&made));
        let ending = made.info.ending.clone().unwrap();
        prop_assert!(ending.warnings.is_empty(), "{:?}", ending.warnings);
        let before = first.state();
        let stored = first.stored();
        let mut second = rehydrated(&rig, &format!("second-{number}"), &stored);
        let looked = second.run(LOOK);
        prop_assert_eq!(code(&looked), Some(0), "{:?}", seen(&looked));
        let after = second.state();
        prop_assert_eq!(before, after);
        prop_assert_eq!(looked.info.ending.unwrap().warnings, Vec::new());
        for shell in [first, second] {
            rig.client().request(&Request::CloseShell(shell.id)).unwrap();
        }
        Ok(())
    });
    match law {
        Ok(()) => {}
        Err(TestError::Fail(reason, text)) => {
            panic!("{reason}\nafter:\n{}", text.escape_ascii().to_string().replace("\\n", "\n"))
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

#[test]
fn a_value_of_any_bytes_is_read_back_as_it_was_by_a_child() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    // Every byte but NUL, in an order that makes no valid text of them.
    let bytes: Vec<u8> = (1..=255).rev().chain(1..=255).collect();
    let set = [b"plain=".as_slice(), &quote(&bytes), b"; export out=", &quote(&bytes)].concat();
    assert_eq!(code(&shell.run(set)), Some(0));
    super::kill_shell(&mut shell);
    assert!(shell.run("printf %s \"$plain\"").stdout == bytes, "a plain variable differs");
    assert!(shell.run("printenv out").stdout == [bytes.as_slice(), b"\n"].concat(), "an exported variable differs");
    assert_eq!(shell.state().env_delta().get(b"out".as_slice()), Some(&Some(stead_model::state::Bytes(bytes))));
}
