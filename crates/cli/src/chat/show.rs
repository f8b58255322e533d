//! A turn as a person sees it: the answer as it was written, what is done beside it in lines of its own.

use crate::failure::Failure;
use crate::json::Fields;
use crate::print;
use crate::table::one_line;
use serde_json::Value;
use std::io::{self, IsTerminal};

/// Keeps answer and remarks apart.
#[derive(Debug)]
pub(super) struct Show {
    /// Whether the answer stands in the middle of a line.
    in_line: bool,
    remarks: bool,
    /// What was shown of the message that is being told.
    told: String,
}

/// Of what a tool is given; its result is in the transcript.
const MOST_INPUT: usize = 120;

impl Show {
    pub(super) fn new() -> Self {
        Self { in_line: false, remarks: io::stderr().is_terminal(), told: String::new() }
    }

    pub(super) fn piece(&mut self, text: &str) -> Result<(), Failure> {
        self.told.push_str(text);
        self.print(text)
    }

    /// A message, whole. Its pieces were shown, some or all of them; where they were of something that is no longer said,
    /// it is shown as it is.
    pub(super) fn message(&mut self, text: &str) -> Result<(), Failure> {
        let told = std::mem::take(&mut self.told);
        match text.strip_prefix(told.as_str()) {
            Some(rest) => self.print(rest)?,
            None if text.trim_end() == told.trim_end() => {}
            None => {
                self.end_of_message()?;
                self.print(text)?;
            }
        }
        self.end_of_message()
    }

    fn print(&mut self, text: &str) -> Result<(), Failure> {
        if let Some(last) = text.chars().last() {
            self.in_line = last != '\n';
            print::out(text)?;
        }
        Ok(())
    }

    pub(super) fn end_of_message(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.in_line) {
            print::out("\n")?;
        }
        Ok(())
    }

    /// Only for people.
    pub(super) fn status(&self, text: &str) {
        if self.remarks {
            tell!("· {text}");
        }
    }

    pub(super) fn tool(&mut self, tool: &Value) -> Result<(), Failure> {
        self.end_of_message()?;
        let name = one_line(tool.at("name"));
        let text = match tool.at("status").as_str() {
            Some("running") => {
                let input = tool.at("input");
                let input = if input.at("command").is_string() { input.at("command") } else { input };
                let input: String = one_line(input).chars().take(MOST_INPUT).collect();
                format!("[{name}] {input}")
            }
            Some("failed") => format!("[{name}] failed"),
            _ => format!("[{name}] done"),
        };
        tell!("{text}");
        Ok(())
    }
}
