"""Programs of Debian's that some tests need: used where they are installed, and fetched by their package where not.

    promtool = provided("promtool")

A program that stands for itself is taken out of its package into a cache: nothing is installed, no service started, and
nobody need be root where apt has its lists. One that needs others is installed as usual, which only root can.

    archives = packages("pgbouncer", "libevent-2.1-7")

Packages are fetched into the cache as they are, for whoever takes out of them what a server's user needs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

APT_MAX_S = 240.0
LOCK_WAIT_S = 120
"""How long to wait for another apt on this machine."""


class ToolUnavailable(Exception):
    """A program that is not here and could not be had; the message says why and what to do."""


@dataclass(frozen=True)
class Tool:
    package: str
    program: str
    """Its path inside the package."""
    stands_alone: bool = False
    """It needs nothing that a plain system does not have."""


TOOLS = {
    "promtool": Tool("prometheus", "usr/bin/promtool", stands_alone=True),
    "chromium": Tool("chromium", "usr/bin/chromium"),
}


def provided(name: str) -> Path:
    """The program of that name, fetched if need be."""
    tool = TOOLS[name]
    found = _found(name, tool)
    if found is not None:
        return found
    if shutil.which("apt-get") is None:
        raise ToolUnavailable(f"{name} is not on the path and there is no apt-get: install {tool.package}")
    with _alone():
        # Another process may have been quicker.
        return _found(name, tool) or (_unpacked(name, tool) if tool.stands_alone else _installed(tool))


def packages(*names: str) -> list[Path]:
    """The archives of Debian's packages of these names, fetched if need be and not installed."""
    if shutil.which("apt-get") is None:
        raise ToolUnavailable(f"there is no apt-get: install {names[0]}")
    with _alone():
        return [_archive(name) or _downloaded(name) for name in names]


def _archive(name: str) -> Path | None:
    return next(_cache().glob(f"{name}_*.deb"), None)


def _downloaded(name: str) -> Path:
    # Elsewhere at first: half an archive must not be taken for one.
    with tempfile.TemporaryDirectory(dir=_cache()) as folder:
        _apt(["download", name], name, cwd=folder)
        (archive,) = Path(folder).glob("*.deb")
        return archive.rename(_cache() / archive.name)


def _found(name: str, tool: Tool) -> Path | None:
    on_path = shutil.which(name)
    places = [*([Path(on_path)] if on_path else []), Path("/", tool.program), _cache() / name]
    return next((place for place in places if os.access(place, os.X_OK)), None)


def _cache() -> Path:
    beside = Path(sys.prefix) / "cache"
    if os.access(beside.parent, os.W_OK):
        return beside / "debian"
    return Path(tempfile.gettempdir()) / f"matrixsched-cache-{os.getuid()}" / "debian"


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time fetches; the folder itself is locked, so that no lock file is left behind."""
    _cache().mkdir(parents=True, exist_ok=True)
    folder = os.open(_cache(), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _unpacked(name: str, tool: Tool) -> Path:
    with tempfile.TemporaryDirectory(dir=_cache()) as folder:
        _apt(["download", tool.package], tool.package, cwd=folder)
        (package,) = Path(folder).glob("*.deb")
        draft = Path(folder, name)
        _take(package, tool, draft)
        draft.chmod(0o755)
        return draft.rename(_cache() / name)


def _take(package: Path, tool: Tool, target: Path) -> None:
    """Write the program alone: the package holds a whole server."""
    reading = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE)
    with reading, tarfile.open(fileobj=reading.stdout, mode="r|") as files:
        for member in files:
            if member.name.removeprefix("./") == tool.program:
                content = files.extractfile(member)
                assert content is not None
                with target.open("wb") as file:
                    shutil.copyfileobj(content, file)
                reading.kill()  # the rest is not wanted
                return
    raise ToolUnavailable(f"Debian's package {tool.package} holds no {tool.program}: name its new path in {__name__}")


def _installed(tool: Tool) -> Path:
    if os.geteuid() != 0:
        raise ToolUnavailable(f"only root can fetch it: apt-get install {tool.package}")
    _apt(["install", "--yes", "--no-install-recommends", tool.package], tool.package)
    return Path("/", tool.program)


def _apt(arguments: list[str], package: str, cwd: str | None = None) -> None:
    """Run apt-get; where its lists are missing or too old, with new ones."""
    why = _runs(arguments, cwd)
    if why is not None and os.geteuid() == 0:
        _runs(["update"], cwd)
        why = _runs(arguments, cwd)
    if why is not None:
        raise ToolUnavailable(f"Debian's package {package} cannot be had ({why}): install it by hand")


def _runs(arguments: list[str], cwd: str | None) -> str | None:
    """What went wrong, if anything did."""
    command = ["apt-get", "--quiet", "-o", f"DPkg::Lock::Timeout={LOCK_WAIT_S}", *arguments]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=APT_MAX_S)
    except subprocess.TimeoutExpired:
        return f"apt-get {arguments[0]} took longer than {APT_MAX_S:.0f} s"
    errors = [line for line in done.stderr.splitlines() if line.startswith("E:")]
    return None if done.returncode == 0 else (errors or ["exit code " + str(done.returncode)])[0]
