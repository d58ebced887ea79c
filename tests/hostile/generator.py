"""Repositories in which one field of one file is broken, and the file is sealed again with correct checksums.

``breakages`` yields every such change of a file: a number gets values at its limits, an id changes, a field
is absent, a vector is empty, shorter, has two equal or two exchanged elements, or a text has other
characters. Example::

    for each in breakages(storage.get("repo"), "repo"):
        print(each.label)                   # for example: repo: snapshots[1].parent_offset = 2147483647
        damaged = with_file(storage, each)  # a copy of the storage with this file
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import zarr
from tests.hostile.schema import KINDS, Place, places
from tests.repository.version_1 import copy_of

import frazil
from frazil.format.envelope import HEADER_BYTES, open_envelope, seal
from frazil.storage.base import Storage

_SPEC_VERSION_BYTE = 36
_TEXTS = (b"", b"\0", b"\xff\xfe", b"/", b"../../x", b"\xed\xa0\x80")


@dataclass(frozen=True, slots=True)
class Breakage:
    """One changed file: its key, the field and the change, and its bytes."""

    key: str
    field: str
    change: str
    data: bytes

    @property
    def label(self) -> str:
        return f"{self.key.partition('/')[0]}: {self.field} {self.change}"


def repository(spec_version: int = 2) -> frazil.Storage:
    """A valid repository with every kind of file and reference, three commits, a branch and two tags."""
    return copy_of(_repository(spec_version))


@cache
def _repository(spec_version: int) -> frazil.Storage:
    storage = frazil.in_memory_storage()
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=12)
    config.set_virtual_chunk_container(
        frazil.VirtualChunkContainer("s3://bucket/", frazil.s3_store(region="us-east-1", anonymous=True))
    )
    repo = frazil.Repository.create(storage, config=config, spec_version=spec_version)
    repo.save_config()
    with repo.transaction("main", message="first", metadata={"by": "tests", "n": 1}) as store:
        group = zarr.create_group(store, attributes={"title": "é"})
        array = group.create_array(
            "g/a", shape=(6, 4), chunks=(2, 2), dtype="f8", dimension_names=("y", "x"), compressors=None
        )
        array[:] = np.arange(24.0).reshape(6, 4)
        small = group.create_array("s", shape=(3,), chunks=(1,), dtype="i4", compressors=None)
        small[:] = [1, 2, 3]
        group.create_array("scalar", shape=(), dtype="f4", compressors=None)[...] = 1.5
        virtual = group.create_array("v", shape=(2,), chunks=(1,), dtype="i4", compressors=None)
        assert virtual.shape == (2,)
        for at in range(2):
            store.set_virtual_ref(f"v/c/{at}", "s3://bucket/data", offset=4 * at, length=4, checksum="etag")
    first = repo.lookup_branch("main")
    repo.create_tag("v1", first)
    repo.create_tag("gone", first)
    repo.delete_tag("gone")
    repo.create_branch("dev", first)
    if spec_version == 2:
        session = repo.rearrange_session("main")
        session.move("/s", "/moved")
        session.commit("move")
        repo.set_metadata({"title": "hostile", "numbers": [1, None, 2.5]})
    with repo.transaction("main", message="second") as store:
        root = zarr.open_group(store, mode="r+")
        changed = root["g/a"]
        assert isinstance(changed, zarr.Array)
        changed[0, 0] = -1
        del root["scalar"]
        root.create_group("h")
    return storage


def keys(storage: Storage, folder: str) -> list[str]:
    """The keys of the files of a folder, or of the file ``repo``."""
    return sorted(info.key for info in storage.list("") if info.key.partition("/")[0] == folder)


def with_file(storage: Storage, broken: Breakage) -> frazil.Storage:
    """A copy of a storage in which one file is broken."""
    copy = copy_of(storage)
    copy.put(broken.key, broken.data)
    return copy


def breakages(data: bytes, key: str) -> Iterator[Breakage]:
    """Yield the file with each change of each field. ``key`` determines its type."""
    kind, table = KINDS[key.partition("/")[0]]
    payload = bytes(open_envelope(data, kind)[1])
    version = data[:HEADER_BYTES][_SPEC_VERSION_BYTE]
    for place in places(payload, table):
        for change, changed in _changes(payload, place):
            if changed != payload:
                yield Breakage(key, place.path, change, seal([changed], kind, spec_version=version, level=1))


def patched(data: bytes, at: int, new: bytes) -> bytes:
    """Return bytes with others at a position."""
    return data[:at] + new + data[at + len(new) :]


def _changes(data: bytes, place: Place) -> Iterator[tuple[str, bytes]]:
    if place.entry:
        yield "is absent", patched(data, place.entry, b"\0\0")
    if place.is_number:
        yield from _numbers(data, place)
    elif place.is_vector:
        yield from _vectors(data, place)
    elif place.width:
        old = data[place.at : place.at + place.width]
        yield "is zero", patched(data, place.at, bytes(place.width))
        yield "is another id", patched(data, place.at, bytes([old[0] ^ 1]) + old[1:])
        yield "is the largest id", patched(data, place.at, b"\xff" * place.width)
    else:
        yield "leads to itself", patched(data, place.at, bytes(4))


def _numbers(data: bytes, place: Place) -> Iterator[tuple[str, bytes]]:
    limit = 1 << 8 * place.width
    old = int.from_bytes(data[place.at : place.at + place.width], "little")
    for value in dict.fromkeys(
        (0, 1, old - 1, old + 1, old + 5, limit // 2 - 1, limit // 2, limit - 2, limit - 1)
    ):
        yield f"= {value % limit}", patched(data, place.at, (value % limit).to_bytes(place.width, "little"))


def _vectors(data: bytes, place: Place) -> Iterator[tuple[str, bytes]]:
    head = place.start - 4
    for count in (0, place.count - 1, place.count + 1):
        if count >= 0:
            yield f"has {count} elements", patched(data, head, count.to_bytes(4, "little"))
    elements = [data[place.start + place.width * at :][: place.width] for at in range(place.count)]
    if place.width == 1:
        for text in _TEXTS:
            if len(text) <= place.count:
                yield f"begins with {text!r}", patched(data, place.start, text)
        return
    if place.width != 4 or place.type == "[u4]":
        for at, element in enumerate(elements[:3]):
            start = place.start + place.width * at
            yield f"[{at}] is zero", patched(data, start, bytes(place.width))
            yield f"[{at}] is large", patched(data, start, b"\xff" * place.width)
            yield f"[{at}] is larger by one", patched(data, start, bytes([(element[0] + 1) % 256]))
        if len(elements) > 1:
            yield "has equal elements", patched(data, place.start, elements[1])
            yield "is not sorted", patched(data, place.start, elements[1] + elements[0])
    elif len(elements) > 1:
        first, second = (int.from_bytes(each, "little") for each in elements[:2])
        yield "has equal elements", patched(data, place.start, (second + 4).to_bytes(4, "little"))
        swapped = (second + 4).to_bytes(4, "little") + (first - 4).to_bytes(4, "little")
        yield "is not sorted", patched(data, place.start, swapped)
