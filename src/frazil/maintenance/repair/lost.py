"""Chunks for which there is no copy: the versions that need them, and older versions with other data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frazil.errors import IcechunkError
from frazil.format.columns import U8, U32, U64
from frazil.format.ids import id_from_text, id_keys, id_matrix, id_to_text, is_id_text
from frazil.format.keys import CHUNKS
from frazil.format.manifest import ChunkKind, ChunkTable
from frazil.maintenance.listing import among
from frazil.maintenance.repair.chunk_uses import ChunkUses, VersionFiles, chunk_uses, version_files
from frazil.maintenance.repair.repair_plan import LostChunks
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.context import Context
from frazil.storage.outages import is_outage


def lost_chunks(
    context: Context, findings: Iterable[Finding], paths: Mapping[bytes, str]
) -> list[LostChunks]:
    """Return the chunks with findings about their chunk files."""
    named = {each.key: id_from_text(name) for each in findings if (name := chunk_name(each.key)) is not None}
    groups: dict[tuple[str, bytes], list[Finding]] = {}
    for each in findings:
        if each.key in named and len(each.offsets):
            groups.setdefault((each.key, each.node), []).append(each)
    if not groups:
        return []
    files = id_matrix(list(named.values()))
    versions = version_files(context)
    uses = chunk_uses(context, versions, files)
    users = dict(zip(map(bytes, uses.files), _users(versions, uses), strict=True))
    cells: dict[tuple[str, bytes], U32] = {}
    offsets: dict[tuple[str, bytes], U64] = {}
    for pair, parts in groups.items():
        every = np.concatenate([each.coordinates for each in parts])
        places = np.concatenate([each.offsets for each in parts])
        _, rows = np.unique(np.column_stack((every.astype(np.uint64), places)), axis=0, return_index=True)
        cells[pair], offsets[pair] = every[rows], places[rows]
    ranges = np.concatenate([_ranges(named[key], offsets[key, node]) for key, node in cells])
    previous = _previous(_Search(context, versions, ranges), cells)
    return [
        LostChunks(
            key,
            paths.get(node),
            node,
            coordinates,
            users[named[key]],
            previous[key, node],
            offsets[key, node],
        )
        for (key, node), coordinates in cells.items()
    ]


def _users(versions: VersionFiles, uses: ChunkUses) -> list[tuple[str, ...]]:
    """Return the versions that need each file, as text. Many files have the same manifests."""
    answers: dict[bytes, tuple[str, ...]] = {}
    for each in uses.manifests:
        if each.tobytes() not in answers:
            answers[each.tobytes()] = tuple(map(id_to_text, versions.users(each)))
    return [answers[each.tobytes()] for each in uses.manifests]


def _previous(
    search: _Search, cells: Mapping[tuple[str, bytes], U32]
) -> dict[tuple[str, bytes], tuple[str | None, ...]]:
    """Return the newest version with other data of each chunk, with one search for each array."""
    names = [id_to_text(id_) for id_ in search.newest_first]
    pairs: dict[bytes, list[tuple[str, bytes]]] = {}
    for key, node in cells:
        pairs.setdefault(node, []).append((key, node))
    answer: dict[tuple[str, bytes], tuple[str | None, ...]] = {}
    for node, own in pairs.items():
        newest = search.previous(node, np.concatenate([cells[pair] for pair in own])).tolist()
        texts = [None if at < 0 else names[at] for at in newest]
        start = 0
        for pair in own:
            stop = start + len(cells[pair])
            answer[pair] = tuple(texts[start:stop])
            start = stop
    return answer


def chunk_name(key: str) -> str | None:
    """Return the id in the key of a chunk file as text, or None for other keys.

    >>> chunk_name("chunks/1CECHNKREP0F1RSTCMT0"), chunk_name("repo")
    ('1CECHNKREP0F1RSTCMT0', None)
    """
    folder, _, name = key.partition("/")
    return name if folder == CHUNKS and is_id_text(name) else None


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """The search for older data. ``damaged`` are the lost ranges of chunk files: see ``lost_ranges``."""

    context: Context
    versions: VersionFiles
    damaged: U8

    @property
    def newest_first(self) -> tuple[bytes, ...]:
        """The ids of all versions that can be read, newest first."""
        return tuple(reversed(self.versions.versions))

    def previous(self, node: bytes, coordinates: U32) -> NDArray[np.int64]:
        """Return the number of the newest version with other data for each chunk, or -1. Newest is 0."""
        newest = np.full(len(coordinates), -1, np.int64)
        seen: dict[bytes, NDArray[np.bool_]] = {}
        for number, version in enumerate(self.newest_first):
            waiting = newest < 0
            if not waiting.any():
                break
            good = self._good_in(version, node, coordinates, seen)
            newest[waiting & good] = number
        return newest

    def _good_in(
        self, version: bytes, node: bytes, coordinates: U32, seen: dict[bytes, NDArray[np.bool_]]
    ) -> NDArray[np.bool_]:
        """Return which chunks have a reference to readable data in a version. ``seen`` is by manifest."""
        good = np.zeros(len(coordinates), bool)
        try:
            nodes = self.context.assets.snapshot(version).nodes
            row = np.flatnonzero(id_keys(nodes.ids) == np.frombuffer(node, id_keys(nodes.ids).dtype)[0])
            if not len(row):
                return good
            array = nodes.node(int(row[0])).array
        except IcechunkError as error:  # there is a finding for it
            if is_outage(error):
                raise
            return good
        for ref in () if array is None else array.manifests:
            box = np.array(ref.extents, np.uint64)
            if coordinates.shape[1] != len(box):
                continue
            inside = ((coordinates >= box[:, 0]) & (coordinates < box[:, 1])).all(axis=1)
            if inside.any():
                if ref.id not in seen:
                    seen[ref.id] = self._good_at(ref.id, node, coordinates)
                good |= inside & seen[ref.id]
        return good

    def _good_at(self, manifest: bytes, node: bytes, coordinates: U32) -> NDArray[np.bool_]:
        good = np.zeros(len(coordinates), bool)
        try:
            table = self.context.assets.manifest(manifest).arrays.get(node)
        except IcechunkError as error:
            if is_outage(error):
                raise
            return good
        if table is not None:
            rows = table.find_chunks(coordinates)
            has = rows >= 0
            good[has] = ~is_lost(table.select_chunks(rows[has]), self.damaged)
        return good


def is_lost(table: ChunkTable, damaged: U8) -> NDArray[np.bool_]:
    """Return which references of a table point to one of the lost ranges."""
    native = table.kind == ChunkKind.NATIVE
    hit = np.zeros(len(table), bool)
    ids = table.chunk_ids[table.source[native]]
    hit[native] = among(np.hstack((ids, _bytes(table.offset[native]))), damaged)
    return hit


def lost_ranges(lost: Iterable[LostChunks]) -> U8:
    """Return the ranges of lost chunks: the id of the file and the offset of each, uint8 (n, 20)."""
    parts = [_ranges(id_from_text(name), each.offsets) for each in lost if (name := chunk_name(each.key))]
    return np.concatenate(parts)


def _ranges(id_: bytes, offsets: U64) -> U8:
    ids = np.tile(np.frombuffer(id_, np.uint8), (len(offsets), 1))
    return np.hstack((ids, _bytes(offsets)))


def _bytes(offsets: U64) -> U8:
    return offsets.astype(">u8").view(np.uint8).reshape(len(offsets), 8)


def lost_files(lost: Iterable[LostChunks]) -> U8:
    """Return the ids of the chunk files of lost chunks, each once, (n, 12)."""
    names = dict.fromkeys(chunk_name(each.key) for each in lost)
    return id_matrix([id_from_text(name) for name in names if name is not None])
