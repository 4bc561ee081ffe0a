-- put_template (sqlite). Promise: the template is there, and then as it was decided in the same transaction.
-- Differs from postgresql/put_template.sql: there is only one writer, so nothing to lock.

-- name: create
insert into matrixsched_templates (name, distribution, zone, created_at, updated_at)
values (:template, 'uniform', 'UTC', {now}, {now})
on conflict (name) do nothing;

-- name: write
update matrixsched_templates
   set distribution = :distribution, windows = :windows, zone = :zone, weight = :weight, updated_at = {now}
 where name = :template;
