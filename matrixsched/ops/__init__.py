"""The operator's side: the command line, the worker as a process, its supervisor, the demo.

cli         arguments and exit codes, nothing else
installing  what `init` and `upgrade` do
shards      what the commands about shards say and do
render      tables, JSON, ages: data on stdout, talk on stderr
loading     MODULE:APP → App
process     a worker as a process: waits for its database, heeds signals, serves metrics
signals     how such a process is stopped, whatever its handlers do
supervisor  several such processes, restarted when they die
demo        all of it in half a minute, with demo_app and the evidence that its handlers leave
"""
