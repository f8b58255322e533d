//! Where things lie on disk.
//!
//! ```text
//! DIR/                 0700, ours alone
//!   lock               held (flock) as long as a keeper or steward lives
//!   sock               where clients connect
//!   epoch              counts starts of the steward
//!   log                what keeper and steward had to say
//!   spec, enclosed     if it is enclosed: in what, and the process that holds the enclosure
//!   run/K/             one shell's FIFOs and scripts; gone with the shell
//!   journal/K/         one shell's journal: NNNNNN.log, N.out, N.err, V.state
//! ```

use rustix::fs::{Mode, OFlags};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct Dir {
    root: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum DirError {
    #[error("`{0}` is open to other users; make it private (chmod 700) or choose another directory")]
    NotPrivate(PathBuf),
    #[error("can't use `{path}`")]
    Io { path: PathBuf, source: io::Error },
}

impl Dir {
    /// Makes the directory if it isn't there; refuses one that others can look into.
    pub fn create(root: &Path) -> Result<Self, DirError> {
        let failed = |source| DirError::Io { path: root.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(failed)?;
        let root = root.canonicalize().map_err(failed)?;
        let meta = root.metadata().map_err(failed)?;
        if meta.uid() != rustix::process::geteuid().as_raw() || meta.permissions().mode() & 0o077 != 0 {
            return Err(DirError::NotPrivate(root));
        }
        for sub in ["run", "journal"] {
            let path = root.join(sub);
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .map_err(|source| DirError::Io { path, source })?;
        }
        Ok(Self { root })
    }

    /// An existing directory, for a client.
    pub fn open(root: &Path) -> Result<Self, DirError> {
        let root = root.canonicalize().map_err(|source| DirError::Io { path: root.to_owned(), source })?;
        Ok(Self { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// What is around an enclosed steward.
    pub fn spec(&self) -> PathBuf {
        self.root.join("spec")
    }

    /// The first process of an enclosure: `PID STARTTIME`.
    pub fn enclosed(&self) -> PathBuf {
        self.root.join("enclosed")
    }

    pub fn run(&self, key: u32) -> PathBuf {
        self.root.join("run").join(key.to_string())
    }

    pub fn journal(&self, key: u32) -> PathBuf {
        self.root.join("journal").join(key.to_string())
    }

    /// The shells that have a journal.
    pub fn journals(&self) -> io::Result<Vec<u32>> {
        let mut keys = Vec::new();
        for entry in fs::read_dir(self.root.join("journal"))? {
            if let Ok(key) = entry?.file_name().to_string_lossy().parse() {
                keys.push(key);
            }
        }
        keys.sort_unstable();
        Ok(keys)
    }

    /// Run directories that no living shell has.
    pub fn sweep_runs(&self, keep: impl Fn(u32) -> bool) -> io::Result<()> {
        for entry in fs::read_dir(self.root.join("run"))? {
            let entry = entry?;
            let kept = entry.file_name().to_string_lossy().parse().is_ok_and(&keep);
            if !kept {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    pub fn log_file(&self) -> io::Result<File> {
        // What keeper and steward say is a few lines per incident; a log that grew anyway begins anew.
        let path = self.log();
        let long = path.symlink_metadata().is_ok_and(|meta| meta.len() > 1 << 20);
        let mut options = File::options();
        options.create(true).mode(0o600).custom_flags(NOT_ELSEWHERE);
        if long {
            options.write(true).truncate(true)
        } else {
            options.append(true)
        };
        options.open(path)
    }

    /// Counts this start, for people. A full disk must not keep a steward from starting, so it may then count one
    /// start twice.
    pub fn next_epoch(&self) -> u64 {
        let path = self.root.join("epoch");
        let last = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
        let next = last + 1;
        if let Err(error) = write_atomically(&path, format!("{next}\n").as_bytes()) {
            note!("steward: can't count this start: {error}");
        }
        next
    }

    pub fn bind(&self) -> io::Result<UnixListener> {
        let path = self.root.join("sock");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = with_short_path(&self.root, |path| UnixListener::bind(path))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    pub fn connect(&self) -> io::Result<UnixStream> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = rustix::fs::open(self.root.join("sock"), flags, Mode::empty())?;
        let socket = File::from(socket);
        if !socket.metadata()?.file_type().is_socket() {
            return Err(io::Error::other("`sock` is not a socket"));
        }
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&socket));
        if Path::new(&path).exists() {
            return UnixStream::connect(path);
        }
        with_short_path(&self.root, |path| UnixStream::connect(path))
    }
}

/// Whoever is enclosed in a directory of ours may put there what it likes: a link must not lead us elsewhere, nor a FIFO
/// make us wait.
pub(crate) const NOT_ELSEWHERE: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

/// The kernel takes socket paths of up to 107 bytes; through a descriptor any directory is a short one.
fn with_short_path<T>(root: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    let path = root.join("sock");
    if path.as_os_str().len() < 100 {
        return make(&path);
    }
    let dir = File::open(root)?;
    make(Path::new(&format!("/proc/self/fd/{}/sock", std::os::fd::AsRawFd::as_raw_fd(&dir))))
}

/// Old or new, never half.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
    io::Write::write_all(&mut file, bytes)?;
    fs::rename(&temporary, path)
}
