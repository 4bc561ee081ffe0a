"""The audit tells what was changed, and who did it: on both databases."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.processes import environment

from chaos import audit
from chaos.place import Place
from matrixsched import App

WRITE = """
import sys
from chaos.setting import open_app
with open_app(sys.argv[1], sys.argv[2]).sync as app:
    app.schedule("work", id="a")
    places = app.semaphores.get_or_create("places", active=2)
    places.enqueue("s", 7)
"""


@pytest.mark.direct("the audit knows writers by their sessions")
def test_changes_bear_the_name_of_the_process_that_made_them(database_url: str) -> None:
    url = database_url
    App(url).sync.init(shards=4)
    place = Place(url, url)
    audit.install(place)
    for writer in ("w1", "w2"):
        # A process has one name, and keeps it.
        subprocess.run([sys.executable, "-c", WRITE, url, writer], env=environment(), check=True, timeout=50)
    changes = audit.read(place)
    assert [(one.writer, one.op, one.id) for one in changes if one.place == "action"] == [
        ("w1", "I", "a"),
        ("w2", "U", "a"),
    ]
    (enqueued,) = (one for one in changes if one.place == "hold")
    assert (enqueued.writer, enqueued.id, enqueued.state, float(enqueued.note or 0)) == ("w1", "s", "waiting", 7)
