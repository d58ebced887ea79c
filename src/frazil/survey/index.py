"""The stored index: what snapshots and manifests refer to, so that a survey reads only files that are new.

Snapshots and manifests are immutable, so what they refer to never changes. A collection stores it in one
object under ``walks/``: for each snapshot its manifests, and for each manifest the digests of its chunk
files. A later survey reads this object and the files that are not in it. The next collection stores a new
object without files that are gone. Other implementations ignore the folder.

No decision needs the object: without it, a survey reads all files again. Its bytes have a checksum, and
an object that is damaged, too large, or of another version is ignored.

    0   8 bytes   magic
    8  16 bytes   BLAKE2b of the rest
   24  40 bytes   five numbers, uint64: snapshots, manifests of snapshots, their uses; manifests, digests
   64             the columns, as one zstd frame

The object has at most ``MOST_DIGESTS`` digests and ``MOST_USES`` uses of manifests, about 130 MB. Files that
do not fit are read by every survey.
"""

from __future__ import annotations

import logging
from collections.abc import Buffer
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import numpy as np
import zstandard

from frazil.errors import ErrorKind, StorageError
from frazil.format.columns import U64, Ragged
from frazil.format.ids import OBJECT_ID_BYTES
from frazil.format.snapshot import ManifestFiles
from frazil.repository.catalog.collection_guard import new_key
from frazil.storage.base import Storage
from frazil.survey.columns import ManifestChunks, SnapshotManifests
from frazil.survey.digests import DIGEST_BYTES

_log = logging.getLogger(__name__)

INDEXES: Final = "walks"

_MAGIC: Final = b"FRAZWLK1"
_HASH_BYTES: Final = 16
_COUNTS: Final = 5
_BODY: Final = len(_MAGIC) + _HASH_BYTES
#: The bytes of a row of each column but the last one.
_WIDTHS: Final = (OBJECT_ID_BYTES, 4, 4, OBJECT_ID_BYTES, 8, 4, OBJECT_ID_BYTES, 4)
#: The largest numbers of digests, and of uses of manifests by snapshots, in the object.
MOST_DIGESTS: Final = 16 << 20
MOST_USES: Final = 8 << 20
_LEVEL: Final = 1
#: The number of rows that are compressed at a time.
_BLOCK: Final = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class StoredIndex:
    """The manifests of snapshots, and the chunk files of manifests."""

    snapshots: SnapshotManifests = field(default_factory=SnapshotManifests.empty)
    manifests: ManifestChunks = field(default_factory=ManifestChunks.empty)

    def __len__(self) -> int:
        return len(self.snapshots) + len(self.manifests)


def read_index(storage: Storage) -> tuple[StoredIndex, list[str]]:
    """Return the stored index, and the keys of the objects under ``walks/``."""
    objects = sorted(storage.list(INDEXES), key=lambda info: (info.modified, info.key))
    keys = [info.key for info in objects]
    index = None
    try:
        index = decode_index(storage.get(keys[-1])) if keys else StoredIndex()
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
    if index is None:
        _log.info("%s cannot be used: all metadata are read again", keys[-1])
    return index or StoredIndex(), keys


def store_index(storage: Storage, index: StoredIndex, replaced: list[str]) -> None:
    """Store an index in place of earlier objects. A failure of the storage has no effect."""
    with suppress(StorageError):  # the next survey reads more
        storage.put_parts(new_key(INDEXES), index_parts(index))
        storage.delete(replaced)


def index_parts(index: StoredIndex) -> list[bytes]:
    """Return the bytes of the object in several buffers, because all of them together may be large."""
    snapshots, manifests = index.snapshots, index.manifests
    snapshots = snapshots.select(np.cumsum(snapshots.rows.lengths) <= MOST_USES)
    manifests = manifests.select(np.cumsum(manifests.digests.lengths) <= MOST_DIGESTS)
    uses, digests = snapshots.rows.compact(), manifests.digests.compact()
    columns = [
        snapshots.ids,
        uses.lengths.astype("<u4"),
        uses.values.astype("<u4"),
        snapshots.files.ids,
        snapshots.files.size_bytes.astype("<u8"),
        snapshots.files.num_chunk_refs.astype("<u4"),
        manifests.ids,
        digests.lengths.astype("<u4"),
        digests.values.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :DIGEST_BYTES],
    ]
    counts = [len(snapshots), len(snapshots.files), len(uses.values), len(manifests), len(digests.values)]
    compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    # Blocks, because all columns together may be large.
    parts = [
        compressor.compress(column[start : start + _BLOCK].tobytes())
        for column in columns
        for start in range(0, len(column), _BLOCK)
    ]
    body = [np.array(counts, "<u8").tobytes(), *filter(None, parts), compressor.flush()]
    checksum = blake2b(digest_size=_HASH_BYTES)
    for part in body:
        checksum.update(part)
    return [_MAGIC, checksum.digest(), *body]


def decode_index(data: Buffer) -> StoredIndex | None:
    """Return the content of an object, or None if it cannot be used."""
    view = memoryview(data)
    body = view[_BODY:]
    checksum = blake2b(body, digest_size=_HASH_BYTES).digest()
    if bytes(view[:_BODY]) != _MAGIC + checksum or len(body) < 8 * _COUNTS:
        return None
    snapshots, files, uses, manifests, digests = np.frombuffer(body, "<u8", _COUNTS).tolist()
    if max(uses // MOST_USES, digests // MOST_DIGESTS, files // (1 << 32)) > 1:
        return None
    counts = (snapshots, snapshots, uses, files, files, files, manifests, manifests)
    sizes = [count * width for count, width in zip(counts, _WIDTHS, strict=True)]
    try:
        with zstandard.ZstdDecompressor().stream_reader(body[8 * _COUNTS :]) as stream:
            columns = [np.frombuffer(stream.read(size), np.uint8) for size in sizes]
            words = _digests(stream, digests)
            is_whole = list(map(len, columns)) == sizes and not stream.read(1)
    except (zstandard.ZstdError, MemoryError):
        return None
    if words is None or not is_whole:
        return None
    ids, listed, of_manifests = (columns[at].reshape(-1, OBJECT_ID_BYTES) for at in (0, 3, 6))
    lengths, rows, digest_counts = (columns[at].view("<u4") for at in (1, 2, 7))
    if lengths.sum() != uses or digest_counts.sum() != digests or (rows >= max(files, 1)).any():
        return None
    table = ManifestFiles(listed, columns[4].view("<u8"), columns[5].view("<u4"))
    return StoredIndex(
        SnapshotManifests(ids, table, Ragged.from_lengths(rows, lengths)),
        ManifestChunks(of_manifests, Ragged.from_lengths(words, digest_counts)),
    )


def _digests(stream: zstandard.ZstdDecompressionReader, count: int) -> U64 | None:
    """Read digests in blocks, because all of them may be large. Return None if the stream ends too early."""
    words = np.zeros((count, 4), "<u2")
    for start in range(0, count, _BLOCK):
        rows = min(_BLOCK, count - start)
        block = stream.read(rows * DIGEST_BYTES)
        if len(block) < rows * DIGEST_BYTES:
            return None
        words[start : start + rows, : DIGEST_BYTES // 2] = np.frombuffer(block, "<u2").reshape(rows, -1)
    return words.view("<u8").reshape(-1)
