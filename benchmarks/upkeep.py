"""Upkeep of a repository with many versions and references: time and memory of each operation.

Every operation runs on a copy of the repository, and in a process of its own, so that its peak of memory is
its own. The peak includes the imports and the open repository. The times do not: each operation runs first on
an empty repository, because Frazil imports some modules at their first use.

    python benchmarks/upkeep.py VERSIONS REFERENCES CHUNK_FILES [TEXT]     operations whose names contain TEXT
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from measure import Measured, peak_mib, scratch
from shared_inputs import INPUTS, shared_input

TOMORROW: Final = datetime.now(UTC) + timedelta(days=1)


def operations(
    implementation: str, versions: int, references: int, chunk_files: int, separate: bool = True
) -> Measured:
    """Measure each operation. ``separate`` gives each a process of its own."""
    sizes = (versions, references, chunk_files)
    call = in_process if separate else called
    out = Measured()
    for name, operation in OPERATIONS.items():
        if implementation in operation.implementations:
            out |= values(implementation, name, source(operation.chunks, sizes, call), call)
    return out


type Call = Callable[..., Any]


def source(chunks: str, sizes: tuple[int, int, int], call: Call) -> Path:
    """Return the folder of a repository."""
    name = "-".join(map(str, (chunks, *sizes)))
    return shared_input(name, lambda folder: call(make, chunks, folder, sizes))


def make(chunks: str, folder: Path, sizes: tuple[int, int, int]) -> None:
    """Make a repository."""
    # Not at the top: the process of the other implementation must not import Frazil.
    versions = importlib.import_module("versions")
    getattr(versions, chunks)(folder, versions.Sizes(*sizes))


def values(implementation: str, name: str, repository: Path, call: Call) -> dict[str, float]:
    """Measure one operation on a copy of the repository."""
    with scratch() as folder:
        root = f"{folder}/copy"
        # Links, because no implementation changes a file in place.
        shutil.copytree(repository, root, copy_function=os.link)
        for step in name.split(", then "):
            seconds, used, peak = call(measured, implementation, step, root)
    return {f"{name}, s": seconds, f"{name}, processor s": used, f"{name}, peak MiB": peak}


def in_process(function: Call, *arguments: Any) -> Any:
    """Call a function in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def called(function: Call, *arguments: Any) -> Any:
    """Call a function in this process."""
    return function(*arguments)


def measured(implementation: str, name: str, root: str) -> tuple[float, float, float]:
    """Return the seconds and processor seconds of an operation, and the peak of memory in MiB."""
    package = importlib.import_module(implementation)
    repo = package.Repository.open(package.local_filesystem_storage(root))
    run = OPERATIONS[name.removesuffix(" again")].run
    with suppress(AssertionError):  # imports of the first call are not measured
        run(package.Repository.create(package.in_memory_storage()))
    start, start_of_use = time.perf_counter(), time.process_time()
    run(repo)
    return time.perf_counter() - start, time.process_time() - start_of_use, peak_mib()


def expire(repo: Any) -> None:
    """Expire half of the versions."""
    times = [each.written_at for each in repo.ancestry(branch="main")]
    assert len(repo.expire_snapshots(times[len(times) // 2])) > len(times) // 3


def collect(repo: Any) -> None:
    """Collect garbage."""
    repo.garbage_collect(TOMORROW)


def retain(repo: Any) -> None:
    """Keep one version of each hour."""
    frazil = importlib.import_module("frazil")
    assert len(repo.upkeep.retain(frazil.Retention(last=10, hourly="all")).apply().removed)


def verify(level: str, repo: Any) -> None:
    """Verify the repository."""
    report = repo.upkeep.verify(level)
    assert report.ok, str(report)


def compact(repo: Any) -> None:
    """Merge the packs of all versions."""
    assert repo.upkeep.compact("fewer files", branch="main").apply().new_files


def clone(repo: Any) -> None:
    """Clone the repository into another folder."""
    frazil = importlib.import_module("frazil")
    pipeline = importlib.import_module("frazil.pipeline")
    with scratch() as folder:
        pipeline.clone_repository(repo, frazil.local_filesystem_storage(f"{folder}/clone"), engine="inline")


def withdrawal(
    implementation: str, versions: int, references: int, separate: bool = True
) -> dict[str, float]:
    """Withdraw a half of the references of each version."""
    sizes, call = (versions, references, 0), in_process if separate else called
    repository, out = source("packed", sizes, call), Measured()
    with scratch() as folder:
        root = f"{folder}/copy"
        shutil.copytree(repository, root, copy_function=os.link)
        seconds, used, peak = call(forgotten, versions, references, root)
    return out | {"forget, s": seconds, "forget, processor s": used, "forget, peak MiB": peak}


def forgotten(versions: int, references: int, root: str) -> tuple[float, float, float]:
    """Return the seconds and processor seconds of a withdrawal with its certificate, and the peak in MiB."""
    frazil = importlib.import_module("frazil")
    repo = frazil.Repository.open(frazil.local_filesystem_storage(root))
    each = references // versions
    boxes = [slice(number * each + each // 4, number * each + 3 * each // 4) for number in range(versions)]
    start, start_of_use = time.perf_counter(), time.process_time()
    certificate = repo.upkeep.forget({"a": boxes}).apply()
    seconds, used = time.perf_counter() - start, time.process_time() - start_of_use
    assert certificate.ok, str(certificate)
    assert certificate.counts["bytes_removed"] >= 2 * (references - versions)
    return seconds, used, peak_mib()


def view(repo: Any) -> None:
    """Make a view of all chunks of the repository in another folder."""
    frazil = importlib.import_module("frazil")
    make_view = importlib.import_module("frazil.pipeline").view_repository
    assert len(list(repo.ancestry(branch="main"))) > 1
    with scratch() as folder:
        made = make_view(repo, frazil.local_filesystem_storage(f"{folder}/view"), engine="inline")
        assert made.chunks
        assert not made.copied


class Operation(NamedTuple):
    """An operation on a repository whose chunks are ``loose`` or ``packed``."""

    run: Callable[[Any], Any]
    chunks: str = "loose"
    implementations: tuple[str, ...] = ("frazil", "icechunk")


_ALONE: Final = ("frazil",)

#: Each operation by name. "A, then B" measures only B.
OPERATIONS: Final[dict[str, Operation]] = {
    "expire": Operation(expire),
    "collect": Operation(collect),
    "collect, then collect again": Operation(collect),
    "expire, then collect": Operation(collect),
    "statistics": Operation(lambda repo: repo.chunk_storage_stats()),
    "rewrite manifests": Operation(lambda repo: repo.rewrite_manifests("again", branch="main")),
    "retention": Operation(retain, implementations=_ALONE),
    "verify": Operation(partial(verify, "metadata"), implementations=_ALONE),
    "verify that files exist": Operation(partial(verify, "exists"), "packed", _ALONE),
    "verify checksums": Operation(partial(verify, "checksum"), "packed", _ALONE),
    "compact": Operation(compact, "packed", _ALONE),
    "clone": Operation(clone, "packed", _ALONE),
    "view": Operation(view, implementations=_ALONE),
    "view of packs": Operation(view, "packed", _ALONE),
}


def main(versions: str, references: str, chunk_files: str, text: str = "") -> None:
    sizes = (int(versions), int(references), int(chunk_files))
    with scratch() as folder:
        os.environ.setdefault(INPUTS, folder)
        for name, operation in OPERATIONS.items():
            for package in operation.implementations if text in name else ():
                repository = source(operation.chunks, sizes, in_process)
                found = values(package, name, repository, in_process).values()
                print(f"{name:30} {package:10}", *(f"{value:8.2f}" for value in found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
