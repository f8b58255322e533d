//! `stead logs`, `stead cancel`, `stead history`.

use crate::args::{Cancel, History, Logs};
use crate::client::{Call, ClientError, query, segment};
use crate::exec::tape::{Tape, Told};
use crate::failure::Failure;
use crate::follow::{self, Reader, Reading};
use crate::json::Fields;
use crate::table::{Table, age, one_line};
use crate::{print, session};
use hyper::header;
use serde_json::{Value, json};

pub(crate) fn logs(asked: &Logs) -> Result<u8, Failure> {
    let path = format!("/api/commands/{}/events", segment(asked.command.as_str()));
    let open = |tape: &Tape| {
        let after = tape.last().to_string();
        let mut fields = vec![("after", after.as_str())];
        fields.extend(asked.late.then_some(("late", "true")));
        fields.extend((!asked.follow).then_some(("follow", "false")));
        Call::get(&query(&path, &fields)).header(header::ACCEPT, "text/event-stream")
    };
    let mut told = async |told| match told {
        Told::Output(stream, bytes) => match follow::write(stream, bytes).await? {
            Reader::There => Ok(()),
            Reader::Gone => Err(Failure::Unread),
        },
        Told::Known | Told::Queued | Told::Started | Told::Ended(_) => Ok(()),
    };
    let result = session::run(&asked.reach, async |mut client| {
        let tape = Tape::since(asked.since);
        let mut tape = if asked.late { tape.with_late_output() } else { tape };
        if asked.follow && !asked.late {
            follow::follow(&mut client, asked.command.as_str(), &mut tape, open, &mut told).await?;
            return Ok(0);
        }
        loop {
            let answer = client.send(open(&tape)).await?;
            let before = tape.last();
            match follow::read(answer, &mut tape, &mut told).await? {
                Reading::Ended(_) | Reading::Closed => return Ok(0),
                Reading::Broken(error) if tape.last() == before => return Err(error.into()),
                Reading::Broken(_) => {}
            }
        }
    });
    match result {
        // `| head` has read enough; that is its right.
        Err(Failure::Unread) => Ok(0),
        other => other,
    }
}

pub(crate) fn cancel(asked: &Cancel) -> Result<u8, Failure> {
    let path = format!("/api/commands/{}/cancel", segment(asked.command.as_str()));
    let body = asked.signal.as_ref().map_or(json!({}), |signal| json!({ "signal": signal }));
    session::run(&asked.reach, async |mut client| {
        // To cancel twice is to cancel once.
        let record = match client.post(&path, &body).await {
            Err(ClientError::Broken(_)) => client.post(&path, &body).await?,
            record => record?,
        };
        let text = if asked.form.json { format!("{record:#}\n") } else { format!("{}\n", outcome(&record)) };
        print::out(&text)?;
        Ok(0)
    })
}

pub(crate) fn history(asked: &History) -> Result<u8, Failure> {
    let path = format!("/api/threads/{}/commands", segment(asked.at.thread.as_str()));
    session::run(&asked.reach, async |mut client| {
        let items = client.list(&path, asked.limit).await?;
        if asked.form.json {
            print::out(&format!("{:#}\n", json!({ "items": items })))?;
            return Ok(0);
        }
        let mut table = Table::new(&["COMMAND", "WHEN", "TOOK", "OUTCOME", "TEXT"]);
        for item in &items {
            table.row([
                one_line(item.at("id")),
                age(item.at("created_at")),
                took(item.at("duration_ms")),
                outcome(item),
                one_line(item.at("command")),
            ]);
        }
        print::out(&table.render())?;
        Ok(0)
    })
}

/// How a command stands, in a word or two.
fn outcome(record: &Value) -> String {
    let status = one_line(record.at("status"));
    match (status.as_str(), record.at("exit_code").as_i64(), record.at("signal").as_str()) {
        ("exited", Some(_), Some(signal)) => format!("killed by {}", one_line(&signal.into())),
        ("exited", Some(code), None) => format!("exited {code}"),
        ("timed_out", ..) => "timed out".to_owned(),
        _ => status,
    }
}

fn took(millis: &Value) -> String {
    match millis.as_u64() {
        None => "-".to_owned(),
        Some(millis @ 0..1000) => format!("{millis}ms"),
        Some(millis @ 1000..60_000) => format!("{}.{}s", millis / 1000, millis % 1000 / 100),
        Some(millis) => format!("{}m{:02}s", millis / 60_000, millis / 1000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_and_times_are_told_in_a_word() {
        assert_eq!(outcome(&json!({ "status": "exited", "exit_code": 3, "signal": null })), "exited 3");
        assert_eq!(outcome(&json!({ "status": "exited", "exit_code": 137, "signal": "KILL" })), "killed by KILL");
        assert_eq!(outcome(&json!({ "status": "timed_out", "exit_code": -1 })), "timed out");
        assert_eq!(outcome(&json!({ "status": "lost", "exit_code": null })), "lost");
        for (millis, want) in [(7, "7ms"), (1234, "1.2s"), (59_999, "59.9s"), (61_000, "1m01s"), (3_600_000, "60m00s")]
        {
            assert_eq!(took(&millis.into()), want);
        }
        assert_eq!(took(&Value::Null), "-");
    }
}
