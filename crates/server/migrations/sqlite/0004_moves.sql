-- Leases that a thread has moved away from. They stay as long as it does: its earlier commands ran there, and their
-- journals have what those wrote.

CREATE TABLE past_leases (
    lease_id TEXT NOT NULL PRIMARY KEY REFERENCES leases (id) ON DELETE CASCADE,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE
) STRICT;

CREATE INDEX past_leases_by_thread ON past_leases (thread_id, lease_id);

-- Whether anybody still uses a workspace, before its files are removed.
CREATE INDEX threads_by_workspace ON threads (workspace);
