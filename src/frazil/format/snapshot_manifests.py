"""The manifests of a snapshot, without the rest of its file. Upkeep reads thousands of snapshots for them.

A snapshot has a list of its manifests, and its arrays refer to manifests. A manifest that is not in the list
is included, with unknown sizes (0).

Specification: *Snapshot Files*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from frazil.format.envelope import FileType, open_envelope, reading
from frazil.format.flatbuffer import Buffer
from frazil.format.ids import OBJECT_ID_BYTES, id_order, ids_among
from frazil.format.row_vectors import require
from frazil.format.snapshot import ManifestFiles, read_manifest_files

_KIND, _DATA = 3, 4
_ARRAY: Final = 1


@dataclass(frozen=True, slots=True, eq=False)
class ManifestsOfSnapshot:
    """The id of a snapshot, and its manifests, each once, sorted by id."""

    id: bytes
    files: ManifestFiles


def decode_manifests_of_snapshot(data: Any, name: str) -> ManifestsOfSnapshot:
    """Read only the manifests of a snapshot, much faster than ``decode_snapshot``.

    Raises:
        FormatError: With ``name``, if the bytes are not a snapshot.

    Examples:
        >>> from frazil.format.snapshot import encode_snapshot, initial_snapshot
        >>> file = encode_snapshot(initial_snapshot(0))
        >>> len(decode_manifests_of_snapshot(file, "snapshots/1CECHNKREP0F1RSTCMT0").files)
        0
    """
    with reading(name):
        header, payload = open_envelope(data, FileType.SNAPSHOT)
        root = Buffer(payload).root()
        require(root, "snapshot", 0, 2, 4, 5, 6)
        files = read_manifest_files(root, header.spec_version)
        nodes, _ = root.children(2)
        require(nodes, "node", _KIND, _DATA)
        arrays, _ = nodes.take(nodes.scalars(_KIND, np.uint8) == _ARRAY).tables(_DATA)
        require(arrays, "array", 2)
        refs, _ = arrays.children(2)
        require(refs, "manifest reference", 0)
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
