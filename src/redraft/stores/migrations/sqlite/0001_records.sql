-- Times are microseconds since 1970 in UTC, vectors little-endian float32, data JSON text. The checksum is
-- CRC-32 of kind, key, schema_version, data and vector.
CREATE TABLE records (
    space          TEXT    NOT NULL,
    kind           TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    data           TEXT    NOT NULL,
    schema_version INTEGER NOT NULL,
    vector         BLOB,
    checksum       INTEGER NOT NULL,
    revision       INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    PRIMARY KEY (space, kind, key)
);

CREATE INDEX records_newest ON records (space, kind, created_at, key);
