//! `stead env`: the variables of a thread's shell.

use crate::args::EnvVars;
use crate::attach::raw::Silence;
use crate::client::{Call, query, segment};
use crate::failure::Failure;
use crate::json::Fields;
use crate::table::one_line;
use crate::{print, session};
use serde_json::{Map, Value, json};
use std::io::{self, BufRead, IsTerminal, Read};

pub(crate) fn run(asked: &EnvVars) -> Result<u8, Failure> {
    let at = format!("/api/threads/{}", segment(asked.at.thread.as_str()));
    if asked.set.is_empty() && asked.unset.is_empty() && asked.secret.is_empty() {
        return session::run(&asked.reach, async |mut client| {
            let named = asked.terminal.as_deref().map(|name| ("terminal", name));
            let path = query(&format!("{at}/terminal"), named.as_slice());
            let terminal = client.get(&path).await?;
            print::out(&shown(&terminal, asked.form.json))?;
            Ok(0)
        });
    }
    let mut vars: Map<String, Value> =
        asked.set.iter().map(|one| (one.name.clone(), one.value.clone().into())).collect();
    for name in &asked.unset {
        if vars.insert(name.clone(), Value::Null).is_some() {
            return Err(Failure::Asked(format!("`{name}` is both set and unset")));
        }
    }
    if let Some(name) = asked.secret.iter().find(|name| vars.contains_key(*name)) {
        return Err(Failure::Asked(format!("`{name}` is given twice, once as a secret")));
    }
    let mut body = json!({ "vars": vars });
    if !asked.secret.is_empty() {
        body.set("secrets", Value::Object(secrets(&asked.secret)?));
    }
    if let Some(terminal) = &asked.terminal {
        body.set("terminal", terminal.as_str());
    }
    session::run(&asked.reach, async |mut client| {
        let terminal = client.json(Call::put(&format!("{at}/env")).document(&body)).await?;
        if asked.form.json {
            print::out(&format!("{terminal:#}\n"))?;
        }
        Ok(0)
    })
}

fn shown(terminal: &Value, json: bool) -> String {
    let delta = terminal.at("env_delta").as_object().cloned().unwrap_or_default();
    if json {
        return format!("{:#}\n", Value::Object(delta));
    }
    let line = |(name, value): (&String, &Value)| {
        if value.is_null() { format!("unset {name}\n") } else { format!("{name}={}\n", one_line(value)) }
    };
    delta.iter().map(line).collect()
}

/// Values that are never on a command line: typed without being shown, or from a pipe. One from a pipe is all of it but for
/// the end of its last line; several are a line each.
fn secrets(names: &[String]) -> Result<Map<String, Value>, Failure> {
    let stdin = io::stdin();
    let mut found = Map::new();
    if stdin.is_terminal() {
        for name in names {
            print::error(format_args!("value of {name} (not shown): "));
            let mut line = String::new();
            let read = {
                let _quiet = Silence::on_stdin().map_err(Failure::Input)?;
                stdin.lock().read_line(&mut line)
            };
            tell!("");
            read.map_err(Failure::Input)?;
            found.insert(name.clone(), nonempty(name, line.strip_suffix('\n').unwrap_or(&line))?);
        }
        return Ok(found);
    }
    let mut text = String::new();
    stdin.lock().read_to_string(&mut text).map_err(Failure::Input)?;
    if let [name] = names {
        found.insert(name.clone(), nonempty(name, text.strip_suffix('\n').unwrap_or(&text))?);
        return Ok(found);
    }
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() != names.len() {
        let (secrets, lines) = (names.len(), lines.len());
        return Err(Failure::Asked(format!(
            "{secrets} secrets want as many lines of standard input; there are {lines}"
        )));
    }
    for (name, line) in names.iter().zip(lines) {
        found.insert(name.clone(), nonempty(name, line)?);
    }
    Ok(found)
}

/// An empty secret is nearly always a pipe that failed.
fn nonempty(name: &str, value: &str) -> Result<Value, Failure> {
    if value.is_empty() {
        return Err(Failure::Asked(format!("the value of `{name}` is empty; nothing was changed")));
    }
    Ok(value.into())
}
