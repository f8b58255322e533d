//! Verbs about projects, and threads that are made in one.

use crate::args::{
    CreateProject, ImportProject, InProject, InThread, ListProjects, Project, ProjectDeed, RemoveProjects, ShowProject,
};
use crate::client::{Call, Client, ClientError, query, segment};
use crate::failure::Failure;
use crate::json::Fields;
use crate::table::{Table, age, one_line, size, span};
use crate::{print, session, settings};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::time::Duration;
use stead_model::ids::{ProjectId, ThreadId};

/// How often the clone of a repository is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// The thread that is meant when none is named.
const DEFAULT_THREAD: &str = "default";

pub(crate) fn run(asked: &Project) -> Result<u8, Failure> {
    match &asked.deed {
        ProjectDeed::Create(asked) => create(asked),
        ProjectDeed::List(asked) => list(asked),
        ProjectDeed::Show(asked) => show(asked),
        ProjectDeed::Remove(asked) => remove(asked),
        ProjectDeed::Import(asked) => import(asked),
        ProjectDeed::Upkeep(deed) => crate::upkeep::run(deed),
    }
}

fn at(project: &str) -> String {
    format!("/api/projects/{}", segment(project))
}

/// The thread to work in; one of a project is called as that is, unless it has a name of its own.
pub(crate) fn thread(at: &InThread, project: &InProject) -> Result<ThreadId, Failure> {
    match &project.project {
        Some(project) if at.thread.as_str() == DEFAULT_THREAD => {
            ThreadId::parse(project.as_str()).map_err(|error| Failure::Asked(error.to_string()))
        }
        Some(_) | None => Ok(at.thread.clone()),
    }
}

/// Makes the thread in its project, if it isn't there. One that is elsewhere is not moved.
pub(crate) async fn ensure(client: &mut Client, thread: &ThreadId, project: &InProject) -> Result<(), Failure> {
    let Some(project) = &project.project else { return Ok(()) };
    let body = json!({ "id": thread.as_str(), "project_id": project.as_str() });
    match client.post("/api/threads", &body).await {
        Err(error) if error.is_code("already_exists") => {
            let there = client.get(&format!("/api/threads/{}", segment(thread.as_str()))).await?;
            if there.at("project_id").as_str() == Some(project.as_str()) {
                return Ok(());
            }
            Err(Failure::Asked(format!("thread `{thread}` is not in project `{project}`; name another with `-t`")))
        }
        made => Ok(made.map(drop)?),
    }
}

fn create(asked: &CreateProject) -> Result<u8, Failure> {
    let body = body(asked);
    session::run(&asked.reach, async |mut client| {
        let mut project = client.post("/api/projects", &body).await?;
        let id = project.at("id").as_str().unwrap_or_default().to_owned();
        if !asked.no_wait {
            project = cloned(&mut client, project, &id).await?;
        }
        print::out(&if asked.form.json { format!("{project:#}\n") } else { format!("{id}\n") })?;
        let clone = project.at("clone");
        if clone.at("state") == "failed" {
            tell!("its repository could not be cloned: {}", one_line(clone.at("error")));
            return Ok(1);
        }
        Ok(0)
    })
}

fn body(asked: &CreateProject) -> Value {
    let mut limits = Map::new();
    let mut config = Map::new();
    let set = |map: &mut Map<String, Value>, name: &str, value: Option<Value>| {
        if let Some(value) = value {
            map.insert(name.to_owned(), value);
        }
    };
    let text = |text: &Option<String>| text.clone().map(Value::from);
    set(&mut limits, "memory", text(&asked.memory));
    set(&mut limits, "processes", asked.processes.map(Value::from));
    set(&mut limits, "cpu", asked.cpu.map(Value::from));
    set(&mut limits, "disk", text(&asked.disk));
    set(&mut limits, "instances", asked.instances.map(Value::from));
    set(&mut config, "limits", Some(Value::Object(limits)));
    set(&mut config, "provider", asked.provider.as_ref().map(|name| name.as_str().into()));
    set(&mut config, "image", text(&asked.image));
    set(&mut config, "network", text(&asked.network));
    set(&mut config, "repo_url", text(&asked.repo));
    set(&mut config, "agent", text(&asked.agent));
    set(&mut config, "agent_model", text(&asked.model));
    set(&mut config, "cleanup_after_days", asked.keep.map(Value::from));
    let env: Map<_, _> = asked.env.iter().map(|one| (one.name.clone(), one.value.clone().into())).collect();
    set(&mut config, "env", Some(Value::Object(env)));
    let description = asked.description.clone().unwrap_or_default();
    let mut body = json!({ "prefix": asked.prefix, "description": description, "tags": asked.tags, "config": config });
    if let Some(snapshot) = &asked.from_snapshot {
        body.set("from_snapshot", snapshot.as_str());
    }
    body
}

/// Waits for its repository, and says how far it is where somebody sees it.
async fn cloned(client: &mut Client, mut project: Value, id: &str) -> Result<Value, ClientError> {
    let seen = io::stderr().is_terminal();
    while project.at("clone").at("state") == "running" {
        if seen && let Some(progress) = project.at("clone").at("progress").as_str() {
            print::error(format_args!("\r\x1b[K{}", one_line(&progress.into())));
        }
        tokio::time::sleep(LOOK).await;
        project = client.get(&at(id)).await?;
    }
    if seen && !project.at("clone").is_null() {
        print::error(format_args!("\r\x1b[K"));
    }
    Ok(project)
}

fn list(asked: &ListProjects) -> Result<u8, Failure> {
    let mut fields: Vec<(&str, &str)> = Vec::new();
    fields.extend(asked.prefix.as_deref().map(|prefix| ("prefix", prefix)));
    fields.extend(asked.status.as_deref().map(|status| ("status", status)));
    fields.extend(asked.tags.iter().map(|tag| ("tag", tag.as_str())));
    let path = query("/api/projects", &fields);
    session::run(&asked.reach, async |mut client| {
        let projects = client.list(&path, usize::MAX).await?;
        if asked.form.json {
            print::out(&format!("{:#}\n", json!({ "items": projects })))?;
        } else if projects.is_empty() {
            tell!("no projects; `stead project create PREFIX` makes one");
        } else {
            let head =
                ["PROJECT", "STATUS", "AGE", "LAST USED", "DAYS LEFT", "SIZE", "PINNED", "SESSIONS", "DESCRIPTION"];
            let mut table = Table::new(&head);
            for project in &projects {
                table.row(row(project));
            }
            print::out(&table.render())?;
        }
        Ok(0)
    })
}

fn row(project: &Value) -> [String; 9] {
    let statistics = project.at("statistics");
    let (pinned, trashed) = (project.at("pinned") == true, project.at("status") == "trashed");
    [
        one_line(project.at("id")),
        one_line(project.at("status")),
        span(project.at("created_at")),
        age(project.at("last_accessed_at")),
        if pinned || trashed { "-".to_owned() } else { days_left(project) },
        size(statistics.at("disk_bytes")),
        if pinned { "yes" } else { "no" }.to_owned(),
        one_line(statistics.at("sessions")),
        one_line(project.at("description")),
    ]
}

/// Days until it is marked, the one that has begun too: all of them when it was just used.
pub(crate) fn days_left(project: &Value) -> String {
    let expires = project.at("expires_at").as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    match expires {
        Some(at) => (((at.as_second() - jiff::Timestamp::now().as_second()).max(0) + 86_399) / 86_400).to_string(),
        None => "-".to_owned(),
    }
}

fn show(asked: &ShowProject) -> Result<u8, Failure> {
    session::run(&asked.reach, async |mut client| {
        let project = client.get(&at(asked.project.as_str())).await?;
        print::out(&if asked.form.json { format!("{project:#}\n") } else { shown(&project) })?;
        Ok(0)
    })
}

fn shown(project: &Value) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "{name:<13}{text}");
    };
    line("project", one_line(project.at("id")));
    if project.at("description").as_str().is_some_and(|text| !text.is_empty()) {
        line("description", one_line(project.at("description")));
    }
    let tags: Vec<_> = project.at("tags").as_array().into_iter().flatten().map(one_line).collect();
    if !tags.is_empty() {
        line("tags", tags.join(" "));
    }
    let level = project.at("warning_level");
    let level = if level.is_null() { String::new() } else { format!(" ({})", one_line(level)) };
    line("status", format!("{}{level}", one_line(project.at("status"))));
    line("created", age(project.at("created_at")));
    line("last used", age(project.at("last_accessed_at")));
    let pinned = project.at("pinned") == true;
    let trashed_at = project.at("trashed_at");
    let kept = if !trashed_at.is_null() {
        format!("in the trash, since {}", age(trashed_at))
    } else if pinned {
        "pinned".to_owned()
    } else {
        format!("{} more days", days_left(project))
    };
    line("kept", kept);
    for (setting, value) in project.at("config").as_object().into_iter().flatten() {
        let nothing = value.is_null()
            || value.as_object().is_some_and(|fields| fields.values().all(Value::is_null) || fields.is_empty());
        if !nothing {
            line("config", format!("{setting} {}", one_line(&without_nulls(value))));
        }
    }
    let clone = project.at("clone");
    if !clone.is_null() {
        let more = [clone.at("progress"), clone.at("error")].into_iter().find(|more| !more.is_null());
        let more = more.map(|more| format!(": {}", one_line(more))).unwrap_or_default();
        line("clone", format!("{}{more}", one_line(clone.at("state"))));
    }
    let statistics = project.at("statistics");
    line("size", size(statistics.at("disk_bytes")));
    let (all, failed) = (one_line(statistics.at("commands")), one_line(statistics.at("failed_commands")));
    let seconds = statistics.at("run_seconds").as_f64().unwrap_or_default();
    line(
        "commands",
        format!("{all}, {failed} failed, {seconds:.1} s, {} written", size(statistics.at("output_bytes"))),
    );
    let error = statistics.at("last_error");
    if !error.is_null() {
        line("last error", format!("{}: {}", age(error.at("at")), one_line(error.at("message"))));
    }
    line("sessions", one_line(statistics.at("sessions")));
    for session in project.at("sessions").as_array().into_iter().flatten().take(10) {
        let end = if session.at("ended_at").is_null() {
            "open".to_owned()
        } else {
            format!("{} after {} s", one_line(session.at("close_reason")), one_line(session.at("duration_s")))
        };
        let (id, thread) = (one_line(session.at("session_id")), one_line(session.at("thread_id")));
        let by = one_line(session.at("opened_by"));
        line("session", format!("{id}, {}, thread {thread}, by {by}, {end}", age(session.at("started_at"))));
    }
    out
}

fn without_nulls(value: &Value) -> Value {
    let Some(fields) = value.as_object() else { return value.clone() };
    let kept = fields.iter().filter(|(_, value)| !value.is_null());
    Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn remove(asked: &RemoveProjects) -> Result<u8, Failure> {
    session::run(&asked.reach, async |mut client| {
        for project in &asked.projects {
            put_away(&mut client, project, asked.force).await?;
            print::out(&format!("{project}\n"))?;
        }
        Ok(0)
    })
}

async fn put_away(client: &mut Client, project: &ProjectId, force: bool) -> Result<(), ClientError> {
    let path = at(project.as_str());
    let path = if force { query(&path, &[("force", "true")]) } else { path };
    client.send(Call::delete(&path)).await.map(drop)
}

fn import(asked: &ImportProject) -> Result<u8, Failure> {
    let dir = settings::absolute(&asked.dir)?;
    session::run(&asked.reach, async |mut client| {
        let project = client.post("/api/projects/import", &json!({ "path": dir })).await?;
        let text = if asked.form.json { format!("{project:#}\n") } else { format!("{}\n", one_line(project.at("id"))) };
        print::out(&text)?;
        Ok(0)
    })
}
