//! One state with everything in it that is hard to say in words a shell reads.

use super::{is_still, kill_shell, rehydrated};
use crate::rig::{Rig, TestShell, code, seen};
use stead_model::state::{Bytes, ShellState};

/// In this order: functions see the options that they need.
const MOST: &str = r#"
mkdir -p one 'two words' $'three\nlines'
cd one; pushd '../two words' >/dev/null; pushd $'../three\nlines' >/dev/null
shopt -s extglob globstar nullglob; shopt -u interactive_comments
pick() { case $1 in +([0-9])) echo number;; !(x|y)) echo other;; *) echo letter;; esac; }
letter() { cat <<'FIRST'; cat <<-SECOND
$not expanded "or" 'unquoted'
}
FIRST
	tab and $1
	SECOND
}
knots() { printf '%s|' "it's \"so\"" $'tab\there' "$(echo "deep $(echo "er")")" "${1:-'d e f'}" $((2 ** 5)) `echo tick`; echo; }
function f-dash.dot { echo odd name; }
loops() { local i; for ((i = 0; i < 2; i++)); do [[ $i =~ ^[01]$ ]] && ! false; done; until true; do :; done; echo looped; }
handed_down() { echo "handed down $1"; }; export -f handed_down
alias ll='ls -l' quoted='echo "it'\''s"' lines=$'echo a\necho b'; alias -- -='cd -'
declare -i number=41; declare -l low=LOW; declare -u high=high; declare -r fixed='read only'; declare -rx fixed_too=1
declare -n reference=number; declare -x promised
raw=$'\xff\xfe\x80 and more'; export raw_out=$'\xff'; control=$'\x01\x7f\e'; wide='naïve 漢字'
export trap_door=$'text\ndeclare -x FAKE="taken for real"\nalias no=1'; empty=; export empty_out=
ends=$'newlines\n\n'; meta='`id` $(id) $HOME \ ! # ~ * ? [a] {b,c}'; eq='a=b=c'
unset HOME LANG; export -n TERM; export PATH="$PATH:/opt/nowhere"; IFS=$' \t\n:'
complete -W 'red green' paint; complete -F knots -o nospace tie; enable -n pwd; umask 027
trap 'echo "interrupted"' INT; trap 'echo term' TERM; trap '' USR1; trap ': "an error"' ERR
set -- first 'second one' $'third\nline' '' -
"#;

const ARRAYS: &str = r#"
declare -a sparse=([3]='three 3' [17]=$'seven\nteen' [4000]=far); declare -a none=()
declare -A map=([plain]=1 ['a b']=$'c\nd' [$'new\nline']=nl ["quo\"te'"]='x]y' [$'\x01']=control ['$(id)']='$HOME')
declare -n alias_of=sparse; declare -ai numbers=(1 2 3); declare -ar fixed_list=('a b' c)
"#;

const HOOK: &str = "trap ': debug' DEBUG\n";

/// Last, because it acts on everything behind it.
const BITES: &str = "set -u -f -C -o pipefail\n";

/// What a user would see of it. Everything that a shell can print about the state, and its functions at work.
const LOOK_AROUND: &str = r#"
pick 12; pick x; pick zz; letter me; knots; knots 'a  b'; f-dash.dot; loops; bash -c 'handed_down child'
number+=1; low+=MORE; high+=more; echo "$number $low $high $reference"
(fixed=2) 2>/dev/null || echo still read only
printf '%s' "$raw" "$control" "$wide" "$ends" "$meta" "$eq" | od -An -tx1
printf '<%q>' "$#" "$@"; echo; echo "${FAKE-no fake} ${HOME-no home} ${LANG-no lang} $TERM"
env -0 | sort -z | tr '\0' '\n'; : "${DIRSTACK[@]}"; declare -p; declare -F; alias -p; shopt -p; set +o; umask; trap -p; dirs -l -p; complete -p; enable -n
echo "$PWD" "$OLDPWD"; false | true || echo pipefail
set +f; echo ../on[e] ../nothing*
"#;

const LOOK_AT_ARRAYS: &str = r#"
for key in "${!map[@]}"; do printf '%q=%q\n' "$key" "${map[$key]}"; done | sort
printf '%q ' "${!sparse[@]}" "${sparse[@]}" "${#none[@]}" "${alias_of[17]}" "${fixed_list[@]}"; echo
numbers+=(2+2); echo "${numbers[3]}"
"#;

/// Lines that tell of the process or the moment.
fn without_the_moment(text: &str) -> Vec<&str> {
    let own = [
        "BASHPID",
        "BASH_ARGC",
        "BASH_ARGV",
        "BASH_LINENO",
        "BASH_SOURCE",
        "EPOCHREALTIME",
        "EPOCHSECONDS",
        "LINENO",
        "PPID",
        "RANDOM",
        "SECONDS",
        "SRANDOM",
    ];
    let is_own =
        |line: &&str| own.iter().any(|name| line.starts_with("declare -") && line.contains(&format!(" {name}=")));
    text.lines().filter(|line| !is_own(line)).collect()
}

fn nasty_shell(rig: &Rig) -> TestShell {
    shell_with(rig, &[MOST, ARRAYS, HOOK, BITES])
}

fn shell_with(rig: &Rig, parts: &[&str]) -> TestShell {
    let mut shell = rig.shell_named("first");
    let outcome = shell.run(parts.concat());
    assert_eq!(seen(&outcome), (Some(0), String::new(), String::new()));
    shell
}

#[track_caller]
fn looks_the_same(one: &mut TestShell, other: &mut TestShell, look: &[&str]) {
    let (one, other) = (one.run(look.concat()), other.run(look.concat()));
    assert_eq!(code(&one), Some(0), "{:?}", seen(&one));
    let (one, mut other) = (seen(&one), seen(&other));
    // Our EXIT trap is there for whoever looks, and names the directory of its shell.
    other.1 = other.1.replace("/run/2/", "/run/1/");
    assert_eq!((one.0, &one.2), (other.0, &other.2));
    let (one, other) = (without_the_moment(&one.1), without_the_moment(&other.1));
    let differences: Vec<_> = one.iter().zip(&other).filter(|(one, other)| one != other).collect();
    assert_eq!((differences, one.len()), (Vec::new(), other.len()));
}

#[test]
fn a_nasty_state_is_captured_whole() {
    let rig = Rig::new();
    let mut shell = nasty_shell(&rig);
    let state = shell.state();
    let has = |name: &str| state.variables.contains_key(name.as_bytes());
    assert!(
        ["map", "sparse", "alias_of", "reference", "promised", "fixed_too", "numbers", "TERM", "PATH", "IFS"]
            .iter()
            .all(|name| has(name)),
        "{state:#?}"
    );
    assert!(!has("FAKE"), "text in a value was taken for a declaration");
    assert_eq!(state.unset, ["HOME", "LANG"].map(Bytes::from).into());
    assert_eq!(state.unexported, ["TERM"].map(Bytes::from).into());
    let names = ["f-dash.dot", "handed_down", "knots", "letter", "loops", "pick"];
    assert_eq!(state.functions.names, names.map(Bytes::from).into());
    assert_eq!(state.functions.exported, ["handed_down"].map(Bytes::from).into());
    assert_eq!(
        state.aliases.keys().map(|name| name.escape_ascii().to_string()).collect::<Vec<_>>(),
        ["-", "lines", "ll", "quoted"]
    );
    assert_eq!(state.traps.keys().collect::<Vec<_>>(), ["DEBUG", "ERR", "INT", "TERM", "USR1"]);
    assert_eq!((state.umask.as_deref(), state.args.len(), state.dirs.len()), (Some("0027"), 5, 2));
    assert_eq!(state.cwd.0, rig.scratch().join("three\nlines").as_os_str().as_encoded_bytes());
    assert_eq!(state.oldpwd.unwrap().0, rig.scratch().join("two words").as_os_str().as_encoded_bytes());
}

#[test]
fn another_shell_made_from_a_nasty_state_is_the_same_place() {
    let rig = Rig::new();
    let mut first = nasty_shell(&rig);
    let stored = first.stored();
    let mut second = rehydrated(&rig, "second", &stored);
    let state: ShellState = minicbor::decode(&stored.state).unwrap();
    is_still(&mut second, &state);
    looks_the_same(&mut first, &mut second, &[LOOK_AT_ARRAYS, LOOK_AROUND]);
}

/// Without arrays and without a DEBUG trap, each of which has more ways to go wrong than all the rest.
#[test]
fn another_shell_made_from_most_of_a_nasty_state_is_the_same_place() {
    let rig = Rig::new();
    let mut first = shell_with(&rig, &[MOST, BITES]);
    let mut second = rehydrated(&rig, "second", &first.stored());
    is_still(&mut second, &first.state());
    looks_the_same(&mut first, &mut second, &[LOOK_AROUND]);
}

#[test]
fn arrays_of_every_kind_survive() {
    survives(ARRAYS);
}

#[test]
fn a_trap_on_every_command_survives() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("trap 'echo before' DEBUG");
    let before = shell.out("echo after");
    assert!(before.starts_with("before\n") && before.ends_with("after\n"), "{before}");
    kill_shell(&mut shell);
    assert_eq!(shell.out("echo after"), before);
}

#[test]
fn a_killed_shell_with_a_nasty_state_comes_back_as_the_same_place() {
    let rig = Rig::new();
    let mut first = nasty_shell(&rig);
    let before = first.state();
    kill_shell(&mut first);
    is_still(&mut first, &before);
    let stored = first.stored();
    let mut second = rehydrated(&rig, "second", &stored);
    looks_the_same(&mut first, &mut second, &[LOOK_AT_ARRAYS, LOOK_AROUND]);
}

#[test]
fn a_state_goes_through_many_shells_unchanged() {
    let rig = Rig::new();
    let mut shell = nasty_shell(&rig);
    let before = shell.state();
    for generation in 0..5 {
        let stored = shell.stored();
        shell = rehydrated(&rig, &format!("generation-{generation}"), &stored);
        is_still(&mut shell, &before);
    }
}

/// `text`, then the law.
#[track_caller]
fn survives(text: &str) {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let outcome = shell.run(text);
    assert_eq!(code(&outcome), Some(0), "{text}: {:?}", seen(&outcome));
    let before = shell.state();
    kill_shell(&mut shell);
    is_still(&mut shell, &before);
}

#[test]
fn an_associative_array_whose_keys_share_buckets_is_the_same_after_a_restart() {
    survives("declare -A many; for i in {1..300}; do many[key$i]=$i; done");
}

#[test]
fn a_function_that_was_made_with_extglob_survives_although_extglob_is_off_now() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("shopt -s extglob");
    shell.run("f() { case $1 in !(a)) echo other;; *) echo a;; esac; }; g() { echo g; }; v=kept");
    shell.run("shopt -u extglob");
    let before = shell.state();
    kill_shell(&mut shell);
    assert_eq!(shell.out("shopt -s extglob; f a; f b; g; echo $v; shopt -u extglob"), "a\nother\ng\nkept\n");
    is_still(&mut shell, &before);
}

#[test]
fn functions_with_the_names_of_keywords_and_builtins_survive() {
    survives(
        "function if { echo if; }; function unset { echo unset; }; function [ { :; }; declare() { :; }; alias() { :; }; cd() { :; }",
    );
}

#[test]
fn a_state_under_posix_mode_survives() {
    survives("x='a b'; alias p='echo p'; f() { echo f; }; trap 'echo t' USR2; export e=1; set -o posix");
}

#[test]
fn traced_and_verbose_shells_survive() {
    survives("x=1; f() { :; }; set -xv");
}

#[test]
fn a_read_only_name_of_the_fresh_environment_survives() {
    survives("readonly PATH TERM; export LANG=C; readonly LANG");
}

#[test]
fn a_variable_of_the_environment_that_became_an_array_or_a_reference_survives() {
    survives("unset LANG; declare -n LANG=other; other=C");
    survives("unset TERM; declare -a TERM=(x y)");
}

#[test]
fn references_to_what_sorts_after_them_to_arrays_elements_and_to_nothing_survive() {
    survives("zz=1; declare -n aa=zz bb='zz[1]' cc=nobody dd=ee; declare -n ee=zz; declare -rn ff=zz");
    survives("declare -n unbound; declare -nx out=zz; zz=1");
}

#[test]
fn an_exit_trap_of_the_user_survives() {
    survives("trap 'echo bye' EXIT; trap 'echo r' RETURN");
}
