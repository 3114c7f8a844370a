-- The index of tags: digests by which records are found. A tag counts only while the record has the fingerprint
-- that it was claimed with: another request may have the key since.
CREATE TABLE IF NOT EXISTS idempotency_records_tags (
	tag      BLOB NOT NULL,
	record   TEXT NOT NULL,  -- its key
	bound_to BLOB NOT NULL,  -- its fingerprint
	PRIMARY KEY (tag, record)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS idempotency_records_tags_key ON idempotency_records_tags (record);

-- Whoever deletes a record deletes its tags, also a program of a version that knows of none. Replacing a row is no
-- deletion.
CREATE TRIGGER IF NOT EXISTS idempotency_records_untag AFTER DELETE ON idempotency_records
BEGIN
	DELETE FROM idempotency_records_tags WHERE record = OLD.key;
END;
