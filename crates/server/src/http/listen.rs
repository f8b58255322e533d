//! Connections: over TCP and over the socket in the data directory, so many at once, none that dawdles for ever.

use super::gate::Gate;
use super::held::Held;
use super::leftover;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// How a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// Over the socket, whose permission is the authentication.
    Socket,
    Network,
}

/// How long the body of a request may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyWithin(pub(crate) Duration);

/// Where we listen.
#[derive(Debug)]
pub struct Doors {
    pub tcp: TcpListener,
    pub socket: UnixListener,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open at once, over both doors.
    pub connections: usize,
    /// How long the head of a request may take, and a connection may be idle.
    pub head: Duration,
    /// How long a body may take that is kept in memory.
    pub body: Duration,
    /// How long answers that are under way may take when we end.
    pub farewell: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            head: Duration::from_secs(30),
            body: Duration::from_mins(1),
            farewell: Duration::from_secs(5),
        }
    }
}

/// The head of a request: lines, and bytes of all of them.
const MOST_HEADERS: usize = 100;
const MOST_HEAD: usize = 64 << 10;

/// After an error of `accept` that isn't the client's: too many open files.
const BREATH: Duration = Duration::from_millis(50);

/// Serves until it is told to stop; then answers under way are finished, for a while.
pub async fn serve(doors: Doors, gate: Gate, limits: Limits, stop: CancellationToken) {
    let server = Arc::new(Server {
        gate,
        limits,
        room: Arc::new(Semaphore::new(limits.connections)),
        stop: stop.clone(),
        tasks: TaskTracker::new(),
    });
    let Doors { tcp, socket } = doors;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => server.welcome(stream, Via::Socket),
                Err(error) => server.failed(&error).await,
            },
            accepted = tcp.accept() => match accepted {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    server.welcome(stream, Via::Network);
                }
                Err(error) => server.failed(&error).await,
            },
        }
    }
    drop((tcp, socket));
    server.tasks.close();
    let _ = tokio::time::timeout(limits.farewell, server.tasks.wait()).await;
}

struct Server {
    gate: Gate,
    limits: Limits,
    room: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    fn welcome<S>(self: &Arc<Self>, stream: S, via: Via)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let server = Arc::clone(self);
        match Arc::clone(&self.room).try_acquire_owned() {
            Ok(place) => {
                self.tasks.spawn(async move { server.converse(Held::new(stream, place), via).await });
            }
            Err(_) => {
                self.tasks.spawn(turn_away(stream));
            }
        }
    }

    async fn converse<S>(&self, stream: S, via: Via)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (gate, body) = (self.gate.clone(), BodyWithin(self.limits.body));
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(via);
            request.extensions_mut().insert(body);
            let router = gate.router();
            // Whoever asks before sending a body isn't made to send one that was refused.
            let asks = request.headers().contains_key(header::EXPECT);
            async move {
                let (head, body) = request.into_parts();
                let (body, lender) = leftover::lend(body);
                let request = Request::from_parts(head, Body::new(body));
                let mut response = router.oneshot(request).await.unwrap_or_else(|never| match never {});
                if !asks && !lender.finish().await {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(response)
            }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_buf_size(MOST_HEAD)
            .max_headers(MOST_HEADERS)
            .half_close(true);
        let connection = http.serve_connection(TokioIo::new(stream), service).with_upgrades();
        tokio::pin!(connection);
        let ended = tokio::select! {
            biased;
            ended = &mut connection => ended,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended badly");
        }
    }

    async fn failed(&self, error: &io::Error) {
        // A client that is gone before it is accepted is its own affair.
        if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            tracing::error!(%error, "can't accept connections");
            tokio::time::sleep(BREATH).await;
        }
    }
}

/// Says that there is no room, whatever they were going to ask.
async fn turn_away<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    const BODY: &str = r#"{"error":{"code":"unavailable","message":"too many connections are open","retryable":true}}"#;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n{BODY}",
        BODY.len()
    );
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
        // What they ask is read, and dropped: closing over it would take back what they were told.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    })
    .await;
}
