-- lock_limits (postgresql). Promise: of these limits those that exist, locked until the transaction ends, as they are at this
-- moment; one that somebody else takes slots from now is only named, as busy. A key without a limit of its own gets a
-- bucket of its own, for which key:* speaks. Never waits for them. One row comes back even if there is none.
with made as (
    insert into matrixsched.limits (name, updated_at)
    select n.name, {now}
      from unnest(cast(:names as text[])) as n (name)
     where n.name >= 'key:' and n.name < 'key;'
       and exists (select from matrixsched.limits d where d.name = 'key:*')
       and not exists (select from matrixsched.limits l where l.name = n.name)
     order by n.name collate "C"
    on conflict do nothing
    returning *
),
locked as materialized (
    select l.*
      from matrixsched.limits l
     where l.name = any (cast(:names as text[]))
       /* pause point: lock_limits */
     order by l.name
       for no key update skip locked
)
select {now} as now, found.*
  from (select) as always
  left join (select l.*, false as busy from locked l
             union all
             select l.*, false as busy from made l
             union all
             select l.*, true as busy
               from matrixsched.limits l
              where l.name = any (cast(:names as text[])) and l.name not in (select name from locked)) found on true;
