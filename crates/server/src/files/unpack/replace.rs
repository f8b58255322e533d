//! A directory of the server's own, replaced by what an archive holds: built beside it, then exchanged with it in one
//! step of the kernel's. Links are what they are: nothing here goes through one, and neither does who reads the tree.

use super::super::change::remove_below;
use super::super::failure::Failure;
use super::super::spot::beneath;
use super::stage::Stage;
use super::stream::Stream;
use super::{Bounds, Unpacked};
use crate::error::Error;
use crate::stoppable::Stoppable;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tokio_util::sync::CancellationToken;

/// A tree that was built, and is nobody's yet. Dropped, it never was; after [`Self::take_place`] what is dropped is the
/// tree that was there before.
pub(crate) struct Replacement {
    stage: Stage,
    pub(crate) unpacked: Unpacked,
}

impl Replacement {
    /// Builds it in a directory, which is on the same file system as what it is to replace. The archive is one of our own:
    /// whatever was packed can be unpacked.
    pub(crate) fn build(above: &Path, archive: impl Read + 'static, stop: CancellationToken) -> Result<Self, Error> {
        let build = || {
            let stage = Stage::within(above, stop.clone())?;
            let mut stream = Stream::Stored(Box::new(Stoppable::new(archive, stop)));
            let unpacked = stage.fill(&mut stream, Bounds::NONE, |_, _| true)?;
            stream.pass_the_rest()?;
            Ok(Self { stage, unpacked })
        };
        build().map_err(|failure: Failure| failure.at(above.as_os_str().as_bytes()))
    }

    /// What both trees have: the files of a directory at the top of the present one, by second names, or a file there.
    pub(crate) fn keep(&self, present: &Path, name: &str) -> Result<(), Error> {
        self.try_keep(present, name).map_err(|failure| failure.at(name.as_bytes()))
    }

    fn try_keep(&self, present: &Path, name: &str) -> Result<(), Failure> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let present = rustix::fs::open(present, flags, Mode::empty())?;
        let stat = match rustix::fs::statat(&present, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            stat => stat?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(rustix::fs::linkat(&present, name, &self.stage.dir, name, AtFlags::empty())?),
            FileType::Directory => {
                let old = beneath(&present, OsStr::new(name), flags)?;
                rustix::fs::mkdirat(&self.stage.dir, name, Mode::from_raw_mode(stat.st_mode & 0o777))?;
                let new = beneath(&self.stage.dir, OsStr::new(name), flags)?;
                for entry in Dir::read_from(&old)? {
                    let entry = entry?;
                    if entry.file_type() == FileType::RegularFile {
                        rustix::fs::linkat(&old, entry.file_name(), &new, entry.file_name(), AtFlags::empty())?;
                    }
                }
                Ok(())
            }
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Ok(()),
        }
    }

    /// A directory that has to be there, empty if the archive had none.
    pub(crate) fn ensure(&self, name: &str, mode: u32) -> Result<(), Error> {
        match rustix::fs::mkdirat(&self.stage.dir, name, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(Failure::from(error).at(name.as_bytes())),
        }
    }

    /// What came in the archive under this name at its top isn't wanted.
    pub(crate) fn without(&self, name: &str) -> Result<(), Error> {
        match remove_below(&self.stage.dir, OsStr::new(name)) {
            Err(failure) if !failure.is(Errno::NOENT) => Err(failure.at(name.as_bytes())),
            _ => Ok(()),
        }
    }

    /// Becomes what is called so beside it, which is removed then.
    pub(crate) fn take_place(self, name: &str, mode: u32) -> Result<Unpacked, Error> {
        let _turn = super::super::write::turn();
        let taken = rustix::fs::fchmod(&self.stage.dir, Mode::from_raw_mode(mode)).map_err(Failure::from);
        taken.and_then(|()| self.stage.exchange(OsStr::new(name))).map_err(|failure| failure.at(name.as_bytes()))?;
        Ok(self.unpacked)
    }
}
