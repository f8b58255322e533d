-- The instances that a terminal has lived on, the present one last, where its shell's journal doesn't outlive them: a
-- shell that turns up on an earlier one has gone its own way.

ALTER TABLE terminals ADD COLUMN homes TEXT NOT NULL DEFAULT '[]';
