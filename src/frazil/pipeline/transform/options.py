"""The options that operations on arrays share: how they run, and the chunks and shards of their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from frazil.jobs.run_options import BoundedRunOptions, Run
from frazil.pipeline.transform.array_arguments import Lengths


class _Chunks(TypedDict, total=False):
    chunks: Lengths | None


class _Grid(_Chunks, total=False):
    shards: Lengths | None


class ChunkRunOptions(_Chunks, BoundedRunOptions, total=False):
    """`BoundedRunOptions`, and the chunks of the results.

    chunks      lengths for each axis, or by dimension; -1 is the whole axis. None: see the operation
    """


class GridRunOptions(_Grid, BoundedRunOptions, total=False):
    """`ChunkRunOptions`, and the shards of the results.

    shards      likewise; a multiple of the chunks. None: see the operation
    """


@dataclass(frozen=True, slots=True)
class ChunkRun(Run):
    """The values of `ChunkRunOptions`, with their defaults."""

    chunks: Lengths | None = None


@dataclass(frozen=True, slots=True)
class GridRun(ChunkRun):
    """The values of `GridRunOptions`, with their defaults."""

    shards: Lengths | None = None
