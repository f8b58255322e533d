//! Images made on this machine, and given to the engine without a registry.

use super::super::ProviderError;
use super::engine::{self, Engine};
use bollard::query_parameters::{CreateImageOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptions};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;
use stead_model::ids::ProviderName;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const WHAT: &str = "import an image";

/// The engine answers when it has all of it, and a whole system takes a slow disk a while.
const PATIENCE: Duration = Duration::from_mins(30);

/// Pieces of an archive that are made and not yet sent; whoever makes more waits.
const PIECES: usize = 16;

const PIECE: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Engine(#[from] ProviderError),
    #[error("the engine did not say which image it made")]
    Silent,
}

/// The images of an engine.
#[derive(Debug)]
pub struct Images {
    engine: Engine,
}

impl Images {
    pub fn new(provider: ProviderName, sockets: Vec<PathBuf>) -> Self {
        Self { engine: Engine::new(provider, sockets) }
    }

    pub async fn has(&self, name: &str) -> Result<bool, ImageError> {
        Ok(has(&self.engine, name).await?)
    }

    /// Makes an image of a tree, as a tar archive; returns its id.
    pub async fn import(
        &self,
        name: &str,
        archive: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<String, ImageError> {
        import(&self.engine, name, archive).await?.ok_or(ImageError::Silent)
    }
}

pub(super) async fn has(engine: &Engine, name: &str) -> Result<bool, ProviderError> {
    match engine.docker(WHAT).await?.inspect_image(name).await {
        Ok(_) => Ok(true),
        Err(error) if engine::is_absent(&error) => Ok(false),
        Err(error) => Err(engine.failed(WHAT)(error)),
    }
}

/// What the engine says of it at last, which is its id.
pub(super) async fn import(
    engine: &Engine,
    name: &str,
    archive: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Result<Option<String>, ProviderError> {
    let docker = engine.docker(WHAT).await?.clone().with_timeout(PATIENCE);
    let (repository, tag) = split_tag(name);
    let options = CreateImageOptionsBuilder::new().from_src("-").repo(repository).tag(tag).build();
    let mut said = docker.create_image(Some(options), Some(bollard::body_try_stream(archive)), None);
    let mut last = None;
    while let Some(step) = said.next().await {
        last = step.map_err(engine.failed(WHAT))?.status.or(last);
    }
    Ok(last)
}

/// Removes what else is called so, as far as no container needs it.
pub(super) async fn remove_others(engine: &Engine, repository: &str, tag: &str) {
    let Ok(docker) = engine.docker(WHAT).await else { return };
    let filters = HashMap::from([("reference", vec![format!("{repository}:*")])]);
    let listed = docker.list_images(Some(ListImagesOptionsBuilder::new().filters(&filters).build())).await;
    let names = listed.into_iter().flatten().flat_map(|image| image.repo_tags);
    // Podman puts `localhost/` before them.
    for name in names.filter(|name| !name.ends_with(&format!("{repository}:{tag}"))) {
        if let Err(error) = docker.remove_image(&name, None::<RemoveImageOptions>, None).await {
            tracing::debug!(%error, name, "an older image stays");
        }
    }
}

/// What `make` writes, on its way to the engine while it is being made: never whole in memory, never on a disk. Whoever
/// makes it has to flush it. Beside it what became of it; if that is a broken pipe, the engine wanted no more.
pub fn archive<E: Send + 'static>(
    make: impl FnOnce(&mut dyn Write) -> Result<(), E> + Send + 'static,
) -> (impl Stream<Item = io::Result<Bytes>> + Send + 'static, JoinHandle<Result<(), E>>) {
    let (pieces, mut taken) = mpsc::channel(PIECES);
    let maker = tokio::task::spawn_blocking(move || {
        let failed = pieces.clone();
        let done = make(&mut io::BufWriter::with_capacity(PIECE, Pieces(pieces)));
        if done.is_err() {
            // An archive that only ends too early could be taken for a whole one.
            let _ = failed.blocking_send(Err(io::Error::other("the archive could not be made")));
        }
        done
    });
    (futures_util::stream::poll_fn(move |cx| taken.poll_recv(cx)), maker)
}

struct Pieces(mpsc::Sender<io::Result<Bytes>>);

impl Write for Pieces {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(buf);
        self.0.blocking_send(Ok(piece)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `registry:5000/name:tag`: a colon before the last slash is a port.
fn split_tag(name: &str) -> (&str, &str) {
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (name, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::split_tag;

    #[test]
    fn a_tag_is_what_follows_the_last_colon_unless_that_is_a_port() {
        assert_eq!(split_tag("stead/base"), ("stead/base", "latest"));
        assert_eq!(split_tag("stead/base:2"), ("stead/base", "2"));
        assert_eq!(split_tag("host:5000/base"), ("host:5000/base", "latest"));
        assert_eq!(split_tag("host:5000/base:2"), ("host:5000/base", "2"));
    }
}
