-- remove_template (sqlite). Promise: the template is gone; it is there again, where one of its actions is found to be
-- live in the same transaction.
-- Differs from postgresql/remove_template.sql: there is only one writer, so nothing to lock.

-- name: delete
delete from matrixsched_templates where name = :template returning name;
