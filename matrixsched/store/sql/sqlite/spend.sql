-- spend (sqlite). Promise: the slots and grants that a claim of the same transaction took are taken, and it is noted when
-- each of these lanes is worth another look. Of emptied lanes those are no longer listed in which nothing is due anywhere.
-- Differs from postgresql/spend.sql: several statements, asked once for each row.

-- name: slots
update matrixsched_limits set next_slot_ns = :next_slot_ns where name = :name;

-- name: grants
update matrixsched_quota_grants
   set used = :used
 where begins_at = :begins_at and template = :template and priority = :priority and inside = :inside;

-- name: note
insert into matrixsched_held_lanes (lane, priority, handler, ready_at)
values (:lane, :priority, :handler, :ready_at)
on conflict (lane) do update set ready_at = excluded.ready_at;

-- name: unlist
delete from matrixsched_held_lanes
 where lane = :lane
   and not exists (select 1 from matrixsched_processing_queue p
                    where p.lane = :lane and p.lane >= 'limit|' and p.lane < 'quota}' and p.scheduled_at <= {now});
