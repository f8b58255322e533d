//! Verbs about how long a project is kept: `project extend`, `pin`, `unpin`, `restore`, `clean`, `snapshot`.

use crate::args::{AsJson, Reach, Snapshot, SnapshotDeed, Upkeep, Which};
use crate::client::{Call, segment};
use crate::failure::Failure;
use crate::json::Fields;
use crate::projects::days_left;
use crate::table::{Table, age, one_line, size};
use crate::{print, session};
use serde_json::{Value, json};

const DAY: u64 = 86_400;

fn at(project: &str) -> String {
    format!("/api/projects/{}", segment(project))
}

pub(crate) fn run(deed: &Upkeep) -> Result<u8, Failure> {
    match deed {
        Upkeep::Extend { project, days, form, reach } => {
            change(project, "extend", &json!({ "days": days }), form, reach)
        }
        Upkeep::Pin { which } => plainly(which, "pin"),
        Upkeep::Unpin { which } => plainly(which, "unpin"),
        Upkeep::Restore { which } => plainly(which, "restore"),
        Upkeep::Clean { dry_run, form, reach } => clean(*dry_run, form, reach),
        Upkeep::Snapshot(asked) => snapshot(asked),
    }
}

fn plainly(which: &Which, verb: &str) -> Result<u8, Failure> {
    change(&which.project, verb, &json!({}), &which.form, &which.reach)
}

/// Asks for a change, and says until when the project is kept then.
fn change(project: &str, verb: &str, body: &Value, form: &AsJson, reach: &Reach) -> Result<u8, Failure> {
    let path = format!("{}/{verb}", at(project));
    session::run(reach, async |mut client| {
        let project = client.post(&path, body).await?;
        let text = if form.json { format!("{project:#}\n") } else { format!("{}\n", kept(&project)) };
        print::out(&text)?;
        Ok(0)
    })
}

fn kept(project: &Value) -> String {
    let id = one_line(project.at("id"));
    if project.at("pinned") == true {
        format!("{id}  pinned")
    } else {
        let days = days_left(project);
        let days = if days == "1" { "1 day".to_owned() } else { format!("{days} days") };
        format!("{id}  expires in {days} ({})", one_line(project.at("expires_at")))
    }
}

fn clean(dry_run: bool, form: &AsJson, reach: &Reach) -> Result<u8, Failure> {
    session::run(reach, async |mut client| {
        let done = client.post("/api/projects/cleanup", &json!({ "dry_run": dry_run })).await?;
        if form.json {
            print::out(&format!("{done:#}\n"))?;
            return Ok(0);
        }
        let words = if dry_run {
            ["would warn", "would mark", "would remove", "would purge"]
        } else {
            ["warned", "marked", "removed", "purged"]
        };
        let mut table = Table::new(&["WHAT", "KIND", "ID"]);
        let mut many = 0;
        let mut add = |what: &str, kind: &str, ids: &Value| {
            for id in ids.as_array().into_iter().flatten() {
                many += 1;
                table.row([what.to_owned(), kind.to_owned(), one_line(id)]);
            }
        };
        for (what, list) in words.iter().zip(["warned", "marked", "deleted", "purged"]) {
            add(what, "project", done.at(list));
            add(what, "thread", done.at("threads").at(list));
        }
        add(if dry_run { "would remove" } else { "removed" }, "snapshot", done.at("snapshots"));
        if many == 0 {
            tell!("nothing to do");
        } else {
            print::out(&table.render())?;
        }
        Ok(0)
    })
}

fn snapshot(asked: &Snapshot) -> Result<u8, Failure> {
    match &asked.deed {
        SnapshotDeed::Create { project, description, keep_days, form, reach } => {
            let mut body = json!({ "description": description });
            if let Some(days) = keep_days {
                body.set("ttl_s", u64::from(*days) * DAY);
            }
            let path = format!("{}/snapshots", at(project));
            session::run(reach, async |mut client| {
                let taken = client.post(&path, &body).await?;
                let text = if form.json { format!("{taken:#}\n") } else { format!("{}\n", one_line(taken.at("id"))) };
                print::out(&text)?;
                Ok(0)
            })
        }
        SnapshotDeed::List { which } => list(which),
        SnapshotDeed::Restore { project, snapshot, force, form, reach } => {
            let path = format!("{}/snapshots/{}/restore?force={force}", at(project), segment(snapshot));
            session::run(reach, async |mut client| {
                let project = client.post(&path, &json!({})).await?;
                let text = if form.json { format!("{project:#}\n") } else { format!("{}\n", kept(&project)) };
                print::out(&text)?;
                Ok(0)
            })
        }
        SnapshotDeed::Remove { project, snapshots, reach } => session::run(reach, async |mut client| {
            for snapshot in snapshots {
                client.send(Call::delete(&format!("{}/snapshots/{}", at(project), segment(snapshot)))).await?;
                print::out(&format!("{snapshot}\n"))?;
            }
            Ok(0)
        }),
    }
}

fn list(which: &Which) -> Result<u8, Failure> {
    let path = format!("{}/snapshots", at(&which.project));
    session::run(&which.reach, async |mut client| {
        let items = client.list(&path, usize::MAX).await?;
        if which.form.json {
            print::out(&format!("{:#}\n", json!({ "items": items })))?;
        } else if items.is_empty() {
            tell!("no snapshots; `stead project snapshot create {}` takes one", which.project);
        } else {
            let mut table = Table::new(&["SNAPSHOT", "TAKEN", "EXPIRES", "SIZE", "OF", "FILES", "DESCRIPTION"]);
            for item in &items {
                table.row([
                    one_line(item.at("id")),
                    age(item.at("created_at")),
                    age(item.at("expires_at")),
                    size(item.at("bytes")),
                    size(item.at("tree_bytes")),
                    one_line(item.at("files")),
                    one_line(item.at("description")),
                ]);
            }
            print::out(&table.render())?;
        }
        Ok(0)
    })
}
