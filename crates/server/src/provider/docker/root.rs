//! A root directory of this machine, as what containers are made of. The Engine API knows images alone, so the tree is
//! given to the engine as one; its tag says what the tree was, and a tree that has changed is given again.

use super::super::{Effect, ProviderError, Trouble};
use super::Docker;
use super::image;
use crate::files::Exactly;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

const WHAT: &str = "make an image of a root directory";

/// A tree with a system in it. What is mounted below it is not a part of it.
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
}

/// How a tree could not be read.
#[derive(Debug, thiserror::Error)]
#[error("can't read `{}`: {source}", path.display())]
pub struct Unreadable {
    pub path: PathBuf,
    pub source: io::Error,
}

impl Root {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the image of it is called: by where it is, and by what it was when this was asked.
    fn image(&self) -> Result<(String, String), Unreadable> {
        let place = Sha256::digest(self.path.as_os_str().as_bytes());
        let mut sum = Sha256::new();
        self.walk(&mut |path, meta| {
            // Whoever changes a file changes its time, or the time of that change.
            let numbers = [
                u64::from(meta.mode()),
                u64::from(meta.uid()),
                u64::from(meta.gid()),
                meta.len(),
                meta.ino(),
                meta.mtime().cast_unsigned(),
                meta.mtime_nsec().cast_unsigned(),
                meta.ctime().cast_unsigned(),
                meta.ctime_nsec().cast_unsigned(),
            ];
            sum.update((path.as_os_str().len() as u64).to_le_bytes());
            sum.update(path.as_os_str().as_bytes());
            for number in numbers {
                sum.update(number.to_le_bytes());
            }
            Ok(())
        })?;
        Ok((format!("stead/root-{}", hex(&place)), hex(&sum.finalize())))
    }

    /// Writes it as a tar archive. Devices are the engine's to make, and a socket is nothing without who listens. What
    /// belongs to whoever runs this is root's inside, where that isn't root: it is the best an ordinary user can make.
    pub fn write(&self, out: impl Write) -> Result<(), Unreadable> {
        let mut builder = Builder::new(out);
        let mut linked: HashMap<u64, PathBuf> = HashMap::new();
        self.walk(&mut |path, meta| {
            let mut header = header(meta);
            let kind = meta.file_type();
            if kind.is_dir() {
                header.set_entry_type(EntryType::Directory);
                builder.append_data(&mut header, path.join(""), io::empty())
            } else if kind.is_symlink() {
                header.set_entry_type(EntryType::Symlink);
                builder.append_link(&mut header, path, fs::read_link(self.path.join(path))?)
            } else if kind.is_fifo() {
                header.set_entry_type(EntryType::Fifo);
                builder.append_data(&mut header, path, io::empty())
            } else if !kind.is_file() {
                Ok(())
            } else if let Some(first) = linked.get(&meta.ino()) {
                header.set_entry_type(EntryType::Link);
                builder.append_link(&mut header, path, first)
            } else {
                if meta.nlink() > 1 {
                    linked.insert(meta.ino(), path.to_owned());
                }
                header.set_entry_type(EntryType::Regular);
                header.set_size(meta.len());
                let file = Exactly::new(File::open(self.path.join(path))?, meta.len());
                builder.append_data(&mut header, path, file)
            }
        })?;
        let done = builder.into_inner().and_then(|mut out| out.flush());
        done.map_err(|source| Unreadable { path: self.path.clone(), source })
    }

    /// Everything below it, in one order, by its path from there; a directory before what is in it.
    fn walk(&self, visit: &mut dyn FnMut(&Path, &Metadata) -> io::Result<()>) -> Result<(), Unreadable> {
        let unreadable = |path: &Path| {
            let path = self.path.join(path);
            move |source| Unreadable { path, source }
        };
        // A link that leads to it is as good as it.
        let device = fs::metadata(&self.path).map_err(unreadable(Path::new("")))?.dev();
        let mut ahead = vec![PathBuf::new()];
        while let Some(dir) = ahead.pop() {
            let listed = fs::read_dir(self.path.join(&dir)).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let mut names: Vec<_> =
                listed.map_err(unreadable(&dir))?.into_iter().map(|entry| entry.file_name()).collect();
            names.sort_unstable();
            let mut below = Vec::new();
            for name in names {
                let path = dir.join(name);
                let meta = fs::symlink_metadata(self.path.join(&path)).map_err(unreadable(&path))?;
                visit(&path, &meta).map_err(unreadable(&path))?;
                if meta.is_dir() && meta.dev() == device {
                    below.push(path);
                }
            }
            ahead.extend(below.into_iter().rev());
        }
        Ok(())
    }
}

fn header(meta: &Metadata) -> Header {
    let (us, ours) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut header = Header::new_gnu();
    header.set_mode(meta.mode() & 0o7777);
    header.set_mtime(u64::try_from(meta.mtime()).unwrap_or(0));
    header.set_uid(if meta.uid() == us { 0 } else { u64::from(meta.uid()) });
    header.set_gid(if meta.gid() == ours { 0 } else { u64::from(meta.gid()) });
    header.set_size(0);
    header
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(8).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

impl Docker {
    /// The image of a root directory as it is now; given to the engine if it has none of that tree.
    pub(super) async fn image_of(&self, root: &Root) -> Result<String, ProviderError> {
        let asked = root.clone();
        let (repository, tag) = self.reading(move || asked.image()).await?;
        let name = format!("{repository}:{tag}");
        // Whoever comes meanwhile waits for the same image instead of making it twice.
        let _turn = self.imports.lock().await;
        if image::has(&self.engine, &name).await? {
            return Ok(name);
        }
        let asked = root.clone();
        let (archive, maker) = image::archive(move |out| asked.write(out));
        let made = image::import(&self.engine, &name, archive).await;
        match maker.await.map_err(io::Error::other) {
            // The engine wanted no more of it, and says why.
            Ok(Err(error)) if error.source.kind() == io::ErrorKind::BrokenPipe => {}
            // Else what stopped the archive is nearer to the cause than what the engine makes of half of it.
            written => self.read(written)?,
        }
        made.map_err(|error| ProviderError { effect: Effect::None, ..error })?;
        image::remove_others(&self.engine, &repository, &tag).await;
        Ok(name)
    }

    async fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Unreadable> + Send + 'static,
    ) -> Result<T, ProviderError> {
        self.read(tokio::task::spawn_blocking(work).await.map_err(io::Error::other))
    }

    fn read<T>(&self, done: io::Result<Result<T, Unreadable>>) -> Result<T, ProviderError> {
        let failed = |trouble, message: String| self.engine.error(WHAT, trouble, Effect::None, message);
        match done {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) if error.source.kind() == io::ErrorKind::NotFound => {
                Err(failed(Trouble::NotFound, format!("{error}; `root` has to name a directory with a system in it")))
            }
            Ok(Err(error)) => Err(failed(super::super::machine::trouble_of(&error.source), error.to_string())),
            Err(error) => Err(failed(Trouble::Broken, error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("usr/bin")).unwrap();
        fs::write(dir.path().join("usr/bin/a"), "program").unwrap();
        fs::set_permissions(dir.path().join("usr/bin/a"), fs::Permissions::from_mode(0o4755)).unwrap();
        fs::hard_link(dir.path().join("usr/bin/a"), dir.path().join("usr/bin/b")).unwrap();
        symlink("usr/bin", dir.path().join("bin")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("usr/socket")).unwrap();
        let root = Root::new(dir.path());
        (dir, root)
    }

    #[test]
    fn a_root_directory_is_written_with_its_links_and_modes() {
        let (_dir, root) = tree();
        let mut bytes = Vec::new();
        root.write(&mut bytes).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let all: BTreeMap<_, _> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let target = entry.link_name().unwrap().map(|path| path.display().to_string());
                let header = entry.header();
                let told = (header.entry_type(), header.mode().unwrap(), header.uid().unwrap(), target);
                (entry.path().unwrap().display().to_string(), told)
            })
            .collect();
        let linked = Some("usr/bin/a".to_owned());
        assert_eq!(all.keys().collect::<Vec<_>>(), ["bin", "usr/", "usr/bin/", "usr/bin/a", "usr/bin/b"]);
        assert_eq!(all["usr/bin/a"], (EntryType::Regular, 0o4755, 0, None));
        assert_eq!(all["usr/bin/b"], (EntryType::Link, 0o4755, 0, linked));
        assert_eq!((all["bin"].0, all["bin"].3.as_deref()), (EntryType::Symlink, Some("usr/bin")));
    }

    #[test]
    fn a_tree_has_one_name_until_it_changes() {
        let (dir, root) = tree();
        let (repository, tag) = root.image().unwrap();
        assert_eq!(root.image().unwrap(), (repository.clone(), tag.clone()));
        fs::set_permissions(dir.path().join("usr/bin/a"), fs::Permissions::from_mode(0o755)).unwrap();
        let (same, other) = root.image().unwrap();
        assert_eq!(same, repository);
        assert_ne!(other, tag);
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = Root::new(dir.path().join("nowhere")).image().unwrap_err();
        assert!(error.to_string().contains("nowhere"), "{error}");
    }
}
