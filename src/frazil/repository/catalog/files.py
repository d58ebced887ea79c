"""Reads of the files of a repository that are named by an id.

Each of these files contains its id, and a read compares it with the name. A restore, a copy or a cache may
put a file under the name of another file. All checksums then match, and a reader would return the chunks of
another version, or no chunks. All readers of these files use this module.

The first snapshot has the same id in every repository. So a read cannot detect the first snapshot of another
repository.
"""

from __future__ import annotations

from collections.abc import Buffer, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Any, Final, Protocol

from frazil.errors import FormatError
from frazil.format.ids import id_to_text
from frazil.format.joined_logs import decode_logs_together
from frazil.format.joined_manifests import decode_chunk_files_together, decode_chunk_ranges_together
from frazil.format.keys import manifest_key, snapshot_key, transaction_key
from frazil.format.lazy_manifest import open_manifest
from frazil.format.manifest import (
    ChunkFiles,
    ChunkRanges,
    Manifest,
    decode_chunk_files,
    decode_chunk_ranges,
    decode_manifest,
)
from frazil.format.snapshot import Snapshot, decode_entry, decode_snapshot, open_snapshot
from frazil.format.snapshot_manifests import (
    MOST_JOINED,
    ManifestsOfSnapshot,
    decode_manifests_of_snapshot,
    decode_manifests_of_snapshots,
)
from frazil.format.snapshot_table import SnapshotEntry
from frazil.format.transaction_log import TransactionLog, decode_transaction_log
from frazil.format.violations import Violation
from frazil.storage.base import Storage

#: The largest size of the files that are decoded together.
_BYTES_OF_A_PART: Final = 1 << 19


class HasId(Protocol):
    """The content of a file that contains its id."""

    @property
    def id(self) -> bytes:
        """The id, 12 bytes."""


@dataclass(frozen=True, slots=True)
class FileKind[T: HasId]:
    """The name, the keys and the decoder of a kind of files."""

    name: str
    key: Callable[[bytes], str]
    decode: Callable[..., T]
    #: Reads some small files together, and returns None if they must be read one by one.
    decode_together: Callable[[Sequence[Any]], list[T] | None] | None = None

    def read(self, storage: Storage, id_: bytes) -> T:
        """Return the decoded file with this id.

        Raises ``StorageError`` (``object-not-found``) if there is no such file, and ``FormatError`` if it is
        damaged or contains another id.
        """
        return self.decoded(storage.get(self.key(id_)), id_)

    def read_with_bytes(self, storage: Storage, id_: bytes) -> tuple[T, Buffer]:
        """Return the decoded file and its bytes. Raises the errors of ``read``."""
        data = storage.get(self.key(id_))
        return self.decoded(data, id_), data

    def decoded(self, data: Buffer, id_: bytes, *broken: list[Violation]) -> T:
        """Return the value of a file's bytes. Raises ``FormatError`` as ``read`` does.

        A list ``broken`` gets the broken rules that readers do not need.
        """
        key = self.key(id_)
        value = self.decode(data, key, *broken)
        require_id(key, self.name, id_, value.id)
        return value

    def decoded_together(self, files: Sequence[tuple[bytes, Buffer]]) -> Iterator[list[T]]:
        """Yield the values of some files with their ids, in order.

        All values are one list, if the files can be read together. Otherwise each value is a list of its own,
        so that the caller needs memory for one of them at a time. Raises ``FormatError`` as ``read`` does.
        """
        together = self.decode_together
        values = None if together is None or len(files) < 2 else together([data for _, data in files])
        if values is not None and [value.id for value in values] == [id_ for id_, _ in files]:
            yield values
        elif together is not None and len(files) > MOST_JOINED:  # one unusual file costs only its neighbours
            for part in batched(files, len(files) // 4 + 1):
                yield from self.decoded_together(part)
        else:
            yield from ([self.decoded(data, id_)] for id_, data in files)


def small_parts(
    files: Iterable[tuple[bytes, Buffer]], most: int = MOST_JOINED
) -> Iterator[list[tuple[bytes, Buffer]]]:
    """Yield a few files at a time, for ``FileKind.decoded_together``. A file that is not small is alone."""
    part, size = list[tuple[bytes, Buffer]](), 0
    for id_, data in files:
        length = memoryview(data).nbytes
        if part and (size + length > _BYTES_OF_A_PART or len(part) == most):
            yield part
            part, size = [], 0
        part.append((id_, data))
        size += length
    if part:
        yield part


def require_id(key: str, name: str, expected: bytes, stored: bytes) -> None:
    """Raise ``FormatError`` if the file at ``key``, of kind ``name``, does not contain the expected id."""
    if stored != expected:
        raise FormatError(
            f"{key}: the file must contain the {name} {id_to_text(expected)}, got the id "
            f"{id_to_text(stored)}. The file has the name of another file. Restore it from a copy",
            check=f"{name.removeprefix('transaction ')}-id",
        )


SNAPSHOT: Final[FileKind[Snapshot]] = FileKind("snapshot", snapshot_key, decode_snapshot)
#: A decoder of snapshots that decodes all but the nodes when it is needed.
LATE_SNAPSHOT: Final[FileKind[Snapshot]] = FileKind("snapshot", snapshot_key, open_snapshot)
#: A decoder of snapshots that skips nodes and manifests.
SNAPSHOT_ENTRY: Final[FileKind[SnapshotEntry]] = FileKind("snapshot", snapshot_key, decode_entry)
#: A decoder of snapshots that only decodes their manifests.
SNAPSHOT_MANIFESTS: Final[FileKind[ManifestsOfSnapshot]] = FileKind(
    "snapshot", snapshot_key, decode_manifests_of_snapshot, decode_manifests_of_snapshots
)
MANIFEST: Final[FileKind[Manifest]] = FileKind("manifest", manifest_key, decode_manifest)
#: A decoder of manifests that decodes the references of a large manifest when they are needed.
LAZY_MANIFEST: Final[FileKind[Manifest]] = FileKind("manifest", manifest_key, open_manifest)
#: A decoder of manifests that only decodes the ids of the chunk files.
MANIFEST_CHUNK_FILES: Final[FileKind[ChunkFiles]] = FileKind(
    "manifest", manifest_key, decode_chunk_files, decode_chunk_files_together
)
#: A decoder of manifests that only decodes the ranges of the chunks.
MANIFEST_CHUNK_RANGES: Final[FileKind[ChunkRanges]] = FileKind(
    "manifest", manifest_key, decode_chunk_ranges, decode_chunk_ranges_together
)
TRANSACTION_LOG: Final[FileKind[TransactionLog]] = FileKind(
    "transaction log", transaction_key, decode_transaction_log, decode_logs_together
)
