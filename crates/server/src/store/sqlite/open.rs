//! Opening the file: whether it is ours and sound is known before anything in it is changed.
//!
//! ```text
//! as it was left? (`whole`) ─► make (0600, if there is none) ─► ours? ─► WAL ─► as its migrations say? ─► newer migrations ─► as ours say? ─► sound?
//! ```

use super::checkpoint::Ground;
use super::sums::Phase;
use super::{SqliteStore, Writer, Writers, code, schema, whole};
use crate::store::{Result, StoreError};
use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;
use sqlx::SqliteConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::Mutex;

/// "stea", in the header of the file: what tells it from databases of others.
const APPLICATION_ID: i64 = 0x7374_6561;

/// Before it, two connections can corrupt a WAL database when one resets the log while the other commits.
const OLDEST_SQLITE: (u32, u32, u32) = (3, 51, 3);

/// How long a write waits for one of another process.
const BUSY: Duration = Duration::from_secs(30);

const NOT_A_DATABASE: &str = "it is not an SQLite database; name another file, or move it away";

/// Reads are short; more than this only contend for the page cache.
const READERS: u32 = 4;

impl SqliteStore {
    /// Opens the database, making it if there is none. Anything that is not exactly what this version makes is
    /// [`StoreError::Schema`], and is left as it was.
    pub async fn open(path: &Path) -> Result<Self> {
        let unusable = |what: String| StoreError::Schema { path: path.display().to_string(), what };
        let mut found = whole::look(path).map_err(|error| unusable(format!("it can't be read ({error})")))?;
        for odd in &found.odd {
            tracing::warn!(path = %path.display(), "{odd}");
        }
        if !found.damage.is_empty() {
            let what = found.damage.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            return Err(StoreError::Damaged { path: path.display().to_string(), what });
        }
        make_file(path).map_err(|errno| unusable(no_file(path, errno)))?;
        if is_too_short(path) {
            return Err(unusable(NOT_A_DATABASE.to_owned()));
        }

        let options = SqliteConnectOptions::new()
            .filename(path)
            .foreign_keys(true)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY)
            // By `checkpoint` alone, which notes the sums of what it copies.
            .pragma("wal_autocheckpoint", "0");
        let failed = |error| explain(path, error);
        let mut synced = Writer::open(options.clone()).await.map_err(failed)?;
        let writer = &mut synced.conn;
        check_library(writer).await.map_err(failed)?.map_err(unusable)?;
        check_owner(writer).await.map_err(failed)?.map_err(unusable)?;
        tighten(path).map_err(|errno| unusable(format!("its mode can't be made 0600 ({errno}): check its owner")))?;
        use_wal(writer).await.map_err(failed)?.map_err(unusable)?;
        schema::bring_up_to_date(writer, APPLICATION_ID).await.map_err(failed)?.map_err(unusable)?;
        if found.sums.is_none() {
            check_all(writer).await.map_err(failed)?.map_err(|what| damaged(path, what))?;
        }

        // Not opened read-only: such a connection can't recover a log that another process left behind.
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .idle_timeout(None)
            .max_lifetime(None)
            // A file does not hang up; asking each time would be a trip to the connection's thread for nothing.
            .test_before_acquire(false)
            .connect_with(options.clone().pragma("query_only", "ON"))
            .await
            .map_err(failed)?;
        let behind = Writer::open(options.synchronous(SqliteSynchronous::Normal)).await.map_err(failed)?;
        // Not before SQLite has it: see `make_file`.
        let file = match found.file {
            Some(file) => file,
            None => File::open(path).map_err(|error| unusable(format!("it can't be read ({error})")))?,
        };
        found.index.take().map(stay_open);
        let ground = Ground { path: path.to_owned(), file: stay_open(file) };
        let mut writers = Writers { synced, behind, ground, since: 0 };
        // On a full disk it isn't made, and what is there can still be read: the log has all of it.
        if let Err(error) = writers.checkpoint(Phase::Open).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the log of the database could not be copied");
        }
        Ok(Self { writers: Mutex::new(Some(writers)), readers })
    }
}

/// Keeps a file open as long as the process lives. The kernel drops all locks that a process has on a file when it closes any
/// descriptor of it. Another process could then cut the index of the log under a handle of ours that has it mapped, which
/// ends this process with SIGBUS.
fn stay_open(file: File) -> &'static File {
    Box::leak(Box::new(file))
}

/// Makes an empty file that only we can read, unless there is one. No descriptor is opened on it: closing one would
/// drop the locks that another handle in this process holds on the database.
fn make_file(path: &Path) -> Result<(), Errno> {
    match rustix::fs::mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// SQLite would take a file of less than its smallest page for an empty one, and write over it.
fn is_too_short(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && (1..512).contains(&metadata.len()))
}

fn no_file(path: &Path, errno: Errno) -> String {
    let dir = path.parent().unwrap_or(path).display();
    match errno {
        Errno::NOENT => format!("the directory `{dir}` does not exist; make it first"),
        Errno::ROFS | Errno::ACCESS | Errno::PERM => {
            format!("it does not exist and can't be made, because `{dir}` can't be written ({errno})")
        }
        _ => format!("it can't be made in `{dir}` ({errno})"),
    }
}

/// The states of shells are in it, with whatever secrets their variables hold.
fn tighten(path: &Path) -> Result<(), std::io::Error> {
    for suffix in ["", "-wal", "-shm", "-sums"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let file = PathBuf::from(name);
        match std::fs::metadata(&file) {
            Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => {
                std::fs::set_permissions(&file, Permissions::from_mode(0o600))?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

type Checked = sqlx::Result<Result<(), String>>;

async fn check_library(conn: &mut SqliteConnection) -> Checked {
    let version: String = sqlx::query_scalar("SELECT sqlite_version()").fetch_one(conn).await?;
    if is_recent(&version) {
        return Ok(Ok(()));
    }
    let (major, minor, patch) = OLDEST_SQLITE;
    Ok(Err(format!(
        "this program was linked with SQLite {version}, which can corrupt it; build it with {major}.{minor}.{patch} or newer"
    )))
}

fn is_recent(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let mut part = || parts.next().unwrap_or(0);
    (part(), part(), part()) >= OLDEST_SQLITE
}

/// Ours, or empty.
async fn check_owner(conn: &mut SqliteConnection) -> Checked {
    let id: i64 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut *conn).await?;
    if id == APPLICATION_ID {
        return Ok(Ok(()));
    }
    let table: Option<String> =
        sqlx::query_scalar("SELECT name FROM sqlite_master LIMIT 1").fetch_optional(conn).await?;
    Ok(match table {
        None if id == 0 => Ok(()),
        None => Err(format!("it is a database of another program (application id {id:#x}); name another file")),
        Some(table) => Err(format!(
            "it is a database of another program (application id {id:#x}, with `{table}`); name another file"
        )),
    })
}

async fn use_wal(conn: &mut SqliteConnection) -> Checked {
    let mut waited = Duration::ZERO;
    loop {
        let mode = sqlx::query_scalar::<_, String>("PRAGMA journal_mode = WAL").fetch_one(&mut *conn).await;
        match mode {
            Ok(mode) if mode == "wal" => return Ok(Ok(())),
            Ok(mode) => {
                return Ok(Err(format!(
                    "its journal mode stays `{mode}` instead of `wal`; put it on a local file system that has locks and shared memory"
                )));
            }
            // Another process is making the same change, and SQLite does not wait for that.
            Err(error) if is_busy(&error) && waited < BUSY => {
                let pause = Duration::from_millis(5);
                tokio::time::sleep(pause).await;
                waited += pause;
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_busy(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| code & 0xff == libsqlite3_sys::SQLITE_BUSY)
}

/// Of a file without sums, which nobody has looked at since it was written.
async fn check_all(conn: &mut SqliteConnection) -> Checked {
    let found: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(5)").fetch_all(conn).await?;
    Ok(match found.first().map(String::as_str) {
        Some("ok") => Ok(()),
        _ => Err(found.join("; ")),
    })
}

fn damaged(path: &Path, what: String) -> StoreError {
    StoreError::Damaged { path: path.display().to_string(), what }
}

/// What a failure to open means to whoever has to mend it.
fn explain(path: &Path, error: sqlx::Error) -> StoreError {
    let said = error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned());
    let what = match code(&error).map(|code| code & 0xff) {
        Some(libsqlite3_sys::SQLITE_NOTADB) => NOT_A_DATABASE.to_owned(),
        Some(libsqlite3_sys::SQLITE_CORRUPT) => return damaged(path, said),
        Some(libsqlite3_sys::SQLITE_READONLY | libsqlite3_sys::SQLITE_PERM | libsqlite3_sys::SQLITE_CANTOPEN) => {
            let dir = path.parent().unwrap_or(path).display();
            format!("it can't be opened for writing ({said}); it and its directory `{dir}` have to be writable")
        }
        _ => return error.into(),
    };
    StoreError::Schema { path: path.display().to_string(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linked_library_has_to_be_free_of_the_wal_reset_bug() {
        for recent in ["3.51.3", "3.52.0", "3.60", "4.0.0"] {
            assert!(is_recent(recent), "{recent}");
        }
        for old in ["3.51.2", "3.45.1", "3", "", "x"] {
            assert!(!is_recent(old), "{old}");
        }
    }
}
