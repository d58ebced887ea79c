"""The files of a repository that are named by an id: read, decoded, and compared with that id.

Each of them holds its own id. A restore, a copy or a cache may put one file under the name of another: every
checksum then fits, and a reader would take the chunks of another version, or none, for the data. All
readers of these files go through this module.

The first snapshot has the same id in every repository. A file of that name that comes from another
repository cannot be told from the right one.
"""

from __future__ import annotations

from collections.abc import Buffer, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from frazil.errors import FormatError
from frazil.format.ids import id_to_text
from frazil.format.keys import backup_key, manifest_key, snapshot_key, transaction_key
from frazil.format.manifest import ChunkFiles, Manifest, decode_chunk_files, decode_manifest
from frazil.format.repo_info import RepoInfo, decode_repo_info
from frazil.format.snapshot import Snapshot, decode_entry, decode_snapshot
from frazil.format.snapshot_table import SnapshotEntry
from frazil.format.transaction_log import TransactionLog, decode_transaction_log
from frazil.storage.base import Storage


class _HasId(Protocol):
    @property
    def id(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class FileKind[T: _HasId]:
    """How files of a kind are named and decoded.

    >>> from frazil.storage.memory import MemoryStorage
    >>> from frazil.format.snapshot import encode_snapshot, initial_snapshot
    >>> storage, first = MemoryStorage(), initial_snapshot(1_700_000_000_000_000)
    >>> _ = storage.put(SNAPSHOT.key(first.id), encode_snapshot(first))
    >>> SNAPSHOT.read(storage, first.id).message
    'Repository initialized'
    """

    name: str
    key: Callable[[bytes], str]
    decode: Callable[[Any, str], T]

    def read(self, storage: Storage, id_: bytes) -> T:
        """Return the file with this id.

        ``StorageError`` (``object-not-found``) if there is none, ``FormatError`` if it is damaged, or holds
        another id.
        """
        return self.read_with_bytes(storage, id_)[0]

    def read_with_bytes(self, storage: Storage, id_: bytes) -> tuple[T, Buffer]:
        """As ``read``, with the bytes of the file."""
        key = self.key(id_)
        data = storage.get(key)
        value = self.decode(data, key)
        require_id(key, self.name, id_, value.id)
        return value, data


def require_id(key: str, name: str, expected: bytes, stored: bytes) -> None:
    """Raise ``FormatError`` if the file at ``key``, of kind ``name``, holds another id than expected."""
    if stored != expected:
        raise FormatError(
            f"{key}: expected the {name} {id_to_text(expected)}, found a file with the id "
            f"{id_to_text(stored)}: one file lies under the name of another. Restore it from a copy"
        )


SNAPSHOT: Final[FileKind[Snapshot]] = FileKind("snapshot", snapshot_key, decode_snapshot)
#: The same files, without nodes and manifests.
SNAPSHOT_ENTRY: Final[FileKind[SnapshotEntry]] = FileKind("snapshot", snapshot_key, decode_entry)
MANIFEST: Final[FileKind[Manifest]] = FileKind("manifest", manifest_key, decode_manifest)
#: The same files, only the chunk files that they refer to.
MANIFEST_CHUNK_FILES: Final[FileKind[ChunkFiles]] = FileKind("manifest", manifest_key, decode_chunk_files)
TRANSACTION_LOG: Final[FileKind[TransactionLog]] = FileKind(
    "transaction log", transaction_key, decode_transaction_log
)


def older_ops_backup(storage: Storage, info: RepoInfo) -> RepoInfo | None:
    """Return the backup with the next older part of the ops log, or None if ``info`` has the oldest part.

    A backup has no id. But all its updates are older than those of the file that leads to it, so that a walk
    through the backups ends, whatever they hold. ``FormatError`` if they are not.
    """
    if info.repo_before_updates is None:
        return None
    key = backup_key(info.repo_before_updates)
    older = decode_repo_info(storage.get(key), key)
    if len(older.ops) and len(info.ops) and older.ops.updated_at[0] >= info.ops.updated_at[-1]:
        raise FormatError(
            f"{key}: expected updates before {info.ops.updated_at[-1]} us, found one at "
            f"{older.ops.updated_at[0]} us: one file lies under the name of another. Restore it from a copy"
        )
    return older
