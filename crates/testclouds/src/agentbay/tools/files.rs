//! Files of the machine, by their text.

use super::Outcome;
use crate::machine::Machine;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

pub(super) fn act(machine: &Machine, tool: &str, arguments: &Value) -> Result<Outcome, String> {
    let text = |name: &str| arguments[name].as_str().ok_or_else(|| format!("`{name}` is no text"));
    let number = |name: &str| match &arguments[name] {
        Value::Null => Ok(0),
        value => value.as_u64().ok_or_else(|| format!("`{name}` is no number")),
    };
    let done = match tool {
        "read_file" => {
            let is_binary = match &arguments["format"] {
                Value::Null => false,
                value if value == "binary" => true,
                _ => return Err("`format` is not binary".to_owned()),
            };
            read(&machine.outside(text("path")?), number("offset")?, number("length")?, is_binary)
        }
        "write_file" => {
            let is_append = match arguments["mode"].as_str().unwrap_or("overwrite") {
                "overwrite" => false,
                "append" => true,
                other => return Err(format!("mode `{other}`")),
            };
            write(&machine.outside(text("path")?), text("content")?, is_append)
        }
        "create_directory" => fs::create_dir_all(machine.outside(text("path")?)).map(|()| String::new()),
        "delete_file" => fs::remove_file(machine.outside(text("path")?)).map(|()| String::new()),
        "move_file" => {
            let (source, destination) = (machine.outside(text("source")?), machine.outside(text("destination")?));
            fs::rename(source, destination).map(|()| String::new())
        }
        "list_directory" => list(&machine.outside(text("path")?)),
        "get_file_info" => fs::metadata(machine.outside(text("path")?))
            .map(|meta| format!("size: {}\nisDirectory: {}\nisFile: {}\n", meta.len(), meta.is_dir(), meta.is_file())),
        "read_multiple_files" => {
            let paths = arguments["paths"].as_array().ok_or("`paths` are no list")?;
            let read = |path: &Value| {
                let path = path.as_str().unwrap_or_default();
                Ok(format!("{path}:\n{}\n---\n", fs::read_to_string(machine.outside(path))?))
            };
            paths.iter().map(read).collect::<io::Result<String>>()
        }
        other => return Err(format!("unknown tool `{other}`")),
    };
    Ok(done.map_or_else(|error| Outcome::failed(error.to_string()), Outcome::fine))
}

/// A length of 0 is all of it.
fn read(path: &Path, offset: u64, length: u64, is_binary: bool) -> io::Result<String> {
    let all = fs::read(path)?;
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
    let length = if length == 0 { usize::MAX } else { usize::try_from(length).unwrap_or(usize::MAX) };
    let some = &all[from..from.saturating_add(length).min(all.len())];
    Ok(if is_binary { STANDARD.encode(some) } else { String::from_utf8_lossy(some).into_owned() })
}

fn write(path: &Path, content: &str, is_append: bool) -> io::Result<String> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = fs::OpenOptions::new().create(true).write(true).append(is_append).truncate(!is_append).open(path)?;
    file.write_all(content.as_bytes())?;
    Ok("true".to_owned())
}

fn list(path: &Path) -> io::Result<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let kind = if entry.path().is_dir() { "[DIR]" } else { "[FILE]" };
        lines.push(format!("{kind} {}", entry.file_name().to_string_lossy()));
    }
    lines.sort();
    Ok(lines.join("\n"))
}
