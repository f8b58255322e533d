//! Reading a file, as a stream: no file is held in memory whole, unless the caller asks for that.

use super::Files;
use super::entry::{Entry, etag, modified_at, size};
use super::ground::{Ground, Last, Way};
use crate::error::Error;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use stead_model::clock::Timestamp;
use tokio::io::{AsyncReadExt, Take};
use tokio_util::io::ReaderStream;

/// As much as is read at once.
const PIECE: usize = 64 * 1024;

/// A file that is open: whatever becomes of its name, this is read.
#[derive(Debug)]
pub struct Reading {
    file: File,
    pub entry: Entry,
    pub etag: String,
    pub modified_at: Timestamp,
    pub size: u64,
}

impl Files {
    /// Opens a plain file; a link is followed.
    pub async fn open(&self, path: impl AsRef<[u8]>) -> Result<Reading, Error> {
        self.at(path.as_ref(), |ground, path| {
            let (file, stat) = ground.find(path, Last::Follow, Way::MustBe)?.open_file()?;
            let entry = Entry::new(Ground::absolute(path), &stat, None);
            let (etag, modified_at, size) = (etag(&stat), modified_at(&stat), size(&stat));
            Ok(Reading { file, entry, etag, modified_at, size })
        })
        .await
    }

    /// All of a small file.
    pub async fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        self.at(path.as_ref(), |ground, path| {
            let (mut file, _) = ground.find(path, Last::Follow, Way::MustBe)?.open_file()?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        })
        .await
    }
}

impl Reading {
    /// A part of it, in pieces. If the file is cut short meanwhile the stream ends before its time, so whoever counts
    /// sees it.
    pub fn stream(mut self, range: Range<u64>) -> std::io::Result<ReaderStream<Take<tokio::fs::File>>> {
        self.file.seek(SeekFrom::Start(range.start))?;
        let file = tokio::fs::File::from_std(self.file);
        Ok(ReaderStream::with_capacity(file.take(range.end.saturating_sub(range.start)), PIECE))
    }
}
