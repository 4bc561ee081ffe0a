-- put_template (postgresql). Promise: the template is there, locked, and then as it was decided under that lock.

-- name: create
insert into matrixsched.templates (name, distribution, zone, created_at, updated_at)
values (cast(:template as text), 'uniform', 'UTC', {now}, {now})
on conflict (name) do update set updated_at = excluded.updated_at; -- locks it, and makes it anew if it is being removed

-- name: write
update matrixsched.templates
   set distribution = cast(:distribution as text), windows = cast(:windows as text), zone = cast(:zone as text),
       weight = cast(:weight as double precision), updated_at = {now}
 where name = cast(:template as text);
