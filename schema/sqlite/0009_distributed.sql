-- Whether the tables are in distributed form: never on SQLite, whose installations are in one file. Only adds: workers that know
-- schema 8 alone go on beside newer ones.

alter table matrixsched_installation add column distributed integer not null default 0 check (distributed = 0);
