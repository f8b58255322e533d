//! The command line's end of the HTTP interface.
//!
//! One connection, kept for the calls of one verb; a second one where two things happen at once, such as a command that
//! is followed and its input. A call whose connection broke is sent again only if it can have had no effect, or has the
//! same effect twice.

mod call;
mod problem;
mod sse;
mod start;
mod way;

pub(crate) use call::{Call, Payload, query, segment};
pub(crate) use problem::Problem;
pub(crate) use sse::{Event, Parser, SseError};
pub(crate) use start::{Start, StartError};
pub(crate) use way::{Address, Stream, UrlError, Way};

use crate::json::Fields;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderName};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite;

/// How long a server on another machine may take to take up a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(15);

/// The largest answer that is taken as one document: two streams of output, with room for escapes.
const LARGEST_ANSWER: usize = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error(transparent)]
    Problem(#[from] Problem),
    #[error("no server answers at `{way}`")]
    Unreachable { way: Way, source: std::io::Error },
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the connection to the server broke")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the server at `{0}` doesn't answer as stead does: {1}")]
    Foreign(Way, String),
}

impl ClientError {
    pub(crate) fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Broken(error.into())
    }

    /// The same call may do better in a moment: nobody refused it, or the server says so.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Broken(_) | Self::Unreachable { .. } => true,
            Self::Problem(problem) => problem.retryable,
            Self::Start(_) | Self::Foreign(..) => false,
        }
    }

    pub(crate) fn is_code(&self, code: &str) -> bool {
        matches!(self, Self::Problem(problem) if problem.code == code)
    }

    pub(crate) fn advice(&self) -> Option<String> {
        match self {
            Self::Problem(problem) => problem.advice(),
            Self::Unreachable { way: Way::Socket(_), .. } => {
                Some("start one with `stead serve`, or run a command with `stead exec`, which does so by itself".to_owned())
            }
            Self::Unreachable { way: Way::Http(_), .. } => Some(
                "check STEAD_URL, and that `stead serve` runs there; without STEAD_URL this machine's own server is used"
                    .to_owned(),
            ),
            Self::Start(error) => Some(error.advice()),
            Self::Broken(_) => Some("`stead doctor` tells whether the server runs".to_owned()),
            Self::Foreign(..) => Some("check STEAD_URL: something else may listen there".to_owned()),
        }
    }
}

/// Where a server is, and whether it may be started.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) way: Way,
    pub(crate) start: Option<Arc<Start>>,
}

#[derive(Debug)]
pub(crate) struct Client {
    server: Server,
    sender: Option<SendRequest<Payload>>,
    /// They move the bytes of the connections, and end with us.
    connections: JoinSet<()>,
}

impl Client {
    pub(crate) fn new(server: Server) -> Self {
        Self { server, sender: None, connections: JoinSet::new() }
    }

    /// Another connection to the same server.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.server.clone())
    }

    pub(crate) fn way(&self) -> &Way {
        &self.server.way
    }

    /// Sends a call; an answer that is no success is an error.
    pub(crate) async fn send(&mut self, call: Call) -> Result<Response<Incoming>, ClientError> {
        let again = call.again();
        let answer = match self.once(call).await {
            Err(ClientError::Broken(error)) => match again {
                Some(call) => self.once(call).await?,
                None => return Err(ClientError::Broken(error)),
            },
            answer => answer?,
        };
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status().as_u16();
        let body = collect(answer).await?;
        Err(Problem::read(status, &body).into())
    }

    /// Sends a call and reads the answer as one document; an empty one is null.
    pub(crate) async fn json(&mut self, call: Call) -> Result<Value, ClientError> {
        let body = collect(self.send(call).await?).await?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body)
            .map_err(|error| ClientError::Foreign(self.server.way.clone(), format!("its answer is no JSON ({error})")))
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Value, ClientError> {
        self.json(Call::get(path)).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.json(Call::post(path).document(body)).await
    }

    /// Every item of a list, at most as many as wanted, whatever the server's pages.
    pub(crate) async fn list(&mut self, path: &str, at_most: usize) -> Result<Vec<Value>, ClientError> {
        let (mut items, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let limit = (at_most - items.len()).min(1000).to_string();
            let mut asked = vec![("limit", limit.as_str())];
            asked.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let page = self.get(&query(path, &asked)).await?;
            let Value::Array(more) = page.at("items") else {
                return Err(ClientError::Foreign(self.server.way.clone(), format!("`{path}` is no list")));
            };
            items.extend(more.iter().cloned());
            cursor = page.at("next_cursor").as_str().map(str::to_owned);
            if cursor.is_none() || items.len() >= at_most {
                items.truncate(at_most);
                return Ok(items);
            }
        }
    }

    /// A connection that carries bytes both ways.
    pub(crate) async fn websocket(&self, path: &str) -> Result<WebSocketStream<Stream>, ClientError> {
        use tungstenite::client::IntoClientRequest as _;
        let way = &self.server.way;
        let url = format!("ws://{}{}{path}", way.host(), way.prefix());
        let foreign = |error: tungstenite::Error| ClientError::Foreign(way.clone(), error.to_string());
        let mut request = url.into_client_request().map_err(foreign)?;
        if let Some(token) = way.token() {
            let bearer = format!("Bearer {token}").parse();
            request.headers_mut().insert(header::AUTHORIZATION, bearer.map_err(ClientError::broken)?);
        }
        let stream = self.connect().await?;
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(socket),
            Err(tungstenite::Error::Http(answer)) => {
                let body = answer.body().as_deref().unwrap_or_default();
                Err(Problem::read(answer.status().as_u16(), body).into())
            }
            Err(error @ (tungstenite::Error::Io(_) | tungstenite::Error::ConnectionClosed)) => {
                Err(ClientError::broken(error))
            }
            Err(error) => Err(foreign(error)),
        }
    }

    async fn once(&mut self, call: Call) -> Result<Response<Incoming>, ClientError> {
        let mut sender = match self.sender.take() {
            Some(mut kept) => match kept.ready().await {
                Ok(()) => kept,
                Err(_) => self.open().await?,
            },
            None => self.open().await?,
        };
        let way = &self.server.way;
        let mut request = Request::builder()
            .method(call.method)
            .uri(format!("{}{}", way.prefix(), call.path))
            .header(header::HOST, way.host())
            .header(header::USER_AGENT, concat!("stead/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = way.token() {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        let request = request.body(call.payload).map_err(ClientError::broken)?;
        let answer = sender.send_request(request).await.map_err(ClientError::broken)?;
        self.sender = Some(sender);
        Ok(answer)
    }

    async fn open(&mut self) -> Result<SendRequest<Payload>, ClientError> {
        let stream = self.connect().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(ClientError::broken)?;
        // How it ends is told to whoever waits for an answer.
        self.connections.spawn(async { drop(connection.await) });
        Ok(sender)
    }

    /// A stream to the server, which is started if there is none and it may be.
    async fn connect(&self) -> Result<Stream, ClientError> {
        let way = &self.server.way;
        let connecting = || async {
            match tokio::time::timeout(CONNECT_WITHIN, way.connect()).await {
                Ok(stream) => stream,
                Err(late) => Err(late.into()),
            }
        };
        let unreachable = |source| ClientError::Unreachable { way: way.clone(), source };
        match (connecting().await, &self.server.start) {
            (Ok(stream), _) => Ok(stream),
            (Err(error), Some(start)) if start::may_help(&error) => {
                let start = Arc::clone(start);
                tokio::task::spawn_blocking(move || start.run()).await.map_err(ClientError::broken)??;
                connecting().await.map_err(unreachable)
            }
            (Err(error), _) => Err(unreachable(error)),
        }
    }
}

/// The whole of an answer that isn't a stream.
async fn collect(answer: Response<Incoming>) -> Result<Bytes, ClientError> {
    let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await;
    Ok(body.map_err(ClientError::Broken)?.to_bytes())
}
