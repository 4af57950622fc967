-- The version of this schema: how many of these files it has seen.
CREATE TABLE redraft_schema (version integer NOT NULL);
INSERT INTO redraft_schema VALUES (0);

-- Times are microseconds since 1970 in UTC. `data` is JSON as text, because jsonb refuses NUL characters and
-- lone surrogates and forgets how numbers were written; `fields` is what of it can be asked for:
-- '"status":"finished"' for each field at the top. `vector` becomes pgvector's type where that is there.
-- `checksum` is CRC-32 of kind, key, schema_version, data and vector.
CREATE TABLE redraft_records (
    space          text COLLATE "C" NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    key            text COLLATE "C" NOT NULL,
    data           text             NOT NULL,
    fields         text[] COLLATE "C" NOT NULL,
    schema_version integer          NOT NULL,
    vector         real[],
    checksum       bigint           NOT NULL,
    revision       bigint           NOT NULL,
    created_at     bigint           NOT NULL,
    updated_at     bigint           NOT NULL,
    PRIMARY KEY (space, kind, key)
);

CREATE INDEX redraft_records_newest ON redraft_records (space, kind, created_at, key);
CREATE INDEX redraft_records_fields ON redraft_records USING gin (fields);
