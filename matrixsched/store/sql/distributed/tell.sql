-- tell (distributed). Promise: workers that listen are told, when the transaction commits. A statement of its own, as `patience`.
select pg_notify(cast(:channel as text), cast(:told as text));
