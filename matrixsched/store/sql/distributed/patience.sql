-- patience (distributed). Promise: until the transaction ends it waits for no lock for longer than that. Asked in transactions of
-- our own alone, before their first lock. A statement of its own: where shards lie on several nodes, a volatile function is not to
-- be called beside a write.
select set_config('lock_timeout', cast(:lock_timeout as text), true);
