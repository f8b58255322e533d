-- Terminal agents: what becomes of a session's questions for permission, unless a message says otherwise.

ALTER TABLE agent_sessions ADD COLUMN policy TEXT NOT NULL DEFAULT '{"default":"ask"}';
