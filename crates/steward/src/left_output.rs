//! Output that was in pipes when keeper and steward died: the heir has moved it to files beside the FIFOs, or it is still in
//! a FIFO because a process outlived both. The next steward appends it to the stream of its command in the journal; so does
//! a server that reads the journal of a dead instance.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use stead_model::frame::Stream;
use stead_term::fifo::{self, Moved};

/// Bytes moved at once.
const PIECE: u64 = 1 << 20;

fn letter(stream: Stream) -> char {
    match stream {
        Stream::Stdout => 'o',
        Stream::Stderr => 'e',
    }
}

/// The FIFO of one stream, in the run directory of its shell.
pub(crate) fn fifo_path(run: &Path, pair: u64, stream: Stream) -> PathBuf {
    run.join(format!("{}.{pair}", letter(stream)))
}

/// Appends everything to the stream, which is so long already; gives its length afterwards.
pub(crate) fn append(run: &Path, pair: u64, stream: Stream, target: &File, length: u64) -> io::Result<u64> {
    let length = append_file(run, pair, stream, target, length)?;
    Ok(append_fifo(&fifo_path(run, pair, stream), target, length))
}

/// Appends what the heir left. Whoever is killed half-way through has its successor go on from there: the name of the file
/// says at which offset its first byte belongs.
fn append_file(run: &Path, pair: u64, stream: Stream, mut target: &File, length: u64) -> io::Result<u64> {
    let name = format!("left-{}.{pair}", letter(stream));
    let names = fs::read_dir(run).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let Some(found) = names
        .filter_map(|found| found.into_string().ok())
        .find(|found| *found == name || found.starts_with(&format!("{name}.at.")))
    else {
        return Ok(length);
    };
    let base = found.strip_prefix(&format!("{name}.at.")).and_then(|base| base.parse().ok()).unwrap_or(length);
    let path = run.join(format!("{name}.at.{base}"));
    fs::rename(run.join(found), &path)?;
    let mut source = File::open(&path)?;
    source.seek(SeekFrom::Start(length.saturating_sub(base)))?;
    target.seek(SeekFrom::Start(length))?;
    let length = length + io::copy(&mut source, &mut target)?;
    fs::remove_file(&path)?;
    Ok(length)
}

/// What can't be moved from one FIFO must not keep the others from it.
fn append_fifo(path: &Path, target: &File, mut length: u64) -> u64 {
    let Ok(fifo) = fifo::open_reader(path) else { return length };
    loop {
        match fifo::splice(&fifo, target, length, PIECE) {
            Ok(Moved::Bytes(bytes)) => length += bytes,
            Ok(Moved::Empty | Moved::Closed) => return length,
            Ok(Moved::NoSpace) => {
                note!("steward: `{}` can't be emptied: the disk is full", path.display());
                return length;
            }
            Err(error) => {
                note!("steward: `{}` can't be emptied: {error}", path.display());
                return length;
            }
        }
    }
}
