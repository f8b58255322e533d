-- Projects as a whole: what they are for, what their threads begin with, how long they are kept, what has happened in
-- them. docs/store.md tells what each column means.

CREATE TABLE new_projects (
    id TEXT NOT NULL PRIMARY KEY,
    prefix TEXT NOT NULL,
    description TEXT NOT NULL,
    tags TEXT NOT NULL,
    config TEXT NOT NULL,
    last_accessed_at INTEGER NOT NULL CHECK (last_accessed_at >= 0),
    expires_at INTEGER NOT NULL CHECK (expires_at >= 0),
    keep_days INTEGER NOT NULL CHECK (keep_days > 0),
    pinned INTEGER NOT NULL CHECK (pinned IN (0, 1)),
    notified TEXT CHECK (notified IN ('warning', 'reminder', 'final')),
    marked_at INTEGER CHECK (marked_at >= 0),
    trashed_at INTEGER CHECK (trashed_at >= 0),
    clone TEXT CHECK (clone IN ('wanted', 'done', 'failed')),
    clone_at INTEGER CHECK (clone_at >= 0),
    clone_error TEXT,
    clone_nonce BLOB,
    clone_sealed BLOB,
    version INTEGER NOT NULL CHECK (version >= 0),
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    sessions INTEGER NOT NULL DEFAULT 0,
    commands INTEGER NOT NULL DEFAULT 0,
    failed_commands INTEGER NOT NULL DEFAULT 0,
    run_ms INTEGER NOT NULL DEFAULT 0,
    output_bytes INTEGER NOT NULL DEFAULT 0,
    disk_bytes INTEGER CHECK (disk_bytes >= 0),
    last_error TEXT,
    last_error_at INTEGER CHECK (last_error_at >= 0),
    CHECK ((clone_nonce IS NULL) = (clone_sealed IS NULL)),
    CHECK ((last_error IS NULL) = (last_error_at IS NULL))
) STRICT;

INSERT INTO new_projects (id, prefix, description, tags, config, last_accessed_at, expires_at, keep_days, pinned,
    version, created_at)
SELECT id, prefix, '', '[]', '{}', created_at, created_at + 2592000000, 30, 0, 0, created_at FROM projects;

DROP TABLE projects;
ALTER TABLE new_projects RENAME TO projects;

CREATE INDEX projects_by_age ON projects (created_at, id);
CREATE INDEX projects_kept ON projects (created_at, id) WHERE trashed_at IS NULL;

-- Whose record a session is, also when its thread is gone, and who opened it.
ALTER TABLE sessions ADD COLUMN project_id TEXT;
ALTER TABLE sessions ADD COLUMN opened_by TEXT;

CREATE INDEX sessions_by_project ON sessions (project_id, started_at, id);
CREATE INDEX sessions_live_by_project ON sessions (project_id, started_at, id)
    WHERE status IN ('active', 'idle', 'paused');
