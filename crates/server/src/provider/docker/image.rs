//! Images made on this machine, and given to the engine without a registry.

use super::super::ProviderError;
use super::engine::{self, Engine};
use bollard::query_parameters::CreateImageOptionsBuilder;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use std::io;
use std::path::PathBuf;
use stead_model::ids::ProviderName;

const WHAT: &str = "import an image";

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
        match self.engine.docker(WHAT).await?.inspect_image(name).await {
            Ok(_) => Ok(true),
            Err(error) if engine::is_absent(&error) => Ok(false),
            Err(error) => Err(self.engine.failed(WHAT)(error).into()),
        }
    }

    /// Makes an image of a tree, as a tar archive; returns its id.
    pub async fn import(
        &self,
        name: &str,
        archive: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<String, ImageError> {
        let docker = self.engine.docker(WHAT).await?;
        let (repository, tag) = split_tag(name);
        let options = CreateImageOptionsBuilder::new().from_src("-").repo(repository).tag(tag).build();
        let mut said = docker.create_image(Some(options), Some(bollard::body_try_stream(archive)), None);
        let mut last = None;
        while let Some(step) = said.next().await {
            last = step.map_err(self.engine.failed(WHAT))?.status.or(last);
        }
        last.ok_or(ImageError::Silent)
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
