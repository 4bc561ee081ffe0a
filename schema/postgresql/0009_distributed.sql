-- Whether the tables are in the form that engines want which keep the shards on several nodes: as `init` made them, for ever.
-- Only adds: workers that know schema 8 alone go on beside newer ones, for what exists is not in this form.

alter table matrixsched.installation add column distributed boolean not null default false;
