"""Local commits together with another implementation that locks the inode of ``repo``: nothing is lost.

``python -m tests.repository.test_mixed_writers ROOT KIND NAME DONE`` changes one local repository. It appends
a line to the file DONE for each change that was acknowledged. KIND is ``frazil``, or ``inode``: a stand-in
for another implementation, which locks the inode of ``repo`` (``flock``), compares an etag of inode, time and
size, and renames a new file. It does not know the locks of Frazil, and leaves no backups.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patience

import frazil
from frazil.format.repo_info import decode_repo_info, encode_repo_info

WRITER = (sys.executable, "-m", "tests.repository.test_mixed_writers")
#: Changes of each kind of writers.
COUNT = 60


def acknowledged(path: Path) -> list[str]:
    lines = path.read_text().split("\n") if path.exists() else [""]
    return lines[:-1]  # the last line of a killed process may be incomplete


@pytest.mark.deep
@pytest.mark.skipif(sys.platform == "win32", reason="no flock")
def test_nothing_is_lost_beside_writers_that_lock_the_inode(tmp_path: Path) -> None:
    root, done = str(tmp_path / "ice"), {kind: tmp_path / kind for kind in ("frazil", "inode")}
    frazil.Repository.create(frazil.local_filesystem_storage(root))
    names = itertools.count()

    def start(kind: str) -> Any:
        return kind, subprocess.Popen([*WRITER, root, kind, f"{kind}{next(names)}", done[kind]])

    running = [start(kind) for kind in ("frazil", "inode", "frazil", "inode")]
    deadline, goal = time.monotonic() + patience(120), 0
    try:
        while min(len(acknowledged(path)) for path in done.values()) < COUNT:
            assert time.monotonic() < deadline
            assert all(process.poll() is None for _, process in running)
            if sum(len(acknowledged(path)) for path in done.values()) >= goal:  # in turn
                goal += COUNT // 5
                kind, victim = running.pop(0)
                victim.kill()
                victim.wait()
                running.append(start(kind))
    finally:
        for _, process in running:
            process.kill()
            process.wait()
    repo = frazil.Repository.open(frazil.local_filesystem_storage(root))
    assert not set(acknowledged(done["frazil"])) - {each.id for each in repo.ancestry(branch="main")}
    assert not set(acknowledged(done["inode"])) - repo.get_metadata().keys()
    repo.create_tag("last", repo.lookup_branch("main"))


def etag(status: Any) -> Any:
    return status.st_ino, status.st_mtime_ns, status.st_size


def inode_writer(root: str, name: str) -> Iterator[Any]:
    path = os.path.join(root, "repo")
    for number in itertools.count():
        key = f"{name}.{number}"
        while True:
            with open(path, "rb") as file:
                tag, info = etag(os.fstat(file.fileno())), decode_repo_info(file.read(), "repo")
            new = encode_repo_info(replace(info, metadata={**info.metadata, key: number}), level=1)
            with open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if etag(os.stat(path)) == tag:
                    temporary = f"{path}#{os.getpid()}"
                    with open(temporary, "wb") as other:
                        other.write(new)
                    os.rename(temporary, path)
                    break
        time.sleep(0.2)  # it does not flush, so without a pause it would win most races
        yield key


def frazil_writer(root: str, name: str) -> Iterator[Any]:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(root))
    for number in itertools.count():
        session = repo.writable_session("main")
        yield session.commit(f"{name}.{number}", allow_empty=True, rebase_with=frazil.ConflictDetector())


def main(root: str, kind: str, name: str, done: str) -> None:
    changes = {"frazil": frazil_writer, "inode": inode_writer}[kind](root, name)
    with open(done, "a", buffering=1) as file:
        file.writelines(f"{change}\n" for change in changes)


if __name__ == "__main__":
    main(*sys.argv[1:])
