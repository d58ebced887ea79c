"""The options that operations on arrays share: run options, and the chunks and shards of the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from frazil.jobs.run_options import BoundedRunOptions, Run
from frazil.pipeline.transform.array_arguments import Lengths


class _Chunks(TypedDict, total=False):
    """The chunks of the results.

    Attributes:
        chunks: The chunk lengths of the results: one for each axis, or a mapping of dimensions. -1 is the
            whole axis. The default, None, keeps the chunk lengths of the source.
    """

    chunks: Lengths | None


class _Grid(_Chunks, total=False):
    """The chunks and shards of the results.

    Attributes:
        shards: The shard lengths of the results, in the same form as ``chunks`` and a multiple of them. The
            default, None, makes no shards.
    """

    shards: Lengths | None


class ChunkRunOptions(_Chunks, BoundedRunOptions, total=False):
    """The options of `BoundedRunOptions`, and the chunks of the results."""


class GridRunOptions(_Grid, BoundedRunOptions, total=False):
    """The options of `ChunkRunOptions`, and the shards of the results."""


@dataclass(frozen=True, slots=True)
class ChunkRun(Run):
    """The values of `ChunkRunOptions`, with their defaults."""

    chunks: Lengths | None = None


@dataclass(frozen=True, slots=True)
class GridRun(ChunkRun):
    """The values of `GridRunOptions`, with their defaults."""

    shards: Lengths | None = None
