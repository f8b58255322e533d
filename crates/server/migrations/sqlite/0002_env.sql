-- What the environment call asked for: variables that the shell is not known to have yet, and secrets, encrypted.
-- docs/secrets.md tells how.

CREATE TABLE terminal_env (
    terminal_id TEXT NOT NULL PRIMARY KEY REFERENCES terminals (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL CHECK (seq >= 0),
    pending BLOB NOT NULL
) STRICT;

CREATE TABLE terminal_secrets (
    terminal_id TEXT NOT NULL REFERENCES terminals (id) ON DELETE CASCADE,
    name BLOB NOT NULL,
    revision INTEGER NOT NULL CHECK (revision >= 0),
    nonce BLOB NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (terminal_id, name)
) STRICT;
