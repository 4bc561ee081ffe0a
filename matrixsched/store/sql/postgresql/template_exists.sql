-- template_exists (postgresql). Promise: a row if there is such a template, which then stays to the end of the transaction.
select name from matrixsched.templates where name = cast(:template as text) for key share;
