"""The rules for manifests.

Specification: *Chunk Manifest Files*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from frazil.format.columns import I64
from frazil.format.coordinates import ascending, by_rank, cut, read_coordinates
from frazil.format.envelope import FileType
from frazil.format.flatbuffer import Tables
from frazil.format.ids import NODE_ID_BYTES, OBJECT_ID_BYTES, id_keys, id_list, id_to_text
from frazil.format.rules.headers import violations_of
from frazil.format.rules.violation import Violation, absent_fields, broken, unsorted_ids

_ARRAYS, _DICTIONARY, _ALGORITHM = 1, 2, 3
_INDEX, _INLINE, _OFFSET, _LENGTH, _CHUNK_ID, _LOCATION, _ETAG, _MODIFIED, _COMPRESSED = range(9)
_ALGORITHMS: Final = (0, 1)


def manifest_violations(data: Any, id_: bytes, spec_version: int) -> list[Violation]:
    """Return the rules that the file of the manifest ``id_`` breaks.

    >>> from frazil.format.manifest import Manifest, encode_manifest
    >>> manifest_violations(encode_manifest(Manifest(bytes(12), {})), bytes(12), 2)
    []
    """

    def every(root: Tables, version: int) -> Iterator[Violation]:
        yield from broken((_identity,), root, id_)
        yield from broken(_RULES, root)

    return violations_of(data, FileType.MANIFEST, spec_version, every)


def _identity(root: Tables, id_: bytes) -> Iterator[Violation]:
    stored = root.structs(0, OBJECT_ID_BYTES).tobytes()
    if stored != id_:
        yield Violation("manifest-id", f"the id must be {id_to_text(id_)}, got {id_to_text(stored)}")


def _required(root: Tables) -> Iterator[Violation]:
    arrays = root.children(_ARRAYS)[0]
    names = absent_fields(root, {0: "id", _ARRAYS: "arrays"})
    names += absent_fields(arrays, {0: "node_id of an array", 1: "refs of an array"})
    names += absent_fields(arrays.children(1)[0], {_INDEX: "index of a reference"})
    if names:
        yield Violation("manifest-required", f"these required fields are absent: {', '.join(names)}")


def _order(root: Tables) -> Iterator[Violation]:
    arrays = root.children(_ARRAYS)[0]
    ids = arrays.structs(0, NODE_ID_BYTES)
    yield from unsorted_ids("arrays-sorted", "arrays", id_keys(ids))
    refs, counts = arrays.children(1)
    ranks = refs.numbers(_INDEX, "<u4").lengths
    firsts = np.minimum(np.cumsum(counts) - counts, max(len(ranks) - 1, 0))
    wrong = np.flatnonzero(ranks != np.repeat(ranks[firsts], counts)) if len(ranks) else ranks
    if len(wrong):
        owner = int(np.repeat(np.arange(len(counts)), counts)[wrong[0]])
        detail = (
            f"all coordinates of an array must have {ranks[firsts[owner]]} numbers, got {ranks[wrong[0]]}"
        )
        yield Violation("ref-rank", detail, ids[owner].tobytes())
        return
    nodes = id_list(ids)
    for row in unsorted_rows(refs, _INDEX, counts):
        yield Violation("refs-sorted", "references must be sorted by coordinates, each once", nodes[row])


def unsorted_rows(tables: Tables, slot: int, counts: I64) -> list[int]:
    """Return the arrays whose coordinates are not strictly ascending.

    One comparison covers all arrays of one rank: the number of the array is the first column.
    """
    numbers, ndims, starts = read_coordinates(tables, slot, counts)
    wrong: list[int] = []
    for ndim, members, _ in by_rank(ndims, counts):
        chosen = np.array(members)
        parts = cut(numbers, starts[chosen], counts[chosen], np.full(len(chosen), ndim))
        owners = np.repeat(np.arange(len(members), dtype=np.uint32), counts[chosen])
        whole = np.column_stack((owners, np.concatenate(parts)))
        if not ascending(whole):
            wrong += [member for member, part in zip(members, parts, strict=True) if not _single(part)]
    return wrong


def _single(index: Any) -> bool:
    return len(index) < 2 if not index.shape[1] else ascending(index)


def _kinds(root: Tables) -> Iterator[Violation]:
    arrays = root.children(_ARRAYS)[0]
    refs, counts = arrays.children(1)
    kinds = np.zeros(len(refs), np.uint8)
    for slots in ((_INLINE,), (_CHUNK_ID,), (_LOCATION, _COMPRESSED)):
        kinds += np.any([refs.present(slot) for slot in slots], axis=0)
    owners = np.repeat(np.arange(len(counts)), counts)
    nodes = arrays.structs(0, NODE_ID_BYTES)
    wrong = np.flatnonzero(kinds != 1)
    if len(wrong):
        detail = f"a reference must be inline, native or virtual, got {kinds[wrong[0]]} of these"
        yield Violation(
            "ref-kind", f"{detail}, in {len(wrong)} references", nodes[owners[wrong[0]]].tobytes()
        )
    both = np.flatnonzero(refs.present(_ETAG) & refs.present(_MODIFIED))
    if len(both):
        detail = f"a reference must have an etag or a time, got both in {len(both)} references"
        yield Violation("ref-checksum", detail, nodes[owners[both[0]]].tobytes())
    offset, length = refs.scalars(_OFFSET, "<u8"), refs.scalars(_LENGTH, "<u8")
    over = np.flatnonzero(offset + length < offset)
    if len(over):
        detail = f"a range must end before byte 2^64, got {length[over[0]]} bytes from {offset[over[0]]}"
        yield Violation("ref-range", detail, nodes[owners[over[0]]].tobytes())


def _locations(root: Tables) -> Iterator[Violation]:
    algorithm = int(root.scalars(_ALGORITHM, "u1", 1)[0])
    if algorithm not in _ALGORITHMS:
        yield Violation("location-compression", f"the compression must be 0 or 1, got {algorithm}")
    refs = root.children(_ARRAYS)[0].children(1)[0]
    if algorithm == 1 and refs.present(_COMPRESSED).any() and not root.vectors(_DICTIONARY).lengths[0]:
        yield Violation("location-dictionary", "compressed locations need a dictionary, got none")
    plain = refs.take(refs.present(_LOCATION))
    targets = np.unique(plain.targets(_LOCATION)[0])
    starts, lengths = plain.buffer.vectors(targets, 1)
    values = plain.buffer.bytes
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        text = values[start : start + length].tobytes()
        if b":" not in text or not _is_text(text):
            yield Violation("ref-location", f"a location must be a URL in UTF-8, got {text[:80]!r}")
            return


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


_RULES: Final = (_required, _order, _kinds, _locations)

__all__ = ["manifest_violations", "unsorted_rows"]
