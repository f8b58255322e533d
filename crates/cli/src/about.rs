//! What this program says of itself: `version`, `completions`, `man`.

use crate::args::{Args, Completions, Version};
use crate::client::{Client, ClientError, Server};
use crate::failure::Failure;
use crate::json::Fields;
use crate::{print, session};
use clap::CommandFactory;
use serde_json::{Value, json};

pub(crate) fn version(asked: &Version) -> Result<u8, Failure> {
    let own = env!("CARGO_PKG_VERSION");
    session::run(&asked.reach, async |client| {
        let server = running(&client).await;
        let text = match (&server, asked.form.json) {
            (Ok(server), true) => format!("{:#}\n", json!({ "version": own, "server": server })),
            (Err(_), true) => format!("{:#}\n", json!({ "version": own, "server": null })),
            (Ok(server), false) => {
                format!(
                    "stead {own}\nserver {} at {}, listening on {}\n",
                    server.at("version").as_str().unwrap_or("unknown"),
                    client.way(),
                    server.at("address").as_str().unwrap_or("an unknown address")
                )
            }
            (Err(_), false) => format!("stead {own}\nno server answers at {}\n", client.way()),
        };
        print::out(&text)?;
        Ok(0)
    })
}

/// What a server says of itself, if one runs; none is started.
pub(crate) async fn running(client: &Client) -> Result<Value, ClientError> {
    let server = Server { way: client.way().clone(), start: None };
    Client::new(server).get("/api/version").await
}

pub(crate) fn completions(asked: &Completions) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(asked.shell, &mut Args::command(), "stead", &mut script);
    print::out(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

/// One page for the program and all its verbs.
pub(crate) fn man() -> Result<u8, Failure> {
    let mut page = Vec::new();
    let command = Args::command();
    let render = |page: &mut Vec<u8>| -> std::io::Result<()> {
        let man =
            clap_mangen::Man::new(command.clone()).date("").source(format!("stead {}", env!("CARGO_PKG_VERSION")));
        man.render_title(page)?;
        man.render_name_section(page)?;
        man.render_synopsis_section(page)?;
        man.render_description_section(page)?;
        page.extend_from_slice(as_it_is(command.get_after_help()).as_bytes());
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let name = format!("stead {}", verb.get_name());
            page.extend_from_slice(format!(".SH \"{}\"\n", name.to_uppercase()).as_bytes());
            let man = clap_mangen::Man::new(verb.clone().bin_name(&name).display_name(&name));
            let mut part = Vec::new();
            man.render_synopsis_section(&mut part)?;
            man.render_description_section(&mut part)?;
            man.render_options_section(&mut part)?;
            page.extend_from_slice(within(&String::from_utf8_lossy(&part)).as_bytes());
            page.extend_from_slice(as_it_is(verb.get_after_help()).as_bytes());
        }
        Ok(())
    };
    render(&mut page).map_err(Failure::Output)?;
    print::out(&String::from_utf8_lossy(&page))?;
    Ok(0)
}

/// Sections of a page of its own as parts of a section of ours.
fn within(page: &str) -> String {
    let line = |line: &str| match line {
        ".SH SYNOPSIS" | ".SH DESCRIPTION" => Some(".PP".to_owned()),
        ".SH OPTIONS" => Some(".SS Options".to_owned()),
        // Said once, at the top.
        _ if line.starts_with(".ie ") || line.starts_with(".el ") => None,
        _ => Some(line.to_owned()),
    };
    page.lines().filter_map(line).flat_map(|line| [line, "\n".to_owned()]).collect()
}

/// Examples stand in lines of their own, which a manual page would otherwise fill.
fn as_it_is(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    let escaped = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    let lines: Vec<String> = escaped.lines().map(|line| format!("\\&{line}\n")).collect();
    if lines.is_empty() { String::new() } else { format!(".PP\n.nf\n{}.fi\n", lines.concat()) }
}
