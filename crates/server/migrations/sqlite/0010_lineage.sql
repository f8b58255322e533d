-- On which instance a terminal lives, where its shell's journal doesn't outlive instances: a shell that turns up on
-- another has gone its own way.

ALTER TABLE terminals ADD COLUMN instance_id TEXT;
