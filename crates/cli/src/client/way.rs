//! How a server is reached: the socket in its data directory, or an address.

use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    /// Whoever may open it is let in.
    Socket(PathBuf),
    Http(Address),
}

/// What `STEAD_URL` names.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    host: String,
    port: u16,
    /// In front of `/api`, where a proxy serves more than us; no slash at its end.
    prefix: String,
    token: Option<String>,
}

/// The token stays out of it.
impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Address").field(&self.url()).finish()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    #[error("`{0}` is no address of a server; write it as `http://HOST:PORT`")]
    Malformed(String),
    #[error("`{0}` asks for TLS, which the command line doesn't speak")]
    Tls(String),
    #[error("STEAD_TOKEN holds characters that no token has")]
    Token,
}

impl Address {
    pub(crate) fn parse(url: &str, token: Option<String>) -> Result<Self, UrlError> {
        let malformed = || UrlError::Malformed(url.to_owned());
        if url.starts_with("https://") {
            return Err(UrlError::Tls(url.to_owned()));
        }
        let rest = url.strip_prefix("http://").ok_or_else(malformed)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !b"@?#\\\"<>".contains(&byte));
        let (host, port) = match authority.rsplit_once(':') {
            // The colons of an address in brackets are its own.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| malformed())?),
            _ => (authority, 80),
        };
        if host.is_empty() || !plain(host) || !plain(path) || (host.contains(':') && !host.starts_with('[')) {
            return Err(malformed());
        }
        if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(UrlError::Token);
        }
        let path = path.trim_end_matches('/');
        let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        Ok(Self { host: host.to_owned(), port, prefix, token })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}:{}{}", self.host, self.port, self.prefix)
    }
}

impl Way {
    pub(crate) async fn connect(&self) -> std::io::Result<Stream> {
        match self {
            Self::Socket(path) => UnixStream::connect(path).await.map(Stream::Socket),
            Self::Http(address) => {
                let host = address.host.trim_start_matches('[').trim_end_matches(']');
                let stream = TcpStream::connect((host, address.port)).await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    /// What a `Host` line says.
    pub(crate) fn host(&self) -> String {
        match self {
            Self::Socket(_) => "localhost".to_owned(),
            Self::Http(address) if address.port == 80 => address.host.clone(),
            Self::Http(address) => format!("{}:{}", address.host, address.port),
        }
    }

    pub(crate) fn prefix(&self) -> &str {
        match self {
            Self::Socket(_) => "",
            Self::Http(address) => &address.prefix,
        }
    }

    pub(crate) fn token(&self) -> Option<&str> {
        match self {
            Self::Socket(_) => None,
            Self::Http(address) => address.token.as_deref(),
        }
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Http(address) => f.write_str(&address.url()),
        }
    }
}

/// Bytes to and from a server, whichever way.
#[derive(Debug)]
pub(crate) enum Stream {
    Socket(UnixStream),
    Tcp(TcpStream),
}

macro_rules! either {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            Stream::Socket($inner) => $call,
            Stream::Tcp($inner) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        either!(self, inner => Pin::new(inner).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        either!(self, inner => Pin::new(inner).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_their_parts_found() {
        for (url, host, shown) in [
            ("http://127.0.0.1:7878", "127.0.0.1:7878", "http://127.0.0.1:7878"),
            ("http://box/", "box", "http://box:80"),
            ("http://[::1]:7878/stead/", "[::1]:7878", "http://[::1]:7878/stead"),
            ("http://[::1]", "[::1]", "http://[::1]:80"),
        ] {
            let address = Address::parse(url, None).unwrap();
            assert_eq!((Way::Http(address.clone()).host().as_str(), address.url().as_str()), (host, shown), "{url}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_by_name() {
        for url in
            ["", "box:7878", "http://", "http://:80", "http://a b", "http://a:b", "http://a@b", "http://::1", "ftp://a"]
        {
            assert_eq!(Address::parse(url, None), Err(UrlError::Malformed(url.to_owned())), "{url}");
        }
        assert!(matches!(Address::parse("https://box", None), Err(UrlError::Tls(_))));
        assert_eq!(Address::parse("http://box", Some("a\nb".to_owned())), Err(UrlError::Token));
    }

    #[test]
    fn a_token_is_not_shown() {
        let address = Address::parse("http://box", Some("hidden".to_owned())).unwrap();
        assert!(!format!("{address:?}").contains("hidden"));
    }
}
