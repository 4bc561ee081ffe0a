"""Where files of SQLite lie, and who has them locked."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import pytest

from matrixsched.store.sqlite.places import filesystem_of, holders_of

MOUNTS = """\
/dev/vda1 / ext4 rw 0 0
server:/export /srv/shared nfs4 rw 0 0
tmpfs /srv/shared/fast tmpfs rw 0 0
//server/a /mnt/two\\040words cifs rw 0 0
/dev/vdb1 /over ext4 rw 0 0
fuse /over fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/x.db", "ext4"),
        ("/srv/shared/x.db", "nfs4"),
        ("/srv/shared2/x.db", "ext4"),
        ("/srv/shared/fast/x.db", "tmpfs"),
        ("/mnt/two words/x.db", "cifs"),
        ("/over/x.db", "fuse.sshfs"),
    ],
)
def test_the_filesystem_is_that_of_the_nearest_mount_that_is_not_hidden(path: str, kind: str) -> None:
    assert filesystem_of(path, MOUNTS) == kind


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the locks of all processes")
def test_who_has_a_file_locked_is_found(tmp_path: Path) -> None:
    file = tmp_path / "x.lock"
    with file.open("w") as opened:
        assert holders_of(str(file)) == []
        fcntl.flock(opened, fcntl.LOCK_EX)
        assert holders_of(str(file)) == [os.getpid()]
    assert holders_of(str(tmp_path / "none")) == []
