//! Verbs about threads: `ls`, `show`, `pause`, `resume`, `rm`, `fork`, `move`.

use crate::args::{AsJson, Fork, List, Move, Pause, Reach, Remove, Resume, Show};
use crate::client::{Call, Client, ClientError, Problem, segment};
use crate::failure::Failure;
use crate::json::Fields;
use crate::table::{Table, age, one_line};
use crate::{print, session};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write;
use std::io::{self, BufRead, IsTerminal};
use stead_model::ids::ThreadId;

fn at(thread: &ThreadId) -> String {
    format!("/api/threads/{}", segment(thread.as_str()))
}

pub(crate) fn list(asked: &List) -> Result<u8, Failure> {
    session::run(&asked.reach, async |mut client| {
        let threads = client.list("/api/threads", usize::MAX).await?;
        if asked.form.json {
            print::out(&format!("{:#}\n", json!({ "items": threads })))?;
            return Ok(0);
        }
        if threads.is_empty() {
            tell!("no threads yet; `stead exec COMMAND` makes one");
            return Ok(0);
        }
        let leases = by_id(client.list("/api/leases", usize::MAX).await?, "lease_id");
        let terminals = by_id(client.list("/api/terminals", usize::MAX).await?, "terminal_id");
        let mut threads = threads;
        // RFC 3339 in one zone sorts as text does.
        threads.sort_by(|a, b| b.at("last_active_at").as_str().cmp(&a.at("last_active_at").as_str()));
        let mut table = Table::new(&["THREAD", "PROVIDER", "STATE", "LAST USED", "DIRECTORY"]);
        for thread in &threads {
            let of = |rows: &HashMap<String, Value>, key: &str, field: &str| {
                let row = thread[key].as_str().and_then(|id| rows.get(id));
                row.map_or(Value::Null, |row| row[field].clone())
            };
            table.row([
                one_line(thread.at("id")),
                one_line(thread.at("provider")),
                one_line(&of(&leases, "lease_id", "observed_state")),
                age(thread.at("last_active_at")),
                one_line(&of(&terminals, "default_terminal_id", "cwd")),
            ]);
        }
        print::out(&table.render())?;
        Ok(0)
    })
}

fn by_id(items: Vec<Value>, key: &str) -> HashMap<String, Value> {
    items.into_iter().filter_map(|item| Some((item.at(key).as_str()?.to_owned(), item))).collect()
}

pub(crate) fn show(asked: &Show) -> Result<u8, Failure> {
    let at = at(&asked.thread);
    session::run(&asked.reach, async |mut client| {
        let thread = client.get(&at).await?;
        let session = or_null(client.get(&format!("{at}/session")).await)?;
        let lease = or_null(client.get(&format!("{at}/lease")).await)?;
        let terminals = client.list(&format!("{at}/terminals"), usize::MAX).await?;
        let text = if asked.form.json {
            let whole = json!({ "thread": thread, "session": session, "lease": lease, "terminals": terminals });
            format!("{whole:#}\n")
        } else {
            shown(&thread, &session, &lease, &terminals)
        };
        print::out(&text)?;
        Ok(0)
    })
}

/// What there never was is no failure of showing the rest.
fn or_null(result: Result<Value, ClientError>) -> Result<Value, ClientError> {
    match result {
        Err(error) if error.is_code("not_found") => Ok(Value::Null),
        other => other,
    }
}

fn shown(thread: &Value, session: &Value, lease: &Value, terminals: &[Value]) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "{name:<11}{text}");
    };
    line("thread", one_line(thread.at("id")));
    if !thread.at("project_id").is_null() {
        line("project", one_line(thread.at("project_id")));
    }
    line("created", age(thread.at("created_at")));
    line("last used", age(thread.at("last_active_at")));
    line("provider", one_line(thread.at("provider")));
    if !lease.is_null() {
        let wanted = one_line(lease.at("desired_state"));
        line(
            "lease",
            format!(
                "{}, wanted {wanted}, seen {}",
                one_line(lease.at("lease_id")),
                one_line(lease.at("observed_state"))
            ),
        );
        if !lease.at("instance").is_null() {
            let instance = lease.at("instance");
            line("instance", format!("{}, {}", one_line(instance.at("instance_id")), one_line(instance.at("status"))));
        }
        if !lease.at("last_error").is_null() {
            let error = lease.at("last_error");
            line("error", one_line(if error.at("message").is_string() { error.at("message") } else { error }));
        }
        for warning in lease.at("warnings").as_array().into_iter().flatten() {
            line("warning", one_line(if warning.at("message").is_string() { warning.at("message") } else { warning }));
        }
    }
    if !session.is_null() {
        let when = if session.at("ended_at").is_null() {
            format!("expires {}", age(session.at("expires_at")))
        } else {
            format!("ended {} ({})", age(session.at("ended_at")), one_line(session.at("close_reason")))
        };
        line("session", format!("{}, {}, {when}", one_line(session.at("session_id")), one_line(session.at("status"))));
    }
    for terminal in terminals {
        let name = one_line(terminal.at("name"));
        line(
            "terminal",
            format!("{name}, in {}, version {}", one_line(terminal.at("cwd")), one_line(terminal.at("version"))),
        );
    }
    out
}

pub(crate) fn pause(asked: &Pause) -> Result<u8, Failure> {
    let body = if asked.force { json!({ "force": true }) } else { json!({}) };
    on_lease(&asked.thread, "pause", &body, &asked.form, &asked.reach)
}

pub(crate) fn resume(asked: &Resume) -> Result<u8, Failure> {
    on_lease(&asked.thread, "resume", &json!({}), &asked.form, &asked.reach)
}

pub(crate) fn moved(asked: &Move) -> Result<u8, Failure> {
    let body = json!({ "provider": asked.provider.as_str() });
    on_lease(&asked.thread, "move", &body, &asked.form, &asked.reach)
}

/// What to do about a lease that is in use, in words of the command line.
fn in_use(error: ClientError, deed: &str) -> ClientError {
    let is_lease = |problem: &Problem| problem.code == "conflict" && problem.kind.as_deref() == Some("lease");
    if let ClientError::Problem(problem) = &error
        && is_lease(problem)
        && deed == "pause"
    {
        let hint = "`-f` pauses it all the same; what runs goes on after `stead resume`";
        return Problem { hint: Some(hint.to_owned()), ..problem.clone() }.into();
    }
    error
}

/// What changes the compute of a thread is answered with its lease.
fn on_lease(thread: &ThreadId, deed: &str, body: &Value, form: &AsJson, reach: &Reach) -> Result<u8, Failure> {
    let path = format!("{}/{deed}", at(thread));
    session::run(reach, async |mut client| {
        let lease = client.post(&path, body).await.map_err(|error| in_use(error, deed))?;
        let text = if form.json {
            format!("{lease:#}\n")
        } else {
            let (provider, state) = (one_line(lease.at("provider")), one_line(lease.at("observed_state")));
            // With nothing there, what is wanted is all that there is to say.
            let state =
                if state == "none" { format!("none, wanted {}", one_line(lease.at("desired_state"))) } else { state };
            format!("{thread}: {state} on {provider}\n")
        };
        print::out(&text)?;
        Ok(0)
    })
}

pub(crate) fn remove(asked: &Remove) -> Result<u8, Failure> {
    if !asked.force && !agreed(&asked.threads)? {
        tell!("nothing was removed");
        return Ok(1);
    }
    session::run(&asked.reach, async |mut client| {
        for thread in &asked.threads {
            // Deleting is idempotent, but a name that was mistyped is worth a word.
            exists(&mut client, thread).await?;
            client.send(Call::delete(&at(thread))).await?;
            print::out(&format!("{thread}\n"))?;
        }
        Ok(0)
    })
}

async fn exists(client: &mut Client, thread: &ThreadId) -> Result<(), ClientError> {
    client.get(&at(thread)).await.map(drop)
}

fn agreed(threads: &[ThreadId]) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Asked("there is no terminal to ask on; say `-f` to remove without a question".to_owned()));
    }
    let names: Vec<String> = threads.iter().map(|thread| format!("`{thread}`")).collect();
    print::error(format_args!("remove {} with its shell, its files and its compute? [y/N] ", names.join(", ")));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failure::Input)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

pub(crate) fn fork(asked: &Fork) -> Result<u8, Failure> {
    let mut body = json!({ "workspace": if asked.share { "share" } else { "copy" } });
    if let Some(new) = &asked.new {
        body.set("id", new.as_str());
    }
    let path = format!("{}/fork", at(&asked.thread));
    session::run(&asked.reach, async |mut client| {
        let thread = client.post(&path, &body).await?;
        let text = if asked.form.json { format!("{thread:#}\n") } else { format!("{}\n", one_line(thread.at("id"))) };
        print::out(&text)?;
        Ok(0)
    })
}
