-- patience (distributed). Promise: until the transaction ends it waits for no lock for longer than that, if it says how long, and is
-- ended by the server when two seconds pass between two of its statements: a process that is frozen inside of it holds up users for
-- no longer. Asked in transactions of our own alone, before their first lock. A statement of its own: where shards lie on several
-- nodes, a volatile function is not to be called beside a write.
select set_config('idle_in_transaction_session_timeout', '2000ms', true),
       case when cast(:lock_timeout as text) is not null
            then set_config('lock_timeout', cast(:lock_timeout as text), true) end;
