//! Names that are bytes and no text.

use super::{fs, project};
use crate::rig::Rig;
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

#[test]
fn a_name_that_is_no_text_is_written_listed_read_and_removed_wherever_it_is_kept() {
    let mut rig = Rig::new();
    let id = project(&rig);
    for base in ["memories/hot", "memories/persistent", "workspace"] {
        let path = format!("{base}/d%FF/%80%20x");
        rig.call("PUT", &fs(&id, &path), &[], b"raw").is(201);
        let read = rig.get(&fs(&id, &path));
        assert_eq!((read.status, read.body.as_slice()), (200, b"raw".as_slice()), "{base}");
        let listed = rig.post(&fs(&id, "ls"), &json!({ "path": format!("/{base}"), "depth": 2 })).is(200);
        let item = &listed["items"][1];
        assert_eq!(item["path"], format!("/{base}/d\u{fffd}/\u{fffd} x"), "{listed}");
        // What a list says can be asked for.
        let encoded = item["path_encoded"].as_str().unwrap().trim_start_matches('/').to_owned();
        assert_eq!(rig.get(&fs(&id, &encoded)).body, b"raw", "{base}: {encoded}");
        // Replaced by `U+FFFD` it is another name.
        rig.get(&fs(&id, &format!("{base}/d%EF%BF%BD/%EF%BF%BD%20x"))).fails(404, "not_found");
    }
    let on_disk = rig.data().join("projects").join(&id).join("repo").join(OsStr::from_bytes(b"d\xff/\x80 x"));
    assert_eq!(std::fs::read(on_disk).unwrap(), b"raw");
    rig.kill();
    rig.start();
    for base in ["memories/hot", "memories/persistent", "workspace"] {
        let path = fs(&id, &format!("{base}/d%FF/%80%20x"));
        assert_eq!(rig.get(&path).body, b"raw", "{base}");
        rig.delete(&path).is(204);
        rig.get(&path).fails(404, "not_found");
    }
    rig.call("PUT", &fs(&id, "workspace/a%00b"), &[], b"x").fails(400, "invalid_path");
    rig.get("/api/projects/%FF/fs/workspace/x").fails(400, "invalid_request");
}
