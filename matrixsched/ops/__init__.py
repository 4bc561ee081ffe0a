"""The operator's side: the command line, the worker as a process, its supervisor, the demo.

cli         arguments and exit codes, nothing else
shards      what the commands about shards say and do
render      tables, JSON, ages: data on stdout, talk on stderr
loading     MODULE:APP → App
process     a worker as a process: waits for its database, heeds signals, serves metrics
supervisor  several such processes, restarted when they die
demo        all of it in half a minute
"""
