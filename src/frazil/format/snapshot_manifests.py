"""The manifests of a snapshot, without the rest of its file. Upkeep reads thousands of snapshots for them.

A snapshot has a list of its manifests, and its arrays refer to manifests. A manifest that is not in the list
is included, with unknown sizes (0).

Specification: *Snapshot Files*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from frazil.errors import FormatError
from frazil.format.columns import I64, U8, U64
from frazil.format.envelope import FileType, open_envelope, reading
from frazil.format.flatbuffer import Buffer
from frazil.format.ids import OBJECT_ID_BYTES, id_order, ids_among
from frazil.format.joined_files import IRREGULAR, JoinedFiles
from frazil.format.row_vectors import require
from frazil.format.snapshot import ManifestFiles, read_manifest_files, require_fields

_REQUIRED: Final = "snapshot-required"
_KIND, _DATA = 3, 4
_ARRAY: Final = 1
#: The spec version of snapshots that are read together.
_JOINED_VERSION: Final = 2
#: The largest payload of a snapshot that is read together with others.
_JOINED_BYTES: Final = 1 << 19
_FILE_BITS: Final = 6
#: The largest number of snapshots that are read together.
MOST_JOINED: Final = 1 << _FILE_BITS


@dataclass(frozen=True, slots=True, eq=False)
class ManifestsOfSnapshot:
    """The id of a snapshot, and its manifests, each once, sorted by id."""

    id: bytes
    files: ManifestFiles


def decode_manifests_of_snapshot(data: Any, name: str) -> ManifestsOfSnapshot:
    """Read only the manifests of a snapshot, much faster than ``decode_snapshot``."""
    with reading(name):
        header, payload = open_envelope(data, FileType.SNAPSHOT)
        root = Buffer(payload).root()
        require_fields(root)
        files = read_manifest_files(root, header.spec_version)
        nodes, _ = root.children(2)
        require(nodes, "node", _REQUIRED, node_type=_KIND, node_data=_DATA)
        arrays, _ = nodes.take(nodes.scalars(_KIND, np.uint8) == _ARRAY).tables(_DATA)
        require(arrays, "array", _REQUIRED, manifests=2)
        refs, _ = arrays.children(2)
        require(refs, "manifest reference", _REQUIRED, object_id=0)
        used = refs.structs(0, OBJECT_ID_BYTES)
        files = files.distinct()
        # Mostly, the arrays use each listed manifest once. Then a sort is enough, and no search is needed.
        is_listed = len(used) == len(files) and np.array_equal(used[id_order(used)], files.ids)
        unlisted = used[:0] if is_listed else used[~ids_among(used, files.ids)]
        if len(unlisted):
            unknown = ManifestFiles(
                np.concatenate([files.ids, unlisted]),
                np.append(files.size_bytes, np.zeros(len(unlisted), np.uint64)),
                np.append(files.num_chunk_refs, np.zeros(len(unlisted), np.uint32)),
            )
            files = unknown.sorted().distinct()
        return ManifestsOfSnapshot(root.structs(0, OBJECT_ID_BYTES).tobytes(), files)


def decode_manifests_of_snapshots(files: Sequence[Any]) -> list[ManifestsOfSnapshot] | None:
    """Read the manifests of some small snapshots together."""
    try:
        roots = JoinedFiles.of(map(_payload, files)).roots()
        require_fields(roots)
        listed, counts = roots.children(7)
        ids = listed.structs(0, OBJECT_ID_BYTES)
        sizes, references = listed.scalars(1, "<u8"), listed.scalars(2, "<u4")
        nodes, _ = roots.children(2)
        require(nodes, "node", _REQUIRED, node_data=_DATA)
        arrays = nodes.take(nodes.scalars(_KIND, np.uint8) == _ARRAY).tables(_DATA)
        refs, _ = arrays.children(2)
        if not _same_ids(ids, listed.rows.files, refs.structs(0, OBJECT_ID_BYTES), refs.rows.files):
            return None
    except IRREGULAR:
        return None
    table = ManifestFiles(ids, sizes, references)
    stops = np.cumsum(counts)
    names = map(bytes, roots.structs(0, OBJECT_ID_BYTES))
    bounds = zip(names, (stops - counts).tolist(), stops.tolist(), strict=True)
    return [ManifestsOfSnapshot(name, table.part(start, stop)) for name, start, stop in bounds]


def _payload(data: Any) -> Any:
    header, payload = open_envelope(data, FileType.SNAPSHOT, _JOINED_BYTES)
    if header.spec_version != _JOINED_VERSION:
        raise FormatError("the snapshot has another spec version")
    return payload


def _same_ids(listed: U8, files: I64, used: U8, users: I64) -> bool:
    """Return whether all lists are sorted, and the arrays of each file use exactly its list."""
    keys = _keys(listed, files)
    if not (keys[1:] > keys[:-1]).all():
        return False
    order = np.argsort(_keys(used, users))
    used, users = used[order], users[order]
    if len(used) > len(listed):  # arrays share manifests
        new = np.ones(len(used), np.bool_)
        np.not_equal(users[1:], users[:-1], out=new[1:])
        new[1:] |= (used[1:] != used[:-1]).any(axis=1)
        used, users = used[new], users[new]
    return np.array_equal(users, files) and np.array_equal(used, listed)


def _keys(ids: U8, files: I64) -> U64:
    """Return numbers that sort by the file, then by the first 58 bits of the id."""
    words = ids.view(">u4").reshape(len(ids), 3)
    keys: U64 = words[:, 0].astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= words[:, 1]
    keys >>= np.uint64(_FILE_BITS)
    keys |= files.astype(np.uint64) << np.uint64(64 - _FILE_BITS)
    return keys
