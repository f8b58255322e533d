//! What everyone expects of a shell that keeps its state.

use crate::rig::Rig;

#[test]
fn directory_variables_functions_aliases_and_options_last_from_one_command_to_the_next() {
    let rig = Rig::new();
    let mut shell = rig.shell();
    shell.run("cd /usr; export E=exported; p=plain; f() { echo \"f $1\"; }; alias say='echo said'; set -o pipefail; shopt -s extglob; umask 027; arr=(a 'b c' d)");
    assert_eq!(shell.out("pwd; echo $E $p; f x"), "/usr\nexported plain\nf x\n");
    assert_eq!(shell.out("say hello"), "said hello\n");
    assert_eq!(
        shell.out("umask; echo ${arr[1]}; shopt -q extglob && set -o | grep pipefail"),
        "0027\nb c\npipefail       \ton\n"
    );
    assert_eq!(shell.out("unset E; env | grep -c ^E= || true"), "0\n");
}
