-- What made statements slower than they need be.
-- Differs from postgresql/0007_indexes.sql: SQLite takes the key of a table where all of it is given.

-- It served libraries of schema 1, which prune without regard to the outcome; every recorded outcome paid for it.
drop index if exists matrixsched_scheduled_actions_finished;
