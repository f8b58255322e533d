-- Ids of commands whose thread has been deleted: for a day after it was first used none of them runs anything again.

CREATE TABLE spent_commands (
    id TEXT NOT NULL PRIMARY KEY,
    until INTEGER NOT NULL CHECK (until >= 0)
) STRICT;

CREATE INDEX spent_commands_by_end ON spent_commands (until);
