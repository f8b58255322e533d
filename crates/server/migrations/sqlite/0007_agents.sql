-- Terminal agents: sessions, the messages they got, and what came of each.

CREATE TABLE agent_sessions (
    id TEXT NOT NULL PRIMARY KEY,
    provider TEXT NOT NULL,
    workspace TEXT NOT NULL,
    model TEXT NOT NULL,
    project_id TEXT,
    thread_id TEXT NOT NULL,
    conversation INTEGER NOT NULL CHECK (conversation >= 0),
    resume TEXT,
    process TEXT,
    run_id TEXT,
    run_until INTEGER CHECK (run_until >= 0),
    version INTEGER NOT NULL CHECK (version >= 0),
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    last_used_at INTEGER NOT NULL CHECK (last_used_at >= 0)
) STRICT;

CREATE UNIQUE INDEX agent_sessions_by_key ON agent_sessions (workspace, provider, model);
CREATE INDEX agent_sessions_by_age ON agent_sessions (created_at, id);
CREATE INDEX agent_sessions_live ON agent_sessions (id) WHERE process IS NOT NULL OR run_id IS NOT NULL;

CREATE TABLE agent_runs (
    id TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES agent_sessions (id) ON DELETE CASCADE,
    conversation INTEGER NOT NULL CHECK (conversation >= 0),
    message TEXT NOT NULL,
    policy TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('queued', 'running', 'done', 'aborted', 'failed')),
    last_seq INTEGER NOT NULL CHECK (last_seq >= 0),
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    started_at INTEGER CHECK (started_at >= 0),
    ended_at INTEGER CHECK (ended_at >= 0)
) STRICT;

CREATE INDEX agent_runs_by_session ON agent_runs (session_id, conversation, created_at, id);
CREATE INDEX agent_runs_open ON agent_runs (session_id, created_at, id) WHERE status IN ('queued', 'running');

CREATE TABLE agent_events (
    run_id TEXT NOT NULL REFERENCES agent_runs (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL CHECK (seq > 0),
    at INTEGER NOT NULL CHECK (at >= 0),
    event TEXT NOT NULL,
    PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID;
