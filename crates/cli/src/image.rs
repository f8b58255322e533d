//! `stead image build`: a tree of this machine's programs as an image, so that containers can be had without a network.

mod counted;
mod debian;
mod host;
mod skeleton;

use crate::args::{BuildImage, Image, ImageDeed};
use crate::failure::Failure;
use crate::print;
use crate::settings;
use counted::Counted;
use serde_json::json;
use std::io;
use std::path::PathBuf;
use stead_model::ids::ProviderName;
use stead_server::provider::docker::{self, ImageError, Images, Root, Unreadable};

#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    #[error("`{0}` is not on this machine")]
    NoProgram(String),
    #[error("`{}` needs libraries of this machine, so it is of no use by itself", .0.display())]
    NotStatic(PathBuf),
    #[error("`{program}` failed: {said}")]
    Failed { program: &'static str, said: String },
    #[error("can't read `{}`", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Tree(#[from] Unreadable),
    #[error("can't write the archive")]
    Archive(#[source] io::Error),
    #[error("no provider `{0}` of kind `docker` is configured")]
    NoEngine(ProviderName),
    #[error("several providers have an engine: {0}")]
    SeveralEngines(String),
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl BuildError {
    pub(crate) fn advice(&self) -> Option<String> {
        match self {
            Self::NoProgram(name) if name == "busybox" => {
                Some("`apt-get install busybox-static` gets it; or use `--from-host`".to_owned())
            }
            Self::NotStatic(_) => Some("`apt-get install busybox-static` gets one; or use `--from-host`".to_owned()),
            Self::NoProgram(name) => Some(format!("install it, or leave out `{name}`")),
            Self::SeveralEngines(_) => Some("say which with `--provider NAME`".to_owned()),
            Self::NoEngine(_)
            | Self::Failed { .. }
            | Self::Unreadable { .. }
            | Self::Tree(_)
            | Self::Archive(_)
            | Self::Image(_) => None,
        }
    }
}

impl BuildError {
    fn is_broken_pipe(&self) -> bool {
        let (Self::Archive(source) | Self::Tree(Unreadable { source, .. })) = self else { return false };
        source.kind() == io::ErrorKind::BrokenPipe
    }
}

pub(crate) fn run(image: &Image) -> Result<u8, Failure> {
    let ImageDeed::Build(asked) = &image.deed;
    build(asked)
}

fn build(asked: &BuildImage) -> Result<u8, Failure> {
    let (config, _) = settings::load(&asked.place)?;
    let (provider, sockets) = engine(&config.engines, asked.provider.as_ref())?;
    let images = Images::new(provider, sockets);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    let made = runtime.block_on(async {
        if asked.if_missing && images.has(&asked.name).await.map_err(BuildError::from)? {
            return Ok(None);
        }
        let source = Source::prepare(asked)?;
        let (archive, maker) = docker::archive(move |out| {
            let mut out = Counted::new(out);
            source.write(&mut out)?;
            out.end()
        });
        let made = images.import(&asked.name, archive).await;
        match maker.await {
            // The engine wanted no more of it, and says why.
            Ok(Err(error)) if made.is_err() && error.is_broken_pipe() => {}
            // Else what the maker says is nearer to the cause than what the engine makes of half an archive.
            Ok(done) => done?,
            Err(error) => return Err(BuildError::Archive(io::Error::other(error))),
        }
        Ok::<_, BuildError>(Some(made?))
    })?;
    print::out(&if asked.form.json {
        let id = made.as_deref();
        format!("{:#}\n", json!({ "name": asked.name, "id": id, "made": made.is_some() }))
    } else {
        match &made {
            Some(id) => format!("made `{}` ({id})\n", asked.name),
            None => format!("`{}` is there already\n", asked.name),
        }
    })?;
    Ok(0)
}

type Engines = std::collections::BTreeMap<ProviderName, Vec<PathBuf>>;

fn engine(engines: &Engines, asked: Option<&ProviderName>) -> Result<(ProviderName, Vec<PathBuf>), BuildError> {
    if let Some(name) = asked {
        let sockets = engines.get(name).ok_or_else(|| BuildError::NoEngine(name.clone()))?;
        return Ok((name.clone(), sockets.clone()));
    }
    let names: Vec<_> = engines.keys().map(|name| format!("`{name}`")).collect();
    let mut all = engines.iter();
    match (all.next(), all.next()) {
        (Some((name, sockets)), None) => Ok((name.clone(), sockets.clone())),
        _ => Err(BuildError::SeveralEngines(names.join(", "))),
    }
}

/// What an image is made of.
enum Source {
    Busybox,
    Host { more: Vec<String> },
    Root(Root),
    Debian(debian::Scratch),
}

impl Source {
    /// What takes long is done before the engine is asked for anything: it does not wait for ever.
    fn prepare(asked: &BuildImage) -> Result<Self, BuildError> {
        Ok(if asked.debootstrap {
            Self::Debian(debian::install(&asked.suite, asked.mirror.as_deref())?)
        } else if let Some(root) = &asked.root {
            Self::Root(Root::new(root))
        } else if asked.from_host {
            Self::Host { more: asked.program.clone() }
        } else {
            Self::Busybox
        })
    }

    fn write(&self, out: impl io::Write) -> Result<(), BuildError> {
        match self {
            Self::Busybox => skeleton::busybox(out),
            Self::Host { more } => host::write(more, out),
            Self::Root(root) => Ok(root.write(out)?),
            Self::Debian(tree) => Ok(tree.root().write(out)?),
        }
    }
}

/// What a program prints.
fn output(program: &'static str, command: &mut std::process::Command) -> Result<String, BuildError> {
    let output = command.output().map_err(|_| BuildError::NoProgram(program.to_owned()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(BuildError::Failed { program, said });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where a program is on this machine.
fn which(name: &str) -> Option<PathBuf> {
    const DIRECTORIES: [&str; 6] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];
    DIRECTORIES.iter().map(|dir| PathBuf::from(dir).join(name)).find(|path| path.is_file())
}
