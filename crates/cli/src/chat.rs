//! `stead chat` and `stead agents`.

mod person;
mod show;

use crate::args::{Agents, Chat};
use crate::client::{Call, Client, ClientError, Event, Parser, Problem, query, segment};
use crate::failure::Failure;
use crate::json::Fields;
use crate::session::{self, Patience};
use crate::table::{Table, age, one_line};
use crate::{print, settings};
use http_body_util::BodyExt;
use hyper::{Response, body::Incoming, header};
use person::{Person, Typed, ask, chosen, refuse};
use serde_json::{Value, json};
use show::Show;
use std::collections::VecDeque;
use std::io::{self, IsTerminal};

/// As a shell has it for what was interrupted.
const ABORTED: u8 = 130;
const FAILED: u8 = 1;

pub(crate) fn agents(asked: &Agents) -> Result<u8, Failure> {
    session::run(&asked.reach, async |mut client| {
        let path = if asked.sessions { "/api/chat/sessions" } else { "/api/agents" };
        let items = client.list(path, usize::MAX).await?;
        if asked.form.json {
            print::out(&format!("{:#}\n", json!({ "items": items })))?;
            return Ok(0);
        }
        let yes = |value: &Value| if *value == true { "yes" } else { "no" }.to_owned();
        let table = if asked.sessions {
            let mut table = Table::new(&["SESSION", "IN USE", "RUNNING", "RESUMABLE", "LAST USED", "KEY"]);
            for item in &items {
                let (used, key) = (age(item.at("last_used_at")), one_line(item.at("key")));
                let states = ["in_use", "running", "resumable"].map(|name| yes(item.at(name)));
                let [in_use, running, resumable] = states;
                table.row([one_line(item.at("id")), in_use, running, resumable, used, key]);
            }
            table
        } else {
            let mut table = Table::new(&["AGENT", "INSTALLED", "VERSION", "ROUTE", "INSTALL"]);
            for item in &items {
                let there = item.at("available") == true;
                let install = if there { "-".to_owned() } else { one_line(item.at("install")) };
                let version = if item.at("version").is_null() { "-".to_owned() } else { one_line(item.at("version")) };
                let route = one_line(item.at("transport"));
                table.row([one_line(item.at("name")), yes(item.at("available")), version, route, install]);
            }
            table
        };
        print::out(&table.render())?;
        Ok(0)
    })
}

pub(crate) fn chat(asked: &Chat) -> Result<u8, Failure> {
    session::run(&asked.reach, async |mut client| {
        let place = place(&mut client, asked).await?;
        let agent = match &asked.agent {
            Some(agent) => agent.clone(),
            None => first_installed(&mut client).await?,
        };
        let mut talk = Talk { asked, agent, place, person: Person::new()? };
        if let Some(message) = &asked.message {
            return talk.say(&mut client, message).await;
        }
        let somebody = io::stdin().is_terminal();
        if somebody {
            let agent = &talk.agent;
            tell!(
                "talking to `{agent}`; a line is a message, Ctrl-C ends a turn, Ctrl-D or Ctrl-C here the conversation"
            );
        }
        let mut code = 0;
        loop {
            if somebody {
                print::error(format_args!("> "));
            }
            match talk.person.next().await? {
                Typed::Line(line) if line.trim().is_empty() => {}
                Typed::Line(line) => code = talk.say(&mut client, &line).await?,
                Typed::End => return Ok(code),
                Typed::Interrupt => {
                    tell!("");
                    return Ok(ABORTED);
                }
            }
        }
    })
}

/// Where the agent is to work, as the server wants it named. A thread is made on first use.
async fn place(client: &mut Client, asked: &Chat) -> Result<(&'static str, String), Failure> {
    if let Some(project) = &asked.project {
        return Ok(("project_id", project.clone()));
    }
    if let Some(dir) = &asked.workspace {
        let dir = settings::absolute(dir)?;
        return Ok(("workspace", dir.display().to_string()));
    }
    let thread = asked.at.thread.to_string();
    match client.post("/api/threads", &json!({ "id": thread })).await {
        Ok(_) => {}
        Err(error) if error.is_code("already_exists") => {}
        Err(error) => return Err(error.into()),
    }
    Ok(("thread_id", thread))
}

async fn first_installed(client: &mut Client) -> Result<String, Failure> {
    let agents = client.list("/api/agents", usize::MAX).await?;
    let there = agents.iter().find(|agent| agent.at("available") == true);
    there
        .map(|agent| one_line(agent.at("name")))
        .ok_or_else(|| Failure::Asked("no terminal agent is installed; `stead agents` says how to get one".to_owned()))
}

struct Talk<'a> {
    asked: &'a Chat,
    agent: String,
    place: (&'static str, String),
    person: Person,
}

impl Talk<'_> {
    /// One message, to the end of its turn, over as many connections as it takes.
    async fn say(&mut self, client: &mut Client, message: &str) -> Result<u8, Failure> {
        let run = format!("run-{}", session::fresh_digits()?);
        let (field, name) = &self.place;
        let mut body = json!({
            "provider": self.agent, *field: name, "message": message, "id": run,
            "if_busy": if self.asked.queue { "queue" } else { "reject" },
        });
        if let Some(body) = body.as_object_mut() {
            body.extend(self.asked.model.as_ref().map(|model| ("model".to_owned(), json!(model))));
            let rule = self.asked.permissions.map(|rule| json!({ "default": rule.name() }));
            body.extend(rule.map(|rule| ("permissions".to_owned(), rule)));
        }
        let mut turn = Turn { run, show: Show::new(), after: 0, questions: VecDeque::new(), aborted: false };
        let mut patience = Patience::new();
        let mut call = Call::post("/api/chat").document(&body);
        loop {
            let before = turn.after;
            let sent = tokio::select! {
                sent = client.send(call.header(header::ACCEPT, "text/event-stream")) => sent,
                () = self.person.interrupted() => {
                    turn.abort(client).await;
                    return Ok(ABORTED);
                }
            };
            let why = match sent {
                Ok(answer) => match turn.read(client, answer, &mut self.person).await? {
                    Some(code) => return Ok(code),
                    None => ClientError::broken("the stream ended before the turn did"),
                },
                Err(error @ ClientError::Broken(_)) => error,
                Err(error) if turn.after > 0 && error.may_pass() => error,
                Err(error) => return Err(error.into()),
            };
            if turn.after > before {
                patience.restore();
            }
            let waited = tokio::select! {
                waited = patience.wait() => waited,
                () = self.person.interrupted() => return Ok(ABORTED),
            };
            if !waited {
                return Err(why.into());
            }
            // The same id is the same message, however often it is sent.
            call = if turn.after == 0 {
                Call::post("/api/chat").document(&body)
            } else {
                let path = format!("/api/chat/runs/{}/events", segment(&turn.run));
                Call::get(&query(&path, &[("after", &turn.after.to_string())]))
            };
        }
    }
}

struct Turn {
    run: String,
    show: Show,
    after: u64,
    /// What waits for an answer of the person, oldest first.
    questions: VecDeque<Value>,
    aborted: bool,
}

impl Turn {
    /// Reads the events of one connection, and what a person has to say to them; the code when the turn has ended.
    async fn read(
        &mut self,
        client: &Client,
        answer: Response<Incoming>,
        person: &mut Person,
    ) -> Result<Option<u8>, Failure> {
        let mut body = answer.into_body();
        let mut parser = Parser::default();
        loop {
            let asks = !self.questions.is_empty();
            let typed = async {
                if asks {
                    return person.next().await;
                }
                person.interrupted().await;
                Ok(Typed::Interrupt)
            };
            let frame = tokio::select! {
                biased;
                typed = typed => {
                    match typed? {
                        // Asked for twice: whoever sits there wants to go.
                        Typed::Interrupt if self.aborted => return Ok(Some(ABORTED)),
                        Typed::Interrupt => {
                            tell!("\nending the turn");
                            self.abort(client).await;
                        }
                        Typed::Line(line) => self.answered(client, &line).await?,
                        // Nobody is there any more: the question waits for another, or for the end of its time.
                        Typed::End => self.questions.clear(),
                    }
                    continue;
                }
                frame = body.frame() => frame,
            };
            let Some(Ok(frame)) = frame else { return Ok(None) };
            for event in parser.feed(frame.data_ref().map_or(&[], |data| data.as_ref()))? {
                if let Some(code) = self.take(client, &event).await? {
                    return Ok(Some(code));
                }
            }
        }
    }

    /// Asks for the end of the turn. If that can't be had now, whoever asked can ask again.
    async fn abort(&mut self, client: &Client) {
        match client.another().post("/api/chat/abort", &json!({ "run_id": self.run })).await {
            Ok(_) => self.aborted = true,
            Err(error) => tell!("stead: the turn can't be ended: {error}"),
        }
        self.questions.clear();
    }

    /// The person has said something to the oldest question.
    async fn answered(&mut self, client: &Client, line: &str) -> Result<(), Failure> {
        let Some(question) = self.questions.pop_front() else { return Ok(()) };
        if let Some(option) = chosen(&question, line) {
            self.answer(client, &question, &option).await?;
            if let Some(next) = self.questions.front() {
                ask(next);
            }
        } else {
            tell!("type the number of an answer");
            print::error(format_args!("? "));
            self.questions.push_front(question);
        }
        Ok(())
    }

    async fn answer(&self, client: &Client, question: &Value, option: &str) -> Result<(), Failure> {
        let choice = json!({ "permission_id": question.at("id"), "option_id": option });
        let path = format!("/api/chat/runs/{}/permission", segment(&self.run));
        match client.another().post(&path, &choice).await {
            // Somebody else was faster, or the time was over.
            Err(error) if error.is_code("not_found") => tell!("that was answered already"),
            answered => drop(answered?),
        }
        Ok(())
    }

    async fn take(&mut self, client: &Client, event: &Event) -> Result<Option<u8>, Failure> {
        let Some(seq) = event.seq else {
            // The end of the stream, not of the turn.
            return Err(ClientError::from(Problem::read(500, event.data.as_bytes())).into());
        };
        if seq <= self.after {
            return Ok(None);
        }
        self.after = seq;
        let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
        match event.name.as_str() {
            "delta" => self.show.piece(data.at("text").as_str().unwrap_or_default())?,
            "message" => self.show.message(data.at("text").as_str().unwrap_or_default())?,
            "status" => self.show.status(&one_line(data.at("text"))),
            "tool" => self.show.tool(&data)?,
            "permission" => {
                self.show.end_of_message()?;
                if io::stdin().is_terminal() {
                    if self.questions.is_empty() {
                        ask(&data);
                    }
                    self.questions.push_back(data);
                } else if let Some(no) = refuse(&data) {
                    self.answer(client, &data, &no).await?;
                }
            }
            "done" => {
                self.show.end_of_message()?;
                return Ok(Some(0));
            }
            "aborted" => {
                self.show.end_of_message()?;
                tell!("aborted");
                return Ok(Some(ABORTED));
            }
            "error" => {
                self.show.end_of_message()?;
                tell!("stead: {}", one_line(data.at("error").at("message")));
                return Ok(Some(FAILED));
            }
            _ => {}
        }
        Ok(None)
    }
}
