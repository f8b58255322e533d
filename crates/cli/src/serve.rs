//! `stead serve`: the layers, the doors, and their end. Wiring only.

use crate::args::Serve;
use crate::print;
use crate::settings::{self, SettingsError};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stead_server::agents::Agents;
use stead_server::clock::{Steady, SystemClock};
use stead_server::config::{LogFormat, ServerConfig};
use stead_server::files::LinkKey;
use stead_server::fsck;
use stead_server::http::{self, App, Doors, Gate, Guard};
use stead_server::project::ProjectSettings;
use stead_server::room::{self, Reserve};
use stead_server::stead::{Parts, Stead};
use stead_server::store::{SqliteStore, Store, StoreError};
use stead_server::token::{TokenError, Tokens};
use stead_server::vault::Vault;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("can't use the data directory `{}`", dir.display())]
    Data { dir: PathBuf, source: io::Error },
    #[error("a server runs already over `{}`", .0.display())]
    Running(PathBuf),
    #[error("can't listen on {address}; choose another with `--listen`")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("`{0}` is no filter for the log; write `info`, `debug` or `stead_server=debug`")]
    Log(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Tokens(#[from] TokenError),
    #[error(transparent)]
    Layers(#[from] stead_server::Error),
    #[error("can't begin")]
    Runtime(#[source] io::Error),
}

/// Half of the machine: shells and their stewards do as much for a command as we do, and a hand-over from one of our
/// threads to another costs more than all that we compute for a short one.
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    tokio::runtime::Builder::new_multi_thread().worker_threads((cores / 2).max(1)).enable_all().build()
}

pub(crate) fn run(serve: &Serve) -> Result<(), ServeError> {
    let ready = serve.ready_fd.and_then(stead_term::spawn::inherited);
    let data = settings::ground(&serve.place)?.data;
    let (config, _) = settings::load(&serve.place)?;
    let mut server = config.server.clone();
    let chosen = serve.listen.is_some() || server.listen_chosen;
    server.listen = serve.listen.unwrap_or(server.listen);
    begin_log(&server)?;
    let failed = |source| ServeError::Data { dir: data.clone(), source };
    make_private(&data).map_err(failed)?;
    let _lock = lock(&data)?;
    Reserve::of(&data).give_up_if_full();
    stead_term::spawn::raise_open_files().map_err(ServeError::Runtime)?;
    let runtime = runtime().map_err(ServeError::Runtime)?;
    let ended = runtime.block_on(async {
        // Whoever starts us by the way comes over the socket: a port that another has doesn't matter then.
        let any_port = serve.ready_fd.is_some() && !chosen;
        let doors = open_doors(&data, server.listen, any_port).await?;
        let address = doors.tcp.local_addr().map_err(failed)?;
        fsck::refuse_a_lost_database(&data).map_err(failed)??;
        // What is left to look at may be much, and whoever watches us is to see that we live.
        let (gate, stop) = (Gate::closed(), CancellationToken::new());
        let serving = tokio::spawn(http::serve(doors, gate.clone(), server.limits, stop.clone()));
        let database = Arc::new(SqliteStore::open(&fsck::database(&data)).await?);
        let store: Arc<dyn Store> = Arc::clone(&database) as _;
        let tokens = Tokens::open(Arc::clone(&store), Arc::new(Steady::new(Arc::new(SystemClock))), &data)?;
        let (settings, warning) = config.settings().await;
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        let (stead, recovered) = {
            let vault = Vault::at(data.join("secret.key"));
            let journal_limit = server.journal_limit;
            let projects = ProjectSettings { root: Some(data.join("projects")), ..config.projects };
            let (upkeep, memory, routes) = (config.upkeep, config.memory, config.routes);
            let parts = Parts {
                vault,
                journal_limit,
                projects,
                upkeep,
                memory,
                routes,
                data: Some(data.clone()),
                ..Parts::new(store, config.providers, settings)
            };
            Stead::start(parts).await?
        };
        let agents = Agents::start(stead.clone(), config.agents).await?;
        tracing::info!(?recovered, "started");
        let line = format!("stead is listening: http://{address}/?token={}\n", tokens.first().reveal());
        let (own, allowed) = (host_of(address), server.allowed_hosts.clone());
        let guard = Arc::new(Guard::new(tokens, &own, allowed, server.requests_per_second));
        let links = Arc::new(LinkKey::load(&data).map_err(failed)?);
        tokio::spawn(wait_for_signal(stead.clone(), stop)?);
        gate.open(http::router(App { address, stead: stead.clone(), agents, guard, links }));
        print::said(Some(line));
        tell_ready(ready);
        serving.await.map_err(|error| ServeError::Runtime(io::Error::other(error)))?;
        let _ = std::fs::remove_file(data.join("stead.sock"));
        for error in stead.stop().await {
            tracing::error!(%error, "not everything could be settled");
        }
        // All of it in the one file, so that a copy of that is a backup; nothing is lost if this fails.
        if room::is_scarce(&data) {
            tracing::warn!("the disk is full, so the log of the database stays beside it: the next start needs it");
            database.leave_log().await;
        } else if let Err(error) = database.close().await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the log of the database could not be put into it"
            );
        }
        tracing::info!("ended");
        Ok(())
    });
    // Files that are still being removed, or read, are left as after `kill -9`; the next start goes on with them.
    runtime.shutdown_timeout(LAST_WORK);
    ended
}

/// How long a server that was told to end waits for work on files.
const LAST_WORK: Duration = Duration::from_secs(2);

fn host_of(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

fn begin_log(server: &ServerConfig) -> Result<(), ServeError> {
    let filter = EnvFilter::try_new(&server.log).map_err(|_| ServeError::Log(server.log.clone()))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // It would be told on standard error that standard error can't be written, and that panics.
    let log = log.log_internal_errors(false);
    match server.log_format {
        LogFormat::Text => log.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// The data directory holds tokens and everybody's files: it is its owner's alone.
fn make_private(data: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data)
}

/// How long a server that was killed may take to be gone.
const LAST_BREATH: Duration = Duration::from_secs(2);

/// One server for each data directory, by two locks that the kernel lets go when the server dies. The directory itself is
/// locked, because nobody can remove it from under the server as they can a file in it; `server.lock` is locked too, because
/// servers of version 0.1.0 lock that alone.
pub(crate) fn lock(data: &Path) -> Result<Vec<OwnedFd>, ServeError> {
    let failed = |source: rustix::io::Errno| ServeError::Data { dir: data.to_owned(), source: source.into() };
    let directory = rustix::fs::open(data, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let directory = lock_in_time(data, directory)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match rustix::fs::open(data.join("server.lock"), flags, Mode::from_raw_mode(0o600)) {
        // On a full disk that lacks it the first one has to do.
        Err(Errno::NOSPC | Errno::DQUOT) => return Ok(vec![directory]),
        file => file.map_err(failed)?,
    };
    Ok(vec![directory, lock_in_time(data, file)?])
}

/// The kernel takes a moment to let go of what a killed server had locked, so a server that is started right after
/// `kill -9` of another waits for it here.
fn lock_in_time(data: &Path, lock: OwnedFd) -> Result<OwnedFd, ServeError> {
    let failed = |source: io::Error| ServeError::Data { dir: data.to_owned(), source };
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => {}
        Err(error) => return Err(failed(error.into())),
    }
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let locked = rustix::fs::flock(&lock, FlockOperation::LockExclusive).map(|()| lock);
        let _ = tell.send(locked);
    });
    match told.recv_timeout(LAST_BREATH) {
        Ok(Ok(lock)) => Ok(lock),
        Ok(Err(error)) => Err(failed(error.into())),
        Err(_) => Err(ServeError::Running(data.to_owned())),
    }
}

async fn open_doors(data: &Path, address: SocketAddr, any_port: bool) -> Result<Doors, ServeError> {
    let tcp = match TcpListener::bind(address).await {
        Err(error) if any_port && error.kind() == io::ErrorKind::AddrInUse => {
            TcpListener::bind(SocketAddr::new(address.ip(), 0)).await
        }
        tcp => tcp,
    };
    let tcp = tcp.map_err(|source| ServeError::Listen { address, source })?;
    let failed = |source| ServeError::Data { dir: data.to_owned(), source };
    // Made under another name and moved: nobody finds it before only its owner may use it.
    let (path, fresh) = (data.join("stead.sock"), data.join("stead.sock.new"));
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let socket = UnixListener::bind(&fresh).map_err(failed)?;
    let owner_alone = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&fresh, owner_alone).map_err(failed)?;
    std::fs::rename(&fresh, &path).map_err(failed)?;
    Ok(Doors { tcp, socket })
}

/// Resolves when somebody wants us to end.
fn wait_for_signal(stead: Stead, stop: CancellationToken) -> Result<impl Future<Output = ()>, ServeError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Runtime)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stead.hang_up();
        stop.cancel();
    })
}

/// Tells whoever started us that we can be reached, and lets the descriptor go.
fn tell_ready(pipe: Option<OwnedFd>) {
    let Some(pipe) = pipe else { return };
    if let Err(error) = std::fs::File::from(pipe).write_all(b"1") {
        tracing::warn!(%error, "whoever started us doesn't listen");
    }
}
