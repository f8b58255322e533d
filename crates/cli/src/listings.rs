//! Verbs about the server: `sessions`, `leases`, `providers`, `orphans`, `token`.

use crate::args::{AsJson, Listing, OrphanDeed, Orphans, Reach, Token, TokenDeed};
use crate::client::{Call, segment};
use crate::failure::Failure;
use crate::json::Fields;
use crate::table::{Table, age, one_line};
use crate::{print, session};
use serde_json::{Value, json};

pub(crate) fn sessions(asked: &Listing) -> Result<u8, Failure> {
    let head = ["SESSION", "THREAD", "STATUS", "STARTED", "LAST USED", "ENDS"];
    list(&asked.form, &asked.reach, "/api/sessions", &head, "no sessions", |item| {
        let ends = if item.at("ended_at").is_null() {
            age(item.at("expires_at"))
        } else {
            format!("{} ({})", age(item.at("ended_at")), one_line(item.at("close_reason")))
        };
        [
            one_line(item.at("session_id")),
            one_line(item.at("thread_id")),
            one_line(item.at("status")),
            age(item.at("started_at")),
            age(item.at("last_active_at")),
            ends,
        ]
    })
}

pub(crate) fn leases(asked: &Listing) -> Result<u8, Failure> {
    let head = ["LEASE", "PROVIDER", "WANTED", "SEEN", "WHEN", "INSTANCE"];
    list(&asked.form, &asked.reach, "/api/leases", &head, "no leases", |item| {
        [
            one_line(item.at("lease_id")),
            one_line(item.at("provider")),
            one_line(item.at("desired_state")),
            one_line(item.at("observed_state")),
            age(item.at("observed_at")),
            one_line(item.at("instance").at("instance_id")),
        ]
    })
}

pub(crate) fn providers(asked: &Listing) -> Result<u8, Failure> {
    let head = ["PROVIDER", "KIND", "AVAILABLE", "CAN", "WHY NOT"];
    list(&asked.form, &asked.reach, "/api/providers", &head, "no providers", |item| {
        let reason = [item.at("reason"), item.at("why_not"), item.at("why")].into_iter().find(|why| why.is_string());
        [
            one_line(item.at("name")),
            one_line(item.at("kind")),
            if item.at("available") == true { "yes" } else { "no" }.to_owned(),
            capabilities(item.at("capabilities")),
            reason.map(one_line).unwrap_or_default(),
        ]
    })
}

/// Those that it has, by name.
fn capabilities(value: &Value) -> String {
    let names: Vec<String> = match value {
        Value::Object(all) => all.iter().filter(|(_, has)| **has == true).map(|(name, _)| name.clone()).collect(),
        Value::Array(names) => names.iter().map(one_line).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    if names.is_empty() { "-".to_owned() } else { names.join(",") }
}

pub(crate) fn orphans(asked: &Orphans) -> Result<u8, Failure> {
    let deed = |instance: &str, deed: &str, reach: &Reach| {
        let path = format!("/api/orphans/{}/{deed}", segment(instance));
        session::run(reach, async |mut client| {
            client.post(&path, &json!({})).await?;
            print::out(&format!("{instance}\n"))?;
            Ok(0)
        })
    };
    match &asked.deed {
        Some(OrphanDeed::Adopt { instance, reach }) => deed(instance, "adopt", reach),
        Some(OrphanDeed::Remove { instance, reach }) => deed(instance, "remove", reach),
        None => {
            let head = ["INSTANCE", "PROVIDER", "LEASE", "STATE"];
            list(&asked.form, &asked.reach, "/api/orphans", &head, "no orphans", |item| {
                [
                    one_line(item.at("instance_id")),
                    one_line(item.at("provider")),
                    one_line(item.at("lease_id")),
                    one_line(item.at("status")),
                ]
            })
        }
    }
}

pub(crate) fn token(asked: &Token) -> Result<u8, Failure> {
    match &asked.deed {
        TokenDeed::Create { name, read_only, projects, expires, form, reach } => {
            session::run(reach, async |mut client| {
                let mut body = json!({ "name": name, "scope": if *read_only { "read" } else { "admin" } });
                if !projects.is_empty() {
                    body.set("projects", projects.clone());
                }
                if let Some(expires) = expires {
                    body.set("expires_in_s", expires.as_secs().max(1));
                }
                let token = client.post("/api/tokens", &body).await?;
                let text = if form.json {
                    format!("{token:#}\n")
                } else {
                    format!("{}\n", token.at("token").as_str().unwrap_or("-"))
                };
                print::out(&text)?;
                if !form.json {
                    tell!("this is `{}`, {}; it is not shown again", name, one_line(token.at("id")));
                }
                Ok(0)
            })
        }
        TokenDeed::List { form, reach } => {
            let head = ["TOKEN", "NAME", "SCOPE", "CREATED", "LAST USED", "EXPIRES", "REVOKED"];
            list(form, reach, "/api/tokens", &head, "no tokens", |item| {
                [
                    one_line(item.at("id")),
                    one_line(item.at("name")),
                    one_line(item.at("scope")),
                    age(item.at("created_at")),
                    age(item.at("last_used_at")),
                    age(item.at("expires_at")),
                    age(item.at("revoked_at")),
                ]
            })
        }
        TokenDeed::Revoke { id, reach } => session::run(reach, async |mut client| {
            client.send(Call::delete(&format!("/api/tokens/{}", segment(id)))).await?;
            print::out(&format!("{id}\n"))?;
            Ok(0)
        }),
    }
}

/// A list as the server has it, in either form.
fn list<const N: usize>(
    form: &AsJson,
    reach: &Reach,
    path: &str,
    head: &[&str; N],
    nothing: &str,
    row: impl Fn(&Value) -> [String; N],
) -> Result<u8, Failure> {
    session::run(reach, async |mut client| {
        let items = client.list(path, usize::MAX).await?;
        if form.json {
            print::out(&format!("{:#}\n", json!({ "items": items })))?;
        } else if items.is_empty() {
            tell!("{nothing}");
        } else {
            let mut table = Table::new(head);
            for item in &items {
                table.row(row(item));
            }
            print::out(&table.render())?;
        }
        Ok(0)
    })
}
