//! A tar stream into a directory, all of it or nothing.
//!
//! It is unpacked beside the tree, where nobody in the sandbox sees it, and moved in when it was read to its end and is
//! known to fit. What can't be inside (an absolute path, `..`, a link that leads out, a device, a pipe) is refused with
//! the whole archive. What a server left that died meanwhile is removed when the next one starts or unpacks there.

mod merge;
mod notes;
mod replace;
mod sparse;
mod stage;
mod stream;
mod sweep;

use super::Files;
use super::failure::Failure;
use super::ground::{Ground, Last, Way};
use super::spot::is_dir;
use crate::error::Error;
use bytes::Bytes;
use merge::{check, merge};
pub(crate) use replace::Replacement;
use rustix::fs::Mode;
use rustix::io::Errno;
pub(super) use stage::STAGE_PREFIX;
use stage::Stage;
use stream::{Body, Stream};
pub(crate) use sweep::sweep_stages;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How many pieces wait for a slow disk; then the sender waits, too.
const AHEAD: usize = 4;

/// What an archive may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub bytes: u64,
    pub entries: u64,
}

impl Bounds {
    /// For an archive that this server wrote itself, of a tree that it had.
    pub(crate) const NONE: Self = Self { bytes: u64::MAX, entries: u64::MAX };
}

impl Default for Bounds {
    /// More than a workspace has, less than a disk.
    fn default() -> Self {
        Self { bytes: 16 * 1024 * 1024 * 1024, entries: 1_000_000 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unpacked {
    pub files: u64,
    pub dirs: u64,
    pub links: u64,
    pub bytes: u64,
}

/// An archive that is being unpacked. Dropped, it never was.
#[derive(Debug)]
pub struct Unpacking {
    pieces: mpsc::Sender<Body>,
    work: JoinHandle<Result<Unpacked, Error>>,
    files: Files,
}

impl Files {
    pub async fn unpack(&self, path: impl AsRef<[u8]>, bounds: Bounds) -> Result<Unpacking, Error> {
        let stop = self.of.as_ref().map_or_else(CancellationToken::new, |(inner, ..)| inner.core.stop.clone());
        let stage = self.at(path.as_ref(), move |ground, path| {
            let spot = ground.find(path, Last::Follow, Way::AsFarAsItGoes)?;
            if spot.stat()?.is_some_and(|stat| !is_dir(&stat)) {
                return Err(Failure::Path("it is not a directory"));
            }
            Stage::new(&spot.root, stop)
        });
        let stage = stage.await?;
        let (pieces, received) = mpsc::channel(AHEAD);
        let (ground, path) = (std::sync::Arc::clone(&self.ground), path.as_ref().to_vec());
        let work = self.tasks.spawn_blocking(move || {
            unpack(&ground, &path, &stage, received, bounds).map_err(|failure| failure.at(&path))
        });
        Ok(Unpacking { pieces, work, files: self.clone() })
    }
}

impl Unpacking {
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Error> {
        if self.pieces.send(Body::Piece(bytes)).await.is_ok() {
            return Ok(());
        }
        let refused = (&mut self.work).await.unwrap_or_else(|error| Err(Error::Io(error.to_string())));
        Err(refused.err().unwrap_or_else(|| Error::Io("the archive was not read to its end".to_owned())))
    }

    /// All was sent: moves it to where it belongs.
    pub async fn finish(self) -> Result<Unpacked, Error> {
        let _ = self.pieces.send(Body::End).await;
        let unpacked = self.work.await.unwrap_or_else(|error| Err(Error::Io(error.to_string())))?;
        self.files.deliver().await?;
        Ok(unpacked)
    }
}

fn unpack(
    ground: &Ground,
    path: &[u8],
    stage: &Stage,
    received: mpsc::Receiver<Body>,
    bounds: Bounds,
) -> Result<Unpacked, Failure> {
    let mut stream = Stream::new(received);
    let unpacked = stage.fill(&mut stream, bounds, |dir, target| {
        ground.leads_inside(&super::entry::below(&Ground::absolute(path), dir), target)
    })?;
    stream.pass_the_rest()?;
    let there = ground.find(path, Last::Follow, Way::AsFarAsItGoes)?;
    if there.stat()?.is_some() {
        check(&stage.dir, &there.open_dir()?, 0)?;
    }
    let spot = ground.find(path, Last::Follow, Way::Make)?;
    if let Some(name) = &spot.name {
        match rustix::fs::mkdirat(&spot.dir, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    merge(&stage.dir, &spot.open_dir()?, 0)?;
    Ok(unpacked)
}
