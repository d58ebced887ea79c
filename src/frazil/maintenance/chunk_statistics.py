"""Statistics of chunks that exist: a file for each manifest of a version, from the chunks that have none.

A manifest whose references all have statistics is not read. Chunks that an earlier version has too are not
read either. The references of another program's commit so cost what that commit has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from frazil.answers.tiles import Mask, known_table, known_tiles, may_have_statistics
from frazil.arrays.box_reading import read_whole_chunks
from frazil.arrays.element_statistics import Meaning, chunk_rows, has_meaning, meaning_of
from frazil.arrays.encoding import Encoding, encoding_of, tiles_of_chunks
from frazil.display import Record
from frazil.engines import Engine, EngineName
from frazil.format.chunk_statistics import ChunkStatistics, blank_rows, row_dtype
from frazil.format.chunk_table import ChunkKind, ChunkTable, within
from frazil.format.ids import statistics_key
from frazil.format.snapshot import Node
from frazil.format.statistics_file import encode_statistics
from frazil.repository.catalog.assets import MANIFEST, with_read_statistics
from frazil.repository.catalog.context import Context
from frazil.repository.session.workspace import Workspace
from frazil.survey.survey import Progress, run_with
from frazil.threads import Purpose, map_bounded

#: The most bytes of chunks that are read together.
_BATCH: Final = 64 << 20
_THREADS: Final = 16


@dataclass(frozen=True, slots=True, repr=False)
class StatisticsReport(Record, shown_as="maintenance.StatisticsReport"):
    """What `Upkeep.build_statistics` did.

    Attributes:
        manifests: The number of manifests of the arrays.
        manifests_written: How many of them have new statistics.
        chunks: The number of chunks in these manifests. The inner chunks of shards count as their shard.
        chunks_read: How many of them were read.
        chunks_failed: How many could not be read or decoded. ``verify`` names the damage.
    """

    manifests: int = 0
    manifests_written: int = 0
    chunks: int = 0
    chunks_read: int = 0
    chunks_failed: int = 0

    def __add__(self, other: StatisticsReport) -> StatisticsReport:
        names = [each.name for each in fields(self)]
        return StatisticsReport(**{name: getattr(self, name) + getattr(other, name) for name in names})


def build_statistics(
    context: Context,
    snapshot_id: bytes,
    paths: Sequence[str] | None,
    engine: Engine | EngineName | None,
    progress: Progress,
    *,
    rebuild: bool = False,
) -> StatisticsReport:
    """Store the statistics of arrays of a version. Default: of all arrays that do not refuse them.

    ``rebuild``: whether to read all chunks, and to replace the statistics that are stored.
    """
    workspace = Workspace(context, snapshot_id)
    if paths is None:
        table = workspace.node_table()
        nodes = list(map(table.node, np.flatnonzero(table.is_array).tolist()))
    else:
        nodes = list(map(workspace.require_array, paths))
    is_single = paths is not None and len(nodes) == 1
    nodes = [
        node
        for node in nodes
        if has_meaning(node.user_data, node.path, required=is_single) and (paths or _is_wanted(node))
    ]
    users: dict[bytes, list[str]] = {}
    for node in nodes:
        for ref in node.array_data.manifests:
            users.setdefault(ref.id, []).append(node.path)
    items = [(snapshot_id, id_, tuple(names), rebuild) for id_, names in users.items()]
    progress.expect(len(items))
    report = StatisticsReport()
    for part in run_with(context, engine)(_build, items):
        report += part
        progress.advance()
    context.assets.forget_statistics(list(users))
    return report


def coverage(workspace: Workspace, rows: Sequence[int]) -> list[tuple[str, int, int]]:
    """Return arrays of numbers among rows of the node table: path, chunks, and chunks with statistics."""
    report = []
    for node in map(workspace.node_table().node, rows):
        meaning = meaning_of(node.user_data)
        if not has_meaning(node.user_data, node.path) or meaning is None or node.array is None:
            continue
        read = partial(known_table, workspace, node, meaning, is_cached=False)
        ids = [ref.id for ref in node.array.manifests]
        tables = [
            each for each in map_bounded(Purpose.CATALOG_READS, read, ids, _THREADS) if each is not None
        ]
        known = sum(int(_known(node, table).all(axis=1).sum()) for table in tables)
        report.append((node.path, sum(map(len, tables)), known))
    return report


def _known(node: Node, table: ChunkTable) -> Mask:
    """Return which tiles of each reference have statistics of the elements that an array has."""
    encoding, meaning = encoding_of(node.user_data), meaning_of(node.user_data)
    assert encoding is not None
    assert meaning is not None
    counts = (1,) * table.ndim if encoding.shards is None else encoding.shards.counts
    row, tile = np.divmod(np.arange(len(table) * prod(counts)), prod(counts))
    known = known_tiles(table, meaning, encoding, row, tile, tiles_of_chunks(counts, table.index))
    shape = len(table), prod(counts)
    return np.zeros(shape, np.bool_) if known is None else known.reshape(shape)


def _is_wanted(node: Node) -> bool:
    meaning = meaning_of(node.user_data)
    return meaning is not None and meaning.is_wanted is not False


def _build(context: Context, item: Any) -> Iterator[StatisticsReport]:
    """Store the statistics of the arrays of one manifest: a piece of work."""
    snapshot_id, id_, paths, rebuild = item
    workspace = Workspace(context, snapshot_id)
    arrays = dict(with_read_statistics(context.storage, MANIFEST.read(context.storage, id_)).arrays)
    report, is_changed = StatisticsReport(manifests=1), False
    for path in paths:
        node = workspace.require_array(path)
        meaning, encoding = meaning_of(node.user_data), encoding_of(node.user_data)
        stored = arrays.get(node.id)
        if meaning is None or encoding is None or stored is None or not len(stored):
            continue
        table = stored if rebuild else known_table(workspace, node, meaning, id_, is_cached=False) or stored
        if rebuild:
            is_changed |= table.statistics is not None
            table = replace(table, statistics=None)
        table, reads, failures = _completed(workspace, node, meaning, encoding, table)
        report += StatisticsReport(chunks=len(table), chunks_read=reads, chunks_failed=failures)
        is_changed |= bool((_known(node, table) & ~_known(node, stored)).any())
        arrays[node.id] = table
    if is_changed:
        context.storage.put(statistics_key(id_), encode_statistics(id_, arrays))
        report += StatisticsReport(manifests_written=1)
    yield report


def _completed(
    workspace: Workspace, node: Node, meaning: Meaning, encoding: Encoding, table: ChunkTable
) -> tuple[ChunkTable, int, int]:
    """Return the references with all statistics, and how many chunks were read, and have failed."""
    counts = (1,) * table.ndim if encoding.shards is None else encoding.shards.counts
    tiles, dtype = prod(counts), row_dtype(meaning.kind, table.ndim)
    statistics = table.statistics
    if statistics is None or statistics.context != meaning.context or statistics.rows.shape[1] != tiles:
        statistics = ChunkStatistics(meaning.context, blank_rows((len(table), tiles), dtype))
    is_unknown = ~_known(node, table).all(axis=1) & (table.kind != ChunkKind.ABSENT)
    is_unknown &= within(table.index, node.array_data.num_chunks) & may_have_statistics(table)
    unknown = np.flatnonzero(is_unknown)
    if not len(unknown):
        return table, 0, 0
    index = tiles_of_chunks(counts, table.index[unknown]).astype(np.uint32)
    is_failed, fresh = np.zeros(len(index), np.bool_), blank_rows((len(index),), dtype)
    for part, elements, failures in read_whole_chunks(workspace, node.path, encoding, index, _BATCH):
        fresh[part] = chunk_rows(meaning, encoding, index[part], elements)
        is_failed[part[failures]] = True
    fresh["known"][is_failed] = False
    failed = len(np.unique(np.flatnonzero(is_failed) // tiles))
    statistics = statistics.put(unknown, fresh.reshape(len(unknown), tiles))
    return replace(table, statistics=statistics), len(unknown), failed
