-- template_exists (sqlite). Promise: a row if there is such a template, which then stays to the end of the transaction.
-- Differs from postgresql/template_exists.sql: in its types alone.
select name from matrixsched_templates where name = :template;
