"""Many commits in one process on local files: memory, handles, threads and files, now and then.

Nothing of the repository grows here: collections unite the transaction logs of removed versions at once, and
not after 30 days. Otherwise these logs, their ids in `repo`, and the memory in which a collection lists them
grow with the commits.

The caches of the process are small: 10 snapshots and 50 manifests. With the defaults they have up to 500 and
7,500, and their growth until then would hide others.

The command lets ``malloc`` of glibc use one arena. By default, each thread may use another one, and in the
end each arena has the free memory of the largest task of any thread: 5 MiB more after 3,000 commits, without
one object more.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from unittest.mock import patch

from tests.histories import layout
from tests.histories.layout import SLOTS, Changes

import frazil
from frazil.maintenance import links

_HANDLES: Final = Path("/proc/self/fd")
_MEMORY: Final = Path("/proc/self/statm")


#: The parameter of ``mallopt`` with the number of arenas.
_ARENAS: Final = -8
#: How much each number may grow: a function of its early value, and of the number of commits since.
_LIMITS: Final[dict[str, Callable[[int, int], float]]] = {
    "memory": lambda before, commits: 2**20,
    "blocks": lambda before, commits: 500 + commits / 4,
    "handles": lambda before, commits: 2,
    "threads": lambda before, commits: 2,
    "backups": lambda before, commits: 2 + before / 8,
    "repo_size": lambda before, commits: before / 2,
    "files": lambda before, commits: 2 + before / 4,
}


@dataclass(frozen=True, slots=True)
class Sample:
    """The process and the repository after some commits."""

    commits: int  #: The number of commits.
    memory: int  #: Resident bytes of the process.
    blocks: int  #: Blocks of memory of Python objects.
    handles: int  #: Open handles.
    threads: int  #: Threads of Python.
    backups: int  #: Files in `overwritten/`.
    repo_size: int  #: Bytes of the file `repo`.
    files: int  #: Files of the repository.
    milliseconds: float  #: The mean time of the commits since the last sample.

    def line(self) -> str:
        """Return a line of the table."""
        return (
            f"{self.commits:>9}{self.memory / 2**20:>10.1f}{self.blocks:>9}{self.handles:>9}{self.threads:>9}"
            f"{self.backups:>9}{self.repo_size:>9}{self.files:>9}{self.milliseconds:>9.1f}"
        )


TITLE = "".join(
    f"{name:>{width}}"
    for name, width in (
        *(("commits", 9), ("MiB", 10), ("blocks", 9), ("handles", 9), ("threads", 9)),
        *(("backups", 9), ("repo", 9), ("files", 9), ("ms", 9)),
    )
)


def soak(folder: Path, commits: int, every: int) -> Iterator[Sample]:
    """Commit, remove and collect old versions after each ``every`` commits, and yield a sample."""
    storage = frazil.local_filesystem_storage(str(folder))
    config = layout.config(packs=True)
    config.caching = frazil.CachingConfig(num_snapshot_nodes=10_000, num_chunk_refs=100_000)
    repo = frazil.Repository.create(storage, config)
    layout.create(repo)
    config.session_lifetime = timedelta(seconds=1)  # for collections
    repo = repo.reopen(config)
    start = time.perf_counter()
    for number in range(1, commits + 1):
        changes = Changes({number % SLOTS: number + 1}, {})
        # A commit may take longer on a busy machine
        session = repo.writable_session("main", lifetime=timedelta(hours=1))
        layout.write(session.store, changes)
        session.commit(f"commit {number}")
        if number % every == 0:
            seconds = time.perf_counter() - start
            repo.upkeep.retain(frazil.Retention(last=20)).apply()
            keep = frazil.OpsLogRetention(last=100)
            with patch.object(links, "_AGE", timedelta(0)):
                repo.garbage_collect(datetime.now(UTC) - timedelta(milliseconds=1), keep_ops=keep)
            yield _sample(folder, number, 1000 * seconds / every)
            start = time.perf_counter()
    if not repo.upkeep.verify("checksum").ok:
        raise AssertionError(f"the repository has damage:\n{repo.upkeep.verify('checksum')}")


def _sample(folder: Path, commits: int, milliseconds: float) -> Sample:
    gc.collect()
    _libc_call("malloc_trim", 0)
    memory = int(_MEMORY.read_text().split()[1]) * resource.getpagesize()
    return Sample(
        commits,
        memory,
        sys.getallocatedblocks(),
        sum(1 for _ in _HANDLES.iterdir()),
        threading.active_count(),
        sum(1 for _ in (folder / "overwritten").iterdir()),
        (folder / "repo").stat().st_size,
        sum(1 for path in folder.rglob("*") if path.is_file()),
        milliseconds,
    )


def _libc_call(name: str, *values: int) -> None:
    """Call a function of glibc, where the process has it."""
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*values)


def main(arguments: list[str]) -> int:
    """Print a line for each sample. Return 1 if counts or memory grow."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories.soak")
    parser.add_argument("--commits", type=int, default=10_000)
    options = parser.parse_args(arguments)
    _libc_call("mallopt", _ARENAS, 1)
    print(TITLE, flush=True)
    folder = Path(tempfile.mkdtemp())
    samples = []
    try:
        for sample in soak(folder, options.commits, max(10, options.commits // 20)):
            print(sample.line(), flush=True)
            samples.append(sample)
    finally:
        shutil.rmtree(folder)
    growth = list(growing(samples))
    print("\n".join(growth) or "nothing grows")
    return min(1, len(growth))


def growing(samples: list[Sample]) -> Iterator[str]:
    """Yield what is larger in the last quarter than in the second one, by more than its limit."""
    quarter = len(samples) // 4
    early, late = samples[quarter : 2 * quarter], samples[3 * quarter :]
    commits = late[-1].commits - early[-1].commits
    for name, most in _LIMITS.items():
        before, after = (max(getattr(sample, name) for sample in part) for part in (early, late))
        if after > before + most(before, commits):
            yield f"{name} grows from {before} to {after}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
