"""`app.sync` in servers that fork after the application was used (a preloading web server, multiprocessing)."""

import subprocess
import sys

import pytest

SCRIPT = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads: just that is tried
from matrixsched import App

app = App(sys.argv[1])
app.sync.init(shards=2)
app.sync.schedule("work", id="parent")
child = os.fork()
if child == 0:
    app.sync.schedule("work", id="child")
    app.sync.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
app.sync.schedule("work", id="parent again")
print(sorted(action.id for action in app.sync.list()))
app.sync.close()
"""


@pytest.mark.usefixtures("form_of_the_run")
def test_a_forked_child_connects_anew_and_leaves_its_parents_connection_alone(database_url):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, database_url], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.stdout == "['child', 'parent', 'parent again']\n", done.stderr
