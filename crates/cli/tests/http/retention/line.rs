//! The same from the command line.

use super::ON_REQUEST;
use crate::rig::Rig;
use serde_json::{Value, json};

impl Rig {
    /// What `stead project ...` prints; its failure, with what it says, otherwise.
    fn says(&self, words: &[&str]) -> Result<String, String> {
        let output = self.stead().arg("project").args(words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    fn says_json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.says(&[words, &["--json"]].concat()).unwrap()).unwrap()
    }
}

#[test]
fn the_command_line_keeps_restores_and_cleans() {
    let rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("line");
    let extended = rig.says(&["extend", &project, "30"]).unwrap();
    assert!(extended.starts_with(&format!("{project}  expires in 60 days (")), "{extended}");
    assert_eq!(rig.says_json(&["pin", &project])["pinned"], true);
    assert_eq!(rig.says(&["pin", &project]).unwrap(), format!("{project}  pinned\n"));
    assert_eq!(rig.says_json(&["unpin", &project])["pinned"], false);
    assert_eq!(rig.says(&["clean", "--dry-run"]).unwrap(), "");
    let cleaned = rig.says_json(&["clean"]);
    assert_eq!((&cleaned["warned"], &cleaned["threads"]["marked"]), (&json!([]), &json!([])));
    rig.delete(&format!("/api/projects/{project}")).is(204);
    let refused = rig.says(&["extend", &project, "1"]).unwrap_err();
    assert!(refused.contains("in the trash") && refused.contains("stead project restore"), "{refused}");
    assert!(rig.says(&["restore", &project]).unwrap().starts_with(&project));
    assert_eq!(rig.standing(&project).0, "active");
    for wrong in [&["extend", "x"][..], &["extend", "x", "0"], &["extend", "x", "a"], &["pin"], &["snapshot"]] {
        assert!(rig.says(wrong).is_err(), "{wrong:?}");
    }
    assert!(rig.says(&["pin", "none-00000000"]).unwrap_err().contains("none-00000000"));
}

#[test]
fn the_command_line_takes_lists_restores_and_removes_snapshots() {
    let rig = Rig::with_config(ON_REQUEST, &[]);
    let project = rig.project("snap");
    let file = rig.place(&project).join("repo/a");
    std::fs::write(&file, "one").unwrap();
    let id = rig.says(&["snapshot", "create", "--description", "the first", "--keep-days", "2", &project]).unwrap();
    let id = id.trim();
    let table = rig.says(&["snapshot", "ls", &project]).unwrap();
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].starts_with("SNAPSHOT") && rows[1].starts_with(id), "{table}");
    let hours = |hours: &str| rows[1].contains(hours);
    assert!((hours("in 47h") || hours("in 2d")) && rows[1].ends_with("the first"), "{table}");
    assert_eq!(rig.says_json(&["snapshot", "ls", &project])["items"][0]["id"], json!(id));
    std::fs::write(&file, "two").unwrap();
    assert!(rig.says(&["snapshot", "restore", &project, id]).unwrap().starts_with(&project));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one");
    assert_eq!(rig.says(&["snapshot", "rm", &project, id]).unwrap(), format!("{id}\n"));
    assert_eq!(rig.says(&["snapshot", "ls", &project]).unwrap(), "");
    assert!(rig.says(&["snapshot", "rm", &project, id]).unwrap_err().contains(id));
}
