//! Files that are not what this version makes: refused with a sentence, and left as they are.

use crate::rig::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use stead_server::store::{SqliteStore, StoreError};

/// Opens a file that can't be used; the sentence about it.
async fn refusal(path: &Path) -> String {
    match SqliteStore::open(path).await {
        Err(StoreError::Schema { path: named, what }) => {
            assert_eq!(named, path.display().to_string());
            what
        }
        Err(error @ StoreError::Damaged { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// A database that was changed by a statement, and what is said of it. It is left byte for byte as it was.
async fn after(sql: &str) -> String {
    let file = File::new();
    file.make().await;
    file.sql(format!("{sql}; PRAGMA wal_checkpoint(TRUNCATE)")).await;
    let before = std::fs::read(file.path()).unwrap();
    let what = refusal(&file.path()).await;
    assert_eq!(std::fs::read(file.path()).unwrap(), before, "it was written to");
    what
}

fn assert_says(what: &str, words: &[&str]) {
    for word in words {
        assert!(what.contains(word), "`{word}` is not in: {what}");
    }
}

/// A database with something on its pages, all of it in the one file.
async fn with_threads() -> File {
    let file = File::new();
    let store = SqliteStore::open(&file.path()).await.unwrap();
    for n in 0..50 {
        make_thread(&store, &format!("{n}"), n).await;
    }
    store.close().await.unwrap();
    file
}

#[tokio::test]
async fn an_untouched_database_opens_again_with_what_is_in_it() {
    let file = File::new();
    let made = make_thread(&*file.open().await, "a", 1).await;
    let again = file.open().await;
    assert_eq!(again.thread(&made.0.id).await.unwrap(), Some(made.0));
    file.sql("ANALYZE; VACUUM").await;
    file.open().await;
}

#[tokio::test]
async fn an_empty_file_becomes_a_database() {
    let file = File::new();
    std::fs::write(file.path(), "").unwrap();
    make_thread(&*file.open().await, "a", 1).await;
}

#[tokio::test]
async fn a_missing_column_is_named() {
    let what = after("ALTER TABLE threads DROP COLUMN provider").await;
    assert_says(&what, &["`threads` has no column `provider`", "restore a backup"]);
}

#[tokio::test]
async fn an_extra_column_is_named() {
    let what = after("ALTER TABLE leases ADD COLUMN colour TEXT").await;
    assert_says(&what, &["`leases` has a column `colour`", "restore a backup"]);
}

#[tokio::test]
async fn a_missing_index_is_named() {
    assert_says(
        &after("DROP INDEX sessions_live_of_terminal").await,
        &["index `sessions_live_of_terminal` is missing"],
    );
}

#[tokio::test]
async fn an_index_of_the_same_name_that_is_not_unique_is_told() {
    let what =
        after("DROP INDEX sessions_live_of_terminal; CREATE INDEX sessions_live_of_terminal ON sessions (terminal_id)")
            .await;
    assert_says(&what, &["index `sessions_live_of_terminal` is defined otherwise"]);
}

#[tokio::test]
async fn a_missing_table_is_named() {
    assert_says(&after("DROP TABLE commands").await, &["`commands", "is missing"]);
}

#[tokio::test]
async fn a_table_or_trigger_of_somebody_else_is_named() {
    assert_says(&after("CREATE TABLE notes (n)").await, &["has a table `notes`"]);
    let trigger = "CREATE TRIGGER sly AFTER INSERT ON leases BEGIN DELETE FROM leases; END";
    assert_says(&after(trigger).await, &["has a trigger `sly`"]);
}

#[tokio::test]
async fn a_constraint_that_was_lifted_is_told() {
    let what = after(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_master SET sql = replace(sql, 'ON DELETE RESTRICT', 'ON DELETE CASCADE') WHERE name = 'terminals';
         PRAGMA writable_schema = RESET",
    )
    .await;
    assert_says(&what, &["table `terminals` is defined otherwise"]);
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_left_to_it() {
    let what = after(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (99, 'tomorrow', 1, x'00', 0); CREATE TABLE tomorrow (n)",
    )
    .await;
    assert_says(&what, &["newer version", "migration 99", "run the newer version"]);
}

#[tokio::test]
async fn a_database_of_an_older_version_is_brought_up_to_date_with_all_it_has() {
    let file = File::new();
    let (thread, terminal, _) = make_thread(&*file.open().await, "a", 1).await;
    let back = "ALTER TABLE terminals DROP COLUMN homes; DROP TABLE spent_commands; DROP TABLE agent_events; DROP TABLE agent_runs; DROP TABLE agent_sessions; DROP TABLE terminal_secrets; DROP TABLE terminal_env; DROP TABLE tokens; DROP TABLE past_leases; \
                DROP INDEX threads_by_workspace; DROP TABLE notices; DROP TABLE kept_threads; \
                DROP TABLE snapshots; DROP TABLE projects; \
                CREATE TABLE projects (id TEXT NOT NULL PRIMARY KEY, prefix TEXT NOT NULL, \
                created_at INTEGER NOT NULL CHECK (created_at >= 0)) STRICT; \
                CREATE INDEX projects_by_age ON projects (created_at, id); \
                INSERT INTO projects VALUES ('old-00000001', 'old', 5); \
                DROP INDEX sessions_by_project; DROP INDEX sessions_live_by_project; \
                ALTER TABLE sessions DROP COLUMN project_id; ALTER TABLE sessions DROP COLUMN opened_by; DELETE FROM _sqlx_migrations WHERE version > 1";
    file.sql(back.to_owned()).await;
    let store = file.open().await;
    assert_eq!(store.thread(&thread.id).await.unwrap(), Some(thread));
    let asked = stead_server::store::AskedEnv::default();
    assert_eq!(store.change_env(&terminal.id, &asked).await.unwrap().seq, 1);
    let old = stead_model::project::Project::new("old", [0, 0, 0, 1], at(5)).unwrap();
    assert_eq!(store.project(&old.id).await.unwrap(), Some(old));
    file.check().await;
}

#[tokio::test]
async fn a_migration_that_was_another_is_told() {
    let what = after("UPDATE _sqlx_migrations SET checksum = x'00'").await;
    assert_says(&what, &["migration 1 is not the one of this version"]);
}

#[tokio::test]
async fn a_database_of_another_program_is_left_alone() {
    for sql in
        ["CREATE TABLE users (id)", "PRAGMA application_id = 77", "PRAGMA application_id = 77; CREATE TABLE u (i)"]
    {
        let file = File::new();
        std::fs::write(file.path(), "").unwrap();
        file.sql(sql).await;
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644)).unwrap();
        let before = std::fs::read(file.path()).unwrap();
        assert_says(&refusal(&file.path()).await, &["another program", "name another file"]);
        assert_eq!(std::fs::read(file.path()).unwrap(), before, "{sql}: not even its journal mode has changed");
        assert_eq!(std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o644, "nor its mode");
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_left_alone() {
    for text in ["hello, world\n".repeat(1000), "x".to_owned()] {
        let file = File::new();
        std::fs::write(file.path(), &text).unwrap();
        assert_says(&refusal(&file.path()).await, &["not an SQLite database", "name another file"]);
        assert_eq!(std::fs::read(file.path()).unwrap(), text.as_bytes());
    }
}

#[tokio::test]
async fn a_truncated_database_is_damaged() {
    let file = with_threads().await;
    let whole = std::fs::read(file.path()).unwrap();
    for keep in [whole.len() / 2, whole.len() - 4096, 8192, 1000] {
        let cut = File::new();
        std::fs::write(cut.path(), &whole[..keep]).unwrap();
        let what = refusal(&cut.path()).await;
        assert!(
            what.contains("damaged") && what.contains("backup") || what.contains("not an SQLite"),
            "{keep}: {what}"
        );
    }
}

#[tokio::test]
async fn scribbled_pages_are_damaged() {
    let file = with_threads().await;
    let mut bytes = std::fs::read(file.path()).unwrap();
    let pages = bytes.len() / 4096;
    // Leaves the first pages, with the schema, as they are.
    for page in pages / 2..pages {
        bytes[page * 4096..page * 4096 + 64].fill(0xa5);
    }
    let cut = File::new();
    std::fs::write(cut.path(), bytes).unwrap();
    assert_says(&refusal(&cut.path()).await, &["damaged", "restore a backup"]);
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_named() {
    let file = File::new();
    let path = file.dir.path().join("no/stead.db");
    assert_says(&refusal(&path).await, &["/no` does not exist", "make it first"]);
}

#[tokio::test]
async fn a_directory_in_the_place_of_the_file_is_refused() {
    let file = File::new();
    std::fs::create_dir(file.path()).unwrap();
    assert_says(&refusal(&file.path()).await, &["can't be opened"]);
}

struct Mount(tempfile::TempDir);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

/// Root may write into any directory, so it has to be a read-only file system.
#[tokio::test]
async fn a_read_only_directory_is_told() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: a_read_only_directory_is_told mounts a file system, which only root may");
        return;
    }
    let mount =
        |args: &[&str], at: &Path| assert!(Command::new("mount").args(args).arg(at).status().unwrap().success());
    let disk = Mount(tempfile::tempdir().unwrap());
    mount(&["-t", "tmpfs", "-o", "size=8m", "tmpfs"], disk.0.path());
    let path = disk.0.path().join("stead.db");
    SqliteStore::open(&path).await.unwrap().close().await.unwrap();
    mount(&["-o", "remount,ro"], disk.0.path());
    assert_says(&refusal(&path).await, &["can't be opened for writing", "have to be writable"]);
    assert_says(&refusal(&disk.0.path().join("new.db")).await, &["can't be made", "can't be written"]);
}
