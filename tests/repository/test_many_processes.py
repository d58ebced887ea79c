"""Eight processes commit to one repository on the local file system."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patience

from frazil.handle.repository import Repository
from frazil.handle.upgrade import upgrade_icechunk_repository
from frazil.storage import local_filesystem_storage

WORKER = Path(__file__).with_name("commit_worker.py")
PROCESSES = 8


def start(root: Path, worker: int, count: int) -> Any:
    command = [sys.executable, str(WORKER), str(root), f"worker{worker}", str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> None:
    out, err = process.communicate(timeout=patience(180))
    assert (process.returncode, out) == (0, "done\n"), err


def check(root: Path, count: int, spec_version: int = 2) -> None:
    repo = Repository.open(local_filesystem_storage(str(root)))
    commits = list(repo.ancestry(branch="main"))
    messages = Counter(commit.message for commit in commits)
    expected = {f"worker{w}/{n}": 1 for w in range(PROCESSES) for n in range(count)}
    assert messages == {**expected, "Repository initialized": 1}
    for worker in range(PROCESSES):
        mine = [c.message for c in reversed(commits) if c.message.startswith(f"worker{worker}/")]
        assert mine == [f"worker{worker}/{n}" for n in range(count)]
    assert repo.spec_version.value == spec_version
    if spec_version == 1:
        repo = upgrade_icechunk_repository(repo, dry_run=False)
    kinds = [type(update.kind).__name__ for update in repo.ops_log()][2 - spec_version :]
    assert kinds == ["NewCommit"] * PROCESSES * count + ["RepoInitialized"]
    # Every version that the history promises can be read.
    for commit in commits[:: len(commits) // 20]:
        repo.readonly_session(snapshot_id=commit.id).workspace.children("/")


@pytest.mark.sample(1, 1)
@pytest.mark.deep
@pytest.mark.timeout(300)
@pytest.mark.parametrize("spec_version", [1, 2])
def test_no_commit_is_lost_or_duplicated(spec_version: int, tmp_path: Path) -> None:
    Repository.create(local_filesystem_storage(str(tmp_path)), spec_version=spec_version)
    count = 10 * spec_version
    for process in [start(tmp_path, worker, count) for worker in range(PROCESSES)]:
        finish(process)
    check(tmp_path, count, spec_version)
