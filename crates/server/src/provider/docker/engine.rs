//! The engine behind its socket, and what its refusals mean.

use super::super::{Effect, ProviderError, Trouble};
use bollard::errors::Error;
use bollard::{API_DEFAULT_VERSION, Docker};
use rustix::fs::Access;
use std::io;
use std::path::{Path, PathBuf};
use stead_model::ids::ProviderName;
use tokio::net::UnixStream;
use tokio::sync::OnceCell;

/// What the engine may take for one call. Removing a container whose processes are in a slow disk's hands takes longest.
const PATIENCE_SECONDS: u64 = 90;

#[derive(Debug)]
pub(super) struct Engine {
    name: ProviderName,
    sockets: Vec<PathBuf>,
    /// Once an engine has answered it stays that one; every call is a connection of its own, so that it may be
    /// restarted.
    connected: OnceCell<Docker>,
}

impl Engine {
    pub(super) fn new(name: ProviderName, sockets: Vec<PathBuf>) -> Self {
        Self { name, sockets, connected: OnceCell::new() }
    }

    /// The first that we may use, else the first that may be there.
    pub(super) fn socket(&self) -> Option<&Path> {
        let mut all = self.sockets.iter().map(PathBuf::as_path);
        let usable = all.clone().find(|socket| rustix::fs::access(*socket, Access::WRITE_OK).is_ok());
        usable.or_else(|| all.find(|socket| !matches!(socket.try_exists(), Ok(false))))
    }

    pub(super) async fn docker(&self, what: &'static str) -> Result<&Docker, ProviderError> {
        self.connected
            .get_or_try_init(|| async {
                let socket = self.socket().ok_or_else(|| {
                    let all: Vec<_> = self.sockets.iter().map(|socket| format!("`{}`", socket.display())).collect();
                    let message = format!("no engine's socket is at {}; {START}", all.join(" or "));
                    self.error(what, Trouble::Unavailable, Effect::None, message)
                })?;
                if socket.try_exists().is_err() {
                    return Err(self.denied(what));
                }
                // Nothing has been asked for yet but its version.
                let failed = |error| ProviderError { effect: Effect::None, ..self.failed(what)(error) };
                let docker =
                    Docker::connect_with_unix(&socket.to_string_lossy(), PATIENCE_SECONDS, API_DEFAULT_VERSION);
                docker.map_err(failed)?.negotiate_version().await.map_err(failed)
            })
            .await
    }

    /// Who listens behind its socket; systemd does so for whom it starts it as.
    pub(super) async fn owner(&self) -> Option<u32> {
        let stream = UnixStream::connect(self.socket()?).await.ok()?;
        Some(stream.peer_cred().ok()?.uid())
    }

    pub(super) fn error(
        &self,
        what: &'static str,
        trouble: Trouble,
        effect: Effect,
        message: impl Into<String>,
    ) -> ProviderError {
        ProviderError::new(&self.name, what, trouble, effect, message)
    }

    fn denied(&self, what: &'static str) -> ProviderError {
        let socket = self.socket().map(|socket| socket.display().to_string()).unwrap_or_default();
        let message = format!("the engine at `{socket}` may not be used by us; {ADMIT}");
        self.error(what, Trouble::Denied, Effect::None, message)
    }

    /// What an error of the engine means for whoever asked.
    pub(super) fn failed(&self, what: &'static str) -> impl Fn(Error) -> ProviderError + '_ {
        move |error| {
            if is_denied(&error) {
                return self.denied(what);
            }
            let (trouble, effect, message) = judge(&error);
            self.error(what, trouble, effect, message)
        }
    }
}

/// The advice for whoever has no engine that answers.
pub(super) const START: &str = "start it (`systemctl start docker`, or `systemctl --user start podman.socket`), or set \
                                `socket` to where it listens";

/// The advice for whoever may not use the engine that there is.
const ADMIT: &str = "put the server's user into the group of the socket (`usermod --append --groups docker USER`), or use \
                     an engine without root";

/// Whether the socket is there and not for us.
fn is_denied(error: &Error) -> bool {
    let causes = std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source());
    let mut causes = causes.filter_map(|error| error.downcast_ref::<io::Error>());
    matches!(error, Error::HyperLegacyError { err } if err.is_connect())
        && causes.any(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn judge(error: &Error) -> (Trouble, Effect, String) {
    if let Error::DockerResponseServerError { status_code, message } = error {
        let (trouble, effect) = by_status(*status_code, message);
        return (trouble, effect, message.trim().to_owned());
    }
    if let Error::HyperLegacyError { err } = error
        && err.is_connect()
    {
        let cause = std::error::Error::source(err).map_or_else(|| err.to_string(), deepest);
        return (Trouble::Unavailable, Effect::None, format!("the engine does not answer ({cause}); {START}"));
    }
    if matches!(error, Error::SocketNotFoundError(_)) {
        return (Trouble::Unavailable, Effect::None, format!("{error}; {START}"));
    }
    let trouble = if matches!(error, Error::RequestTimeoutError) {
        Trouble::TimedOut
    } else if matches!(error, Error::HyperLegacyError { .. } | Error::HyperResponseError { .. } | Error::IOError { .. })
    {
        Trouble::Unavailable
    } else if matches!(error, Error::DockerStreamError { error } if is_full(error)) {
        Trouble::NoSpace
    } else {
        // An answer that makes no sense.
        Trouble::Broken
    };
    (trouble, Effect::Unknown, super::super::local::chain(error))
}

fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map(ToString::to_string).unwrap_or_default()
}

/// A refusal below 500 did nothing; of what broke half-way only a look tells what it did.
fn by_status(status: u16, message: &str) -> (Trouble, Effect) {
    match status {
        _ if is_full(message) => (Trouble::NoSpace, Effect::Unknown),
        // Podman without root, where control groups are of the first kind.
        _ if message.contains("can not pause containers") => (Trouble::Unsupported, Effect::None),
        404 => (Trouble::NotFound, Effect::None),
        409 => (Trouble::Conflict, Effect::None),
        401 | 403 => (Trouble::Denied, Effect::None),
        400..500 => (Trouble::Broken, Effect::None),
        _ => (Trouble::Unavailable, Effect::Unknown),
    }
}

/// The engine has no code for it, only what the kernel said.
fn is_full(message: &str) -> bool {
    ["no space left on device", "disk quota exceeded"].iter().any(|text| message.contains(text))
}

/// Whether it said: as you wish, it is so already.
pub(super) fn is_so_already(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 304, .. })
}

/// Whether it told of a state that only Podman knows, and that is one on the way to another: dead, not yet cleaned up.
pub(super) fn is_passing(error: &Error) -> bool {
    matches!(error, Error::JsonDataError { message, .. } if message.contains("unknown variant `stopped`"))
        || matches!(error, Error::DockerResponseServerError { message, .. } if message.contains("state improper: stopped"))
}

pub(super) fn is_absent(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

pub(super) fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 409, .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_by_what_the_caller_can_do() {
        let cases = [
            (404, "no such container", Trouble::NotFound, Effect::None),
            (409, "name in use", Trouble::Conflict, Effect::None),
            (403, "", Trouble::Denied, Effect::None),
            (400, "bad parameter", Trouble::Broken, Effect::None),
            (500, "mkdir /x: no space left on device", Trouble::NoSpace, Effect::Unknown),
            (500, "can not pause containers on rootless containers", Trouble::Unsupported, Effect::None),
            (500, "OCI runtime create failed", Trouble::Unavailable, Effect::Unknown),
        ];
        for (status_code, message, trouble, effect) in cases {
            let error = Error::DockerResponseServerError { status_code, message: message.to_owned() };
            assert_eq!(judge(&error), (trouble, effect, message.to_owned()));
        }
        assert_eq!(judge(&Error::RequestTimeoutError).0, Trouble::TimedOut);
    }

    #[tokio::test]
    async fn an_engine_that_is_not_there_or_does_not_listen_did_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let name = ProviderName::parse("docker").unwrap();
        let silent = dir.path().join("silent");
        drop(std::os::unix::net::UnixListener::bind(&silent).unwrap());
        for socket in [dir.path().join("absent"), silent] {
            let engine = Engine::new(name.clone(), vec![socket]);
            let error = engine.docker("try").await.unwrap_err();
            assert_eq!((error.trouble, error.effect), (Trouble::Unavailable, Effect::None), "{error}");
            assert!(error.message.contains("start it"), "{error}");
        }
    }
}
