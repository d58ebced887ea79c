"""Print headings, tables, the tree of a group, and the files of each commit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zarr

from frazil.jobs.progress import size

KINDS = ("chunks", "manifests", "snapshots", "transactions", "repo", "overwritten")


@contextmanager
def step(number: int, title: str) -> Iterator[None]:
    """Print the heading of a step, and at the end its duration."""
    print(f"\n{number}. {title}\n")
    start = time.monotonic()
    yield
    print(f"\n{'':60}{time.monotonic() - start:6.1f} s")


def say(text: str = "") -> None:
    print(f"   {text}".rstrip())


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. The first column is aligned to the left, and the others to the right."""
    lines = [tuple(map(str, row)) for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        cells = [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]
        say("  ".join(cells))
        if number == 0:
            say("  ".join("─" * width for width in widths))


def tree(group: zarr.Group, margin: str = "") -> None:
    """Print a group and all nodes below it."""
    members = sorted(group.members())
    for number, (name, node) in enumerate(members, 1):
        branch, below = ("└── ", "    ") if number == len(members) else ("├── ", "│   ")
        say(margin + branch + name + (described(node) if isinstance(node, zarr.Array) else ""))
        if isinstance(node, zarr.Group):
            tree(node, margin + below)


def described(array: zarr.Array[Any]) -> str:
    grid = "" if array.chunks == array.shape else f", chunks of {numbers(array.chunks)}"
    shape = f" {numbers(array.shape)}" if array.shape else ""
    return f": {array.dtype}{shape}{grid}"


def numbers(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


@dataclass(slots=True)
class Costs:
    """The files that each commit added to the directory of a repository."""

    root: Path
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def commit(self, name: str) -> None:
        """Count the files that are new since the last call as files of this commit."""
        now = {
            path.relative_to(self.root).as_posix(): (stat.st_mtime_ns, stat.st_size)
            for path in self.root.rglob("*")
            if path.is_file() and (stat := path.stat())
        }
        new = {path: size_ for path, (_, size_) in now.items() if self.seen.get(path) != now[path]}
        by_kind = [[size_ for path, size_ in new.items() if path.split("/")[0] == kind] for kind in KINDS]
        cells = [f"{size(sum(sizes))} in {len(sizes)}" if sizes else "-" for sizes in by_kind]
        self.rows.append((name, *cells, size(sum(new.values()))))
        self.seen = now

    def show(self) -> None:
        table(("commit", *KINDS, "total"), self.rows)
