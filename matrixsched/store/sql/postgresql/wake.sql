-- wake (postgresql). Promise: workers that listen look for work at once.
select pg_notify(cast(:channel as text), 'actions');
