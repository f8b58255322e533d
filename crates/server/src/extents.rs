//! Which stretches of a file hold data. The others are holes: they read as zeros and take no room.

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// The next stretch of data in a file of `size` bytes, from `place` on: where it begins and ends. Moves the descriptor's
/// offset.
pub(crate) fn next_data(file: &File, place: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    if place >= size {
        return Ok(None);
    }
    let from = match rustix::fs::seek(file, SeekFrom::Data(place)) {
        Ok(from) => from,
        // Nothing but a hole from here on.
        Err(Errno::NXIO) => return Ok(None),
        // A file system that knows no holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((place, size))),
        Err(errno) => return Err(errno.into()),
    };
    let to = match rustix::fs::seek(file, SeekFrom::Hole(from)) {
        Ok(to) => to.min(size),
        Err(Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    Ok((from < to).then_some((from, to)))
}
