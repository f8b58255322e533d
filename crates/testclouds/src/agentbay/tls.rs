//! The same cloud over TLS: its SDK speaks nothing else. By a certificate of its own, made by `openssl`.

use axum::Router;
use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// For a handshake; one that doesn't come to an end must not hold up the others.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Where it listens, and what makes it trusted.
#[derive(Debug)]
pub struct Tls {
    /// `HOST:PORT`.
    pub address: String,
    directory: tempfile::TempDir,
}

impl Tls {
    /// The certificate, to be trusted.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("certificate.pem")
    }
}

pub(super) async fn start(router: Router, stop: CancellationToken) -> io::Result<Tls> {
    let directory = tempfile::tempdir()?;
    let acceptor = TlsAcceptor::from(Arc::new(certified(directory.path())?));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move {
        tokio::select! {
            served = axum::serve(Secure { listener, acceptor }, router) => served.unwrap(),
            () = stop.cancelled() => {}
        }
    });
    Ok(Tls { address, directory })
}

fn certified(directory: &Path) -> io::Result<ServerConfig> {
    let (key, certificate) = (directory.join("key.pem"), directory.join("certificate.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=testcloud", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stderr(Stdio::null())
        .status()?;
    if !made.success() {
        return Err(io::Error::other("`openssl` made no certificate"));
    }
    let chain = CertificateDer::pem_file_iter(&certificate).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(&key).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Ok(builder.with_single_cert(chain, key).unwrap())
}

struct Secure {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Secure {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, self.acceptor.accept(stream)).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
