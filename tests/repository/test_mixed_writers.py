"""Local commits together with another implementation that locks the inode of ``repo``: nothing is lost."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patience

import frazil

WRITER = Path(__file__).with_name("mixed_writer.py")
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
        return kind, subprocess.Popen(
            [sys.executable, WRITER, root, kind, f"{kind}{next(names)}", done[kind]]
        )

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
