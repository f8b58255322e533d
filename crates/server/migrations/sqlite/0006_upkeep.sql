-- What is said about projects and threads, until it was told; how long threads without a project are kept; snapshots.

CREATE TABLE notices (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    subject_kind TEXT NOT NULL CHECK (subject_kind IN ('project', 'thread')),
    subject TEXT NOT NULL,
    what TEXT NOT NULL CHECK (what IN ('warning', 'reminder', 'final', 'marked', 'trashed', 'restored', 'purged')),
    source TEXT NOT NULL,
    at INTEGER NOT NULL CHECK (at >= 0),
    expires_at INTEGER NOT NULL CHECK (expires_at >= 0),
    attempts INTEGER NOT NULL CHECK (attempts >= 0),
    next_at INTEGER CHECK (next_at >= 0)
) STRICT;

CREATE INDEX notices_of_subject ON notices (subject_kind, subject, seq);
CREATE INDEX notices_to_tell ON notices (next_at, seq) WHERE next_at IS NOT NULL;
CREATE INDEX notices_by_age ON notices (at);

-- What was said of a thread since it was last active; void when it has been active since.
CREATE TABLE kept_threads (
    thread_id TEXT NOT NULL PRIMARY KEY REFERENCES threads (id) ON DELETE CASCADE,
    since INTEGER NOT NULL CHECK (since >= 0),
    notified TEXT CHECK (notified IN ('warning', 'reminder', 'final')),
    marked_at INTEGER CHECK (marked_at >= 0),
    trashed_at INTEGER CHECK (trashed_at >= 0)
) STRICT;

CREATE TABLE snapshots (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    description TEXT NOT NULL,
    digest TEXT NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    tree_bytes INTEGER NOT NULL CHECK (tree_bytes >= 0),
    files INTEGER NOT NULL CHECK (files >= 0),
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    expires_at INTEGER CHECK (expires_at >= 0)
) STRICT;

CREATE INDEX snapshots_by_project ON snapshots (project_id, created_at, id);
CREATE INDEX snapshots_by_age ON snapshots (created_at, id);
