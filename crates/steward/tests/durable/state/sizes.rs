//! Large states are states too.

use super::{captured_anew, kill_shell, rehydrated};
use crate::rig::{Rig, TestShell, code, seen};
use stead_model::proto::{Exec, Stdin};
use stead_model::state::Bytes;

#[track_caller]
fn runs(shell: &mut TestShell, text: &str) {
    let outcome = shell.run(text);
    assert_eq!(seen(&outcome), (Some(0), String::new(), String::new()));
}

/// Both ways of becoming another process.
#[track_caller]
fn round_trips(rig: &Rig, shell: &mut TestShell) {
    let before = shell.state();
    let mut other = rehydrated(rig, "other", &shell.stored());
    // Not `assert_eq`: nobody wants to read the difference of two states of this size.
    assert!(captured_anew(&mut other) == (before.clone(), false), "another shell has another state");
    kill_shell(shell);
    assert!(captured_anew(shell) == (before, false), "the same shell has another state");
}

#[test]
fn values_of_a_hundred_kilobytes_round_trip_exactly() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    // Bytes that need every kind of quoting, a hundred kilobytes of them.
    let bytes: Vec<u8> = (0..100_000_u32).map(|i| u8::try_from(i * 7 % 255 + 1).unwrap()).collect();
    let exec = Exec {
        stdin: Stdin::Bytes(Bytes::from(&bytes)),
        ..shell.exec("IFS= LC_ALL=C read -r -d '' plain; export handed=$plain")
    };
    assert_eq!(code(&shell.run_exec(exec)), Some(0));
    round_trips(&rig, &mut shell);
    assert!(shell.run("printf %s \"$plain\"").stdout == bytes, "the value differs");
    assert_eq!(shell.state().env_delta().get(b"handed".as_slice()), Some(&Some(Bytes(bytes))));
}

#[test]
fn an_array_of_ten_thousand_elements_round_trips_exactly() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    runs(&mut shell, "for i in {1..10000}; do list[i * 3]=\"element '$i'\"; done; unset i");
    round_trips(&rig, &mut shell);
    assert_eq!(shell.out("echo ${#list[@]} ${list[30000]}"), "10000 element '10000'\n");
}

#[test]
fn a_thousand_variables_round_trip_exactly() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    runs(
        &mut shell,
        "for i in {1..1000}; do printf -v \"var_$i\" 'value %s\\nof \"it\" \\x01' \"$i\"; ((i % 3)) || export \"var_$i\"; done",
    );
    assert!(shell.state().variables.len() >= 1000);
    round_trips(&rig, &mut shell);
    assert_eq!(shell.out("printf '%q' \"$var_999\"; printenv | grep -c ^var_"), "$'value 999\\nof \"it\" \\001'333\n");
}

#[test]
fn a_hundred_and_fifty_kilobytes_of_functions_round_trip_exactly() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    let functions = (0..400).fold(String::new(), |text, i| {
        let lines = (0..8).fold(String::new(), |text, line| {
            text + &format!("    [[ $1 == {line}* ]] && printf '%s {i}.{line}\\n' \"$1\"\n")
        });
        text + &format!("function_{i}() {{\n{lines}    cat <<EOF\n}}\nhere $1 {i}\nEOF\n}}\n")
    });
    runs(&mut shell, &functions);
    let state = shell.state();
    assert!(
        state.functions.text.len() > 150_000 && state.functions.names.len() == 400,
        "{} bytes",
        state.functions.text.len()
    );
    round_trips(&rig, &mut shell);
    assert_eq!(shell.out("function_399 7x"), "7x 399.7\n}\nhere 7x 399\n");
}
