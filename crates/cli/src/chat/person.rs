//! Whoever sits at the keyboard. Lines are read by a thread that can't be called back: one that was asked for and is not
//! wanted any more is the next that is wanted.

use crate::failure::Failure;
use crate::json::Fields;
use crate::print;
use crate::table::one_line;
use serde_json::Value;
use std::io::{self, BufRead};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

pub(super) struct Person {
    interrupts: Signal,
    reading: Option<JoinHandle<io::Result<Option<String>>>>,
}

pub(super) enum Typed {
    Line(String),
    End,
    /// Ctrl-C.
    Interrupt,
}

impl Person {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self { interrupts: signal(SignalKind::interrupt()).map_err(Failure::Runtime)?, reading: None })
    }

    /// The next thing that is typed. May be given up without losing anything.
    pub(super) async fn next(&mut self) -> Result<Typed, Failure> {
        let Self { interrupts, reading } = self;
        tokio::select! {
            biased;
            _ = interrupts.recv() => Ok(Typed::Interrupt),
            line = read(reading) => Ok(line?.map_or(Typed::End, Typed::Line)),
        }
    }

    pub(super) async fn interrupted(&mut self) {
        self.interrupts.recv().await;
    }
}

async fn read(reading: &mut Option<JoinHandle<io::Result<Option<String>>>>) -> Result<Option<String>, Failure> {
    let begun = reading.get_or_insert_with(|| {
        tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line).map(|length| (length > 0).then_some(line))
        })
    });
    let read = begun.await;
    *reading = None;
    let line = read.map_err(|error| Failure::Runtime(io::Error::other(error)))?.map_err(Failure::Input)?;
    Ok(line.map(|line| line.trim_end_matches('\n').to_owned()))
}

/// Shows a question with its answers.
pub(super) fn ask(question: &Value) {
    tell!("permission: {}", one_line(question.at("title")));
    for (number, option) in (1..).zip(options(question)) {
        tell!("  {number}. {}", one_line(option.at("label")));
    }
    print::error(format_args!("? "));
}

/// The option whose number was typed.
pub(super) fn chosen(question: &Value, line: &str) -> Option<String> {
    let number = line.trim().parse::<usize>().ok()?.checked_sub(1)?;
    options(question).get(number).map(|option| one_line(option.at("id")))
}

/// The answer where nobody can be asked.
pub(super) fn refuse(question: &Value) -> Option<String> {
    tell!("permission: {}", one_line(question.at("title")));
    tell!("not allowed: nobody is here to ask; `--permissions allow` allows it");
    let no = |option: &&Value| option.at("kind").as_str().is_some_and(|kind| kind.starts_with("reject"));
    options(question).iter().find(no).map(|option| one_line(option.at("id")))
}

fn options(question: &Value) -> &[Value] {
    question.at("options").as_array().map_or(&[], Vec::as_slice)
}
