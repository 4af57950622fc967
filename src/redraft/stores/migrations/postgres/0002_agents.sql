-- The records of agents that share a database: a session sees those of the space that it has set, whatever SQL
-- it runs, and whoever owns the table. The records of projects stay where they are: a policy would keep their
-- index on `fields` from being used, for `&&` could tell what it was asked about rows that are not to be seen.
CREATE TABLE redraft_agent_records (LIKE redraft_records, PRIMARY KEY (space, kind, key));
CREATE INDEX redraft_agent_records_newest ON redraft_agent_records (space, kind, created_at, key);

ALTER TABLE redraft_agent_records ENABLE ROW LEVEL SECURITY;
ALTER TABLE redraft_agent_records FORCE ROW LEVEL SECURITY;
CREATE POLICY redraft_own_space ON redraft_agent_records
    USING (space = current_setting('redraft.space', true));
-- Who asks which agents there are, sees what each says of itself, and nothing else.
CREATE POLICY redraft_directory ON redraft_agent_records FOR SELECT
    USING (kind = 'agent' AND current_setting('redraft.space', true) = 'agents');
