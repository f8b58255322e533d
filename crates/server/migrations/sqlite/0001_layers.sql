-- The layers: threads over terminals over leases over instances, with the sessions and commands that use them.
-- Moments and spans are milliseconds. docs/store.md tells what each column means.

CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT;

CREATE TABLE projects (
    id TEXT NOT NULL PRIMARY KEY,
    prefix TEXT NOT NULL,
    created_at INTEGER NOT NULL CHECK (created_at >= 0)
) STRICT;

CREATE INDEX projects_by_age ON projects (created_at, id);

CREATE TABLE threads (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT,
    provider TEXT NOT NULL,
    default_terminal_id TEXT NOT NULL,
    lease_id TEXT NOT NULL,
    workspace TEXT NOT NULL,
    idle_timeout INTEGER NOT NULL CHECK (idle_timeout >= 0),
    max_duration INTEGER NOT NULL CHECK (max_duration >= 0),
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    last_active_at INTEGER NOT NULL CHECK (last_active_at >= 0)
) STRICT;

CREATE INDEX threads_by_age ON threads (created_at, id);
CREATE INDEX threads_by_project ON threads (project_id, created_at, id);

CREATE TABLE leases (
    id TEXT NOT NULL PRIMARY KEY,
    provider TEXT NOT NULL,
    workspace TEXT NOT NULL,
    desired TEXT NOT NULL CHECK (desired IN ('running', 'paused', 'destroyed')),
    observed TEXT NOT NULL CHECK (observed IN ('none', 'creating', 'running', 'paused', 'stopped', 'unknown')),
    observed_at INTEGER CHECK (observed_at >= 0),
    instance_id TEXT,
    needs_refresh INTEGER NOT NULL CHECK (needs_refresh IN (0, 1)),
    last_error TEXT,
    caveats TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 0),
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    updated_at INTEGER NOT NULL CHECK (updated_at >= 0)
) STRICT;

CREATE INDEX leases_by_age ON leases (created_at, id);
CREATE INDEX leases_by_provider ON leases (provider, created_at, id);

CREATE TABLE lease_events (
    id TEXT NOT NULL PRIMARY KEY,
    lease_id TEXT NOT NULL REFERENCES leases (id) ON DELETE CASCADE,
    version INTEGER NOT NULL CHECK (version >= 0),
    kind TEXT NOT NULL,
    source TEXT NOT NULL,
    payload TEXT NOT NULL,
    error TEXT,
    at INTEGER NOT NULL CHECK (at >= 0)
) STRICT;

CREATE UNIQUE INDEX lease_events_by_version ON lease_events (lease_id, version);

CREATE TABLE instances (
    id TEXT NOT NULL PRIMARY KEY,
    lease_id TEXT NOT NULL REFERENCES leases (id) ON DELETE CASCADE,
    provider TEXT NOT NULL,
    reference TEXT NOT NULL,
    started_at INTEGER NOT NULL CHECK (started_at >= 0),
    last_seen_at INTEGER NOT NULL CHECK (last_seen_at >= 0),
    ended_at INTEGER CHECK (ended_at >= 0),
    metadata TEXT NOT NULL
) STRICT;

CREATE INDEX instances_by_lease ON instances (lease_id);
CREATE UNIQUE INDEX instances_live_of_lease ON instances (lease_id) WHERE ended_at IS NULL;
CREATE INDEX instances_live_by_age ON instances (started_at, id) WHERE ended_at IS NULL;

CREATE TABLE terminals (
    id TEXT NOT NULL PRIMARY KEY,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    lease_id TEXT NOT NULL REFERENCES leases (id) ON DELETE RESTRICT,
    name TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version >= 0),
    content_version INTEGER NOT NULL CHECK (content_version >= 0),
    generation INTEGER NOT NULL CHECK (generation >= 0),
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    updated_at INTEGER NOT NULL CHECK (updated_at >= 0)
) STRICT;

CREATE UNIQUE INDEX terminals_by_name ON terminals (thread_id, name);
CREATE INDEX terminals_by_age ON terminals (created_at, id);
CREATE INDEX terminals_by_thread ON terminals (thread_id, created_at, id);
CREATE INDEX terminals_by_lease ON terminals (lease_id, created_at, id);

CREATE TABLE terminal_states (
    terminal_id TEXT NOT NULL REFERENCES terminals (id) ON DELETE CASCADE,
    version INTEGER NOT NULL CHECK (version >= 0),
    state BLOB NOT NULL,
    at INTEGER NOT NULL CHECK (at >= 0),
    PRIMARY KEY (terminal_id, version)
) STRICT;

CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    thread_id TEXT NOT NULL,
    terminal_id TEXT NOT NULL,
    lease_id TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('active', 'idle', 'paused', 'closed', 'failed')),
    idle_timeout INTEGER NOT NULL CHECK (idle_timeout >= 0),
    max_duration INTEGER NOT NULL CHECK (max_duration >= 0),
    started_at INTEGER NOT NULL CHECK (started_at >= 0),
    last_active_at INTEGER NOT NULL CHECK (last_active_at >= 0),
    ended_at INTEGER CHECK (ended_at >= 0),
    close_reason TEXT CHECK (close_reason IN (
        'expired', 'idle_timeout', 'superseded', 'server_restart', 'closed', 'destroyed', 'runtime_lost'
    )),
    version INTEGER NOT NULL CHECK (version >= 0),
    CHECK ((ended_at IS NULL) = (close_reason IS NULL))
) STRICT;

CREATE INDEX sessions_by_age ON sessions (started_at, id);
CREATE INDEX sessions_by_thread ON sessions (thread_id, started_at, id);
CREATE UNIQUE INDEX sessions_live_of_terminal ON sessions (terminal_id) WHERE status IN ('active', 'idle', 'paused');
CREATE INDEX sessions_live_by_age ON sessions (started_at, id) WHERE status IN ('active', 'idle', 'paused');
CREATE INDEX sessions_live_by_lease ON sessions (lease_id, started_at, id)
    WHERE status IN ('active', 'idle', 'paused');

CREATE TABLE commands (
    id TEXT NOT NULL PRIMARY KEY,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    terminal_id TEXT NOT NULL,
    lease_id TEXT NOT NULL,
    session_id TEXT,
    instance_id TEXT,
    text BLOB NOT NULL,
    status TEXT NOT NULL
        CHECK (status IN ('queued', 'running', 'exited', 'timed_out', 'cancelled', 'failed', 'lost')),
    ending BLOB,
    stdout_bytes INTEGER NOT NULL CHECK (stdout_bytes >= 0),
    stderr_bytes INTEGER NOT NULL CHECK (stderr_bytes >= 0),
    cwd BLOB NOT NULL,
    state_version INTEGER NOT NULL CHECK (state_version >= 0),
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    started_at INTEGER CHECK (started_at >= 0),
    ended_at INTEGER CHECK (ended_at >= 0)
) STRICT;

CREATE INDEX commands_by_thread ON commands (thread_id, created_at, id);
CREATE INDEX commands_open ON commands (created_at, id) WHERE status IN ('queued', 'running');
