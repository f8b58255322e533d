//! Projects from the command line.

use super::Front;
use serde_json::Value;

#[track_caller]
fn good(front: &Front, arguments: &[&str]) -> String {
    let got = front.run(arguments);
    assert_eq!(got.code, Some(0), "{arguments:?}: {got:?}");
    got.stdout
}

#[test]
fn a_project_is_made_worked_in_listed_shown_and_removed() {
    let front = Front::new();
    let empty = front.run(&["project", "ls"]);
    assert_eq!((empty.stdout.as_str(), empty.code), ("", Some(0)), "{empty:?}");
    let made =
        ["project", "create", "web", "--description", "the shop", "--tag", "a", "--env", "A=1", "--disk", "1GiB"];
    let id = good(&front, &made).trim().to_owned();
    assert!(id.starts_with("web-"), "{id}");
    assert_eq!(good(&front, &["exec", "--project", &id, "echo $A > f; cat f"]), "1\n");
    assert_eq!(good(&front, &["exec", "--project", &id, "-t", "two", "cat f"]), "1\n", "the same files");
    assert_eq!(good(&front, &["exec", "--project", &id, "cat f"]), "1\n", "the same thread again");
    let other = good(&front, &["project", "create", "other"]).trim().to_owned();
    let refused = front.run(&["exec", "--project", &other, "-t", "two", "true"]);
    assert_eq!(refused.code, Some(125), "{refused:?}");
    assert!(refused.stderr.contains("is not in project"), "{refused:?}");
    let listed = good(&front, &["project", "ls", "--tag", "a"]);
    let mut lines = listed.lines();
    let head = lines.next().unwrap();
    for column in ["PROJECT", "STATUS", "AGE", "LAST USED", "DAYS LEFT", "SIZE", "PINNED"] {
        assert!(head.contains(column), "{listed}");
    }
    let row = lines.next().unwrap();
    assert!(
        row.starts_with(&id) && row.contains("active") && row.contains(" 30 ") && row.ends_with("the shop"),
        "{row}"
    );
    assert_eq!(lines.next(), None);
    let shown = good(&front, &["project", "show", &id]);
    for words in
        ["description  the shop", "tags         a", "kept         30 more days", "config       env {\"A\":\"1\"}"]
    {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let json: Value = serde_json::from_str(&good(&front, &["project", "show", "--json", &id])).unwrap();
    assert_eq!(json["config"]["limits"]["disk"], 1 << 30);
    let used = front.run(&["project", "rm", &id]);
    assert_eq!(used.code, Some(125), "somebody works in it: {used:?}");
    assert_eq!(good(&front, &["project", "rm", "--force", &id]), format!("{id}\n"));
    let trashed: Value =
        serde_json::from_str(&good(&front, &["project", "ls", "--status", "trashed", "--json"])).unwrap();
    assert_eq!(trashed["items"][0]["id"], id.as_str());
    // As many days as `ls` and `show` say.
    assert!(good(&front, &["project", "restore", &id]).starts_with(&format!("{id}  expires in 30 days (")));
    assert!(good(&front, &["project", "extend", &id, "5"]).starts_with(&format!("{id}  expires in 35 days (")));
    assert_eq!(good(&front, &["project", "pin", &id]), format!("{id}  pinned\n"));
    assert!(good(&front, &["project", "unpin", &id]).starts_with(&format!("{id}  expires in 35 days (")));
    let missing = front.run(&["project", "show", "none-00000000"]);
    assert_eq!(missing.code, Some(125));
    let wrong = front.run(&["project", "create", "Web"]);
    assert!(wrong.code == Some(125) && wrong.stderr.contains("can't be the prefix"), "{wrong:?}");
}

#[test]
fn a_repository_that_can_not_be_cloned_is_told_and_the_project_stays() {
    let front = Front::new();
    let refused = front.run(&["project", "create", "web", "--repo", "file:///nonexistent"]);
    assert!(refused.code == Some(125) && refused.stderr.contains("projects.clone_from_files"), "{refused:?}");
    let failed = front.run(&["project", "create", "web", "--repo", "https://127.0.0.1:9/r.git"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stdout.starts_with("web-") && failed.stderr.contains("could not be cloned"), "{failed:?}");
}
