-- What lets people and programs in. Of the secret itself only the SHA-256 is here.

CREATE TABLE tokens (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    scope TEXT NOT NULL,
    created_at INTEGER NOT NULL CHECK (created_at >= 0),
    last_used_at INTEGER CHECK (last_used_at >= 0),
    expires_at INTEGER CHECK (expires_at >= 0),
    revoked_at INTEGER CHECK (revoked_at >= 0)
) STRICT;

CREATE UNIQUE INDEX tokens_by_hash ON tokens (hash);
CREATE INDEX tokens_by_age ON tokens (created_at, id);
