//! The actions.

use super::State;
use super::door::{Answer, Refusal};
use super::form::{Fields, Form};
use super::session::{Session, Status};
use super::tools::{self, Route};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Without a word about it.
const TIMEOUT: u64 = 300;

/// Of a page that nobody asked to be of another length.
const PAGE: u64 = 10;

pub(super) async fn act(state: &Arc<State>, query: &Fields, form: &Form<'_>) -> Result<Answer, Refusal> {
    let session = || state.session(form.text("SessionId")).ok_or_else(|| Refusal::not_found(form.text("SessionId")));
    match form.action {
        "CreateMcpSession" => create(state, form).await,
        "GetSession" => Ok(described(state, &*session()?).into()),
        "GetSessionDetail" => {
            let id = query.get("SessionId").map_or("", String::as_str);
            match (state.session(id), state.ended.lock().unwrap().get(id)) {
                (Some(session), _) => {
                    Ok(json!({ "Status": session.status().to_string(), "ImageId": session.image }).into())
                }
                (None, Some(why)) => Ok(json!({ "Status": "FINISH", "EndReason": why }).into()),
                (None, None) => Err(Refusal::not_found(id)),
            }
        }
        "ListSession" => list(state, form),
        "GetLabel" => {
            let labels = serde_json::to_string(&session()?.labels).unwrap();
            Ok(json!({ "Labels": labels }).into())
        }
        "RefreshSessionIdleTime" => {
            let session = session()?;
            if session.status() != Status::Running {
                return Err(wrong_state(&session));
            }
            session.refresh();
            Ok(Answer::default())
        }
        "PauseSessionAsync" => {
            let session = session()?;
            if !state.may_pause.load(Ordering::SeqCst) {
                let said = "This account is not in the whitelist of the feature.";
                return Err(Refusal::new(403, "Forbidden.NotInWhitelist", said));
            }
            if session.status() != Status::Running {
                return Err(wrong_state(&session));
            }
            session.pause();
            Ok(Answer::default())
        }
        "ResumeSessionAsync" => {
            let session = session()?;
            if session.status() != Status::Paused {
                return Err(wrong_state(&session));
            }
            session.resume();
            Ok(Answer::default())
        }
        "DeleteSessionAsync" => {
            let session = session()?;
            if session.status() != Status::Running {
                return Err(wrong_state(&session));
            }
            session.delete(state, "deleted");
            Ok(Answer::default())
        }
        "ListMcpTools" => Ok(Value::String(tools::list().to_string()).into()),
        "CallMcpTool" => {
            let session = session()?;
            let arguments = form.object("Args")?;
            if !matches!(form.text("AutoGenSession"), "" | "false" | "False") {
                return Err(form.invalid("AutoGenSession"));
            }
            let (tool, server) = (form.text("Name"), form.text("Server"));
            let called = tools::call(state, &session, Route::Front, tool, server, &arguments).await?;
            // As a text, as the wire has it at times.
            Ok(Value::String(called.to_value().to_string()).into())
        }
        other => unreachable!("`{other}` is not let in"),
    }
}

async fn create(state: &Arc<State>, form: &Form<'_>) -> Result<Answer, Refusal> {
    let labels = form.labels()?;
    let timeout = form.number("Timeout", 1..=86_400)?.unwrap_or(TIMEOUT);
    let image = form.text("ImageId").to_owned();
    if image != "linux_latest" && image != "code_latest" {
        return Err(Refusal::new(400, "InvalidImage.NotFound", format!("The image {image} does not exist.")));
    }
    let id = format!("session-{:06}-{}", state.next(), "0".repeat(8));
    let (inside, runtime) = (state.clone(), tokio::runtime::Handle::current());
    let started = tokio::task::spawn_blocking(move || {
        let _entered = runtime.enter();
        Session::start(&inside, id, image, labels, Duration::from_secs(timeout))
    });
    match started.await.unwrap() {
        Ok(session) => {
            let mut data = described(state, &session);
            data.as_object_mut().unwrap().remove("Status");
            data["ErrMsg"] = Value::String(String::new());
            Ok(data.into())
        }
        Err(error) => Err(Refusal::new(500, "InternalError", error.to_string())),
    }
}

fn described(state: &State, session: &Session) -> Value {
    let mut data = json!({
        "SessionId": session.id, "Success": true, "AppInstanceId": format!("app-{}", session.id),
        "ResourceId": format!("res-{}", session.id), "ResourceUrl": format!("{}/resource/{}", state.base, session.id),
        "HttpPort": "", "NetworkInterfaceIp": "", "VpcResource": false, "Token": "", "LinkUrl": "",
        "ToolList": tools::list().to_string(), "Status": session.status().to_string(),
    });
    if state.links.load(Ordering::SeqCst) {
        data["LinkUrl"] = format!("{}/link/{}", state.base, session.id).into();
        data["Token"] = session.token().into();
    }
    data
}

fn list(state: &State, form: &Form<'_>) -> Result<Answer, Refusal> {
    let wanted = form.labels()?;
    let page = form.number("MaxResults", 1..=100)?.unwrap_or(PAGE);
    let page = page.min(state.longest_page.load(Ordering::SeqCst));
    let (status, image) = (form.text("Status"), form.text("ImageId"));
    let after = match form.text("NextToken") {
        "" => "",
        token => token.strip_prefix("after-").ok_or_else(|| form.invalid("NextToken"))?,
    };
    let sessions = state.all();
    let all: Vec<_> = sessions
        .iter()
        .filter(|session| wanted.iter().all(|(name, value)| session.labels.get(name) == Some(value)))
        .filter(|session| status.is_empty() || session.status().to_string() == status)
        .filter(|session| image.is_empty() || session.image == image)
        .collect();
    let total = all.len();
    let rest: Vec<_> = all.into_iter().filter(|session| session.id.as_str() > after).collect();
    let most = usize::try_from(page).unwrap();
    let next = if rest.len() > most { format!("after-{}", rest[most - 1].id) } else { String::new() };
    let data: Vec<_> = rest
        .iter()
        .take(most)
        .map(|session| {
            json!({
                "SessionId": session.id, "SessionStatus": session.status().to_string(),
                "AppInstanceId": format!("app-{}", session.id), "ImageId": session.image,
            })
        })
        .collect();
    let beside = vec![("NextToken", next.into()), ("MaxResults", page.into()), ("TotalCount", total.into())];
    Ok(Answer { data: data.into(), beside })
}

pub(super) fn wrong_state(session: &Session) -> Refusal {
    let said = format!("The session is {} and can't do this.", session.status());
    Refusal::new(400, "InvalidMcpSession.IncorrectStatus", said)
}
