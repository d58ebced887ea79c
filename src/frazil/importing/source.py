"""Reads an older repository: its refs, and its files by id."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from frazil.errors import ErrorKind, StorageError
from frazil.format.ids import id_to_text
from frazil.format.keys import CONFIG
from frazil.format.older.elements import OldLog, OldManifest, OldRef, OldSnapshot
from frazil.format.older.generations import Layout, described
from frazil.format.older.manifest import decode_old_manifest
from frazil.format.older.refs import decode_ref, name_to_id, ref_files
from frazil.format.older.snapshot import decode_old_snapshot
from frazil.format.older.transaction_log import decode_old_log
from frazil.repository.catalog.files import require_id
from frazil.repository.catalog.generations import generations
from frazil.repository.settings.config_yaml import load_config
from frazil.storage.base import Storage
from frazil.threads import Purpose, map_bounded


@dataclass(frozen=True, slots=True)
class Refs:
    """The refs of an older repository.

    Attributes:
        branches: Name -> content of each of its files, oldest first.
        tags: Name -> content of its file.
        deleted_tags: Names of deleted tags.
    """

    branches: dict[str, list[OldRef]] = field(default_factory=dict)
    tags: dict[str, OldRef] = field(default_factory=dict)
    deleted_tags: frozenset[str] = frozenset()


class Source:
    """The files of an older repository. It writes nothing, and threads may share it."""

    def __init__(self, storage: Storage, layout: Layout) -> None:
        self.storage = storage
        self.layout = layout

    @cached_property
    def generation(self) -> str:
        """The format of the repository, in words."""
        return described(generations(self.storage, self.layout))

    def refs(self) -> Refs:
        """Return all refs.

        This reads a file for every commit, because only these files contain the history of a branch.
        """
        keys = [info.key for info in self.storage.list(self.layout.refs)]
        files = ref_files(keys, self.layout, encoded=self.storage.encodes_names())
        wanted = [*files.tags.values()]
        for sequence in files.branches.values():
            wanted += sequence.values()
        contents = dict(zip(wanted, in_parallel(self._ref, wanted), strict=True))
        return Refs(
            {
                name: [contents[sequence[number]] for number in sorted(sequence)]
                for name, sequence in files.branches.items()
            },
            {name: contents[key] for name, key in files.tags.items()},
            frozenset(files.deleted_tags),
        )

    def has_snapshot(self, id_: bytes) -> bool:
        """Return whether a snapshot has a file."""
        return id_to_text(id_) in self.snapshot_files

    def snapshot(self, id_: bytes) -> OldSnapshot:
        """Return a snapshot."""
        key = _existing_key(self.snapshot_files, self.layout.snapshots, id_)
        snapshot = decode_old_snapshot(self.storage.get(key), key, self.layout)
        if (
            snapshot.parent is not None
        ):  # the first versions wrote another id into the file of the initial snapshot
            require_id(key, "snapshot", id_, snapshot.id)
        return snapshot

    def manifest(self, id_: bytes) -> OldManifest:
        """Return a manifest."""
        key = _existing_key(self.manifest_files, self.layout.manifests, id_)
        manifest = decode_old_manifest(self.storage.get(key), key, self.layout)
        if manifest.id is not None:
            require_id(key, "manifest", id_, manifest.id)
        return manifest

    def log(self, snapshot: bytes) -> OldLog | None:
        """Return the transaction log of a snapshot, or None. Formats before M2 have no logs."""
        if id_to_text(snapshot) not in self._logs:
            return None
        key = self._logs[id_to_text(snapshot)]
        return decode_old_log(self.storage.get(key), key)

    def settings(self) -> dict[str, Any]:
        """Return the content of ``config.yaml``, or an empty dictionary."""
        try:
            data = self.storage.get(CONFIG)
        except StorageError as error:
            if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                return {}
            raise
        return load_config(data)

    @cached_property
    def snapshot_files(self) -> dict[str, str]:
        """Keys of snapshot files by their ids, as text."""
        return self._files(self.layout.snapshots)

    @cached_property
    def manifest_files(self) -> dict[str, str]:
        """Keys of manifest files by their ids, as text."""
        return self._files(self.layout.manifests)

    @cached_property
    def _logs(self) -> dict[str, str]:
        return {} if self.layout.transactions is None else self._files(self.layout.transactions)

    def _files(self, folder: str) -> dict[str, str]:
        keys = [info.key for info in self.storage.list(folder)]
        named: dict[str, str] = {}
        for suffix in reversed(self.layout.suffixes):
            names = [
                key.removeprefix(f"{folder}/").removesuffix(suffix) for key in keys if key.endswith(suffix)
            ]
            named |= {name: f"{folder}/{name}{suffix}" for name in names if name_to_id(name) is not None}
        return named

    def _ref(self, key: str) -> OldRef:
        return decode_ref(self.storage.get(key), key)


def in_parallel[A, B](work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """Call ``work`` for items that mostly wait for the storage. Return the results in order."""
    return map_bounded(Purpose.IMPORT_READS, work, items)


def _existing_key(files: dict[str, str], folder: str, id_: bytes) -> str:
    name = id_to_text(id_)
    if name not in files:
        raise StorageError(f"object '{folder}/{name}' not found", ErrorKind.OBJECT_NOT_FOUND)
    return files[name]
