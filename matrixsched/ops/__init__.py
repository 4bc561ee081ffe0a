"""The operator's side: the command line, the worker as a process, its supervisor, the demo.

cli         the command as a whole: its parts put together, errors turned into one line and an exit code
commands    the commands by subject: arguments, confirmation, words; what they do is in the modules below
settings    from settings to a worker's policy; what operators read about them
reading     what people type, read: instants, payloads
render      tables, JSON, ages: data on stdout, talk on stderr
installing  what `init` and `upgrade` do
checking    what `check` finds
actions     what the commands about actions show
bulk        changing many actions, each only as it was seen
shards      what the commands about shards say and do
loading     MODULE:APP → App
process     a worker as a process: waits for its database, heeds signals, serves metrics
signals     how such a process is stopped, whatever its handlers do
supervisor  several such processes, restarted when they die
demo        all of it in half a minute, with demo_app and the evidence that its handlers leave
"""
