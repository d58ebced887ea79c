"""The import of an older repository: it reads the repository, writes the new files, and ``repo`` last.

Readers see nothing before ``repo`` is written. The import does not change or delete old files, and new files
have other names than all old files (``importing.ids``). The new files depend only on the old files, except
for the time in ``repo``. Therefore an interrupted import can be repeated: it writes the same files, copies
the missing chunks, and creates ``repo`` if it does not exist.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.format.chunk_table import ChunkTable
from frazil.format.ids import OBJECT_ID_BYTES, id_list, id_matrix, id_to_text, ids_to_text
from frazil.format.keys import CHUNKS, REPO, manifest_key, snapshot_key, transaction_key
from frazil.format.older.generations import DRAFT
from frazil.format.repo_info import decode_repo_info, encode_repo_info
from frazil.format.snapshot import ManifestFiles, NodeTable, Snapshot, encode_snapshot
from frazil.format.transaction_log import encode_transaction_log
from frazil.importing.chunks import ChunkFiles, container_of, copy_chunks, missing_chunks
from frazil.importing.containers import merged_prefixes, new_config
from frazil.importing.history import ImportedHistory, ImportedVersion, Users
from frazil.importing.ids import NewIds
from frazil.importing.import_target import require_only
from frazil.importing.logs import translated, worked_out
from frazil.importing.manifests import Conversion, Converted, Sizes, convert, distinct_ids, old_names
from frazil.importing.nodes import new_nodes
from frazil.importing.omissions import of_manifests, of_refs, of_snapshots
from frazil.importing.repo_file import new_info
from frazil.importing.report import ImportReport
from frazil.importing.source import Refs, Source
from frazil.repository.catalog.assets import Assets, CacheLimits
from frazil.repository.clock import now_us
from frazil.repository.outcome import write_once
from frazil.repository.retries import RetryPolicy
from frazil.repository.session.uploads import Uploads, uploading
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.config_document import document_to_save
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.base import IfAbsent, Storage
from frazil.storage.probe import probe_conditions

_LEVEL = 3
#: Number of cached decoded snapshots. A child mostly follows its parent.
_CACHED_TABLES = 4
#: Number of missing chunk files that a report names.
_NAMED = 10


@dataclass(frozen=True, slots=True)
class ConvertedManifests:
    """All conversions by old id, without the bytes of the files."""

    conversions: Mapping[bytes, Conversion]
    missing: tuple[bytes, ...]

    def chunks(self) -> ChunkFiles:
        """Return the chunk files that all manifests need."""
        every = self.conversions.values()
        ids = distinct_ids([np.zeros((0, OBJECT_ID_BYTES), np.uint8), *(each.chunks for each in every)])
        names = {new: old for each in every for new, old in each.chunk_names.items()}
        return ChunkFiles(ids, old_names(ids, names))


@dataclass(slots=True, eq=False)
class ImportJob:
    """The source, the target and the options of an import, and the files that it has converted.

    users              the arrays that use each old manifest, in any snapshot
    references_chunks  whether chunk files remain in place and become virtual chunks
    settings           the configuration of the old repository
    config             the configuration of the caller, which overrides it
    sizes              a function that returns sizes of virtual objects; None if requests to them are not
    allowed store_secrets      whether options that may contain a secret are saved
    """

    source: Source
    target: Storage
    refs: Refs
    history: ImportedHistory
    users: dict[bytes, Users]
    ids: NewIds
    references_chunks: bool
    in_place: bool
    settings: dict[str, Any]
    config: RepositoryConfig | None
    sizes: Sizes | None
    store_secrets: bool
    assets: Assets = field(init=False)
    container: VirtualChunkContainer | None = None
    _nodes: OrderedDict[bytes, NodeTable] = field(default_factory=OrderedDict)
    _manifests: dict[bytes, tuple[Converted, ...]] = field(default_factory=dict)
    _files: dict[bytes, Converted] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.assets = Assets(self.target, CacheLimits())
        self.container = container_of(self.source) if self.references_chunks else None

    def run(self) -> ImportReport:
        """Write all files, and return the report."""
        if not self.target.is_local:
            probe_conditions(self.target)
        own = [] if self.container is None else [self.container]
        # This raises possible errors before the work.
        document_to_save(new_config(self.settings, (), own, None)[0], self.store_secrets)
        manifests = self._convert()
        self._manifests = {id_: each.converted for id_, each in manifests.conversions.items()}
        self._files = {file.id: file for each in self._manifests.values() for file in each}
        report = self._chunks(self._report(manifests), manifests)
        with uploading(self.target) as uploads:
            for version in self.history.versions.values():
                self._write(version, uploads)
        prefixes = merged_prefixes(each.prefixes for each in manifests.conversions.values())
        config, left_out = new_config(self.settings, prefixes, own, self.config)
        containers = tuple(sorted(config.virtual_chunk_containers or {}))
        report = replace(report, virtual_prefixes=containers, left_out=(*report.left_out, *left_out))
        # In place, the storage already contains the secrets of the old configuration.
        document = document_to_save(config, self.store_secrets or self.in_place)
        info = new_info(self.refs, self.history, document, now_us())
        file = encode_repo_info(info, level=_LEVEL)
        if write_once(self.target, REPO, file, RetryPolicy(), IfAbsent(), "the import"):
            return report
        return self.compared(
            bytes(self.target.get(REPO))
        )  # another process created it, perhaps with the same import

    def compared(self, repo_file: bytes) -> ImportReport:
        """Return the report if the target already contains this import."""
        info = decode_repo_info(repo_file, REPO)
        versions = [*self.history.versions.values()]
        rows = info.snapshots.find_snapshots(id_matrix([version.id for version in versions]))
        if (rows < 0).any():
            raise InvalidInputError(
                f"the target of an import must be empty, got another repository in {self.target.label()}. "
                "Pass another target",
                ErrorKind.PARENT_DIRECTORY_NOT_CLEAN,
            )
        return replace(self._report(ConvertedManifests({}, ())), was_there=True)

    def _convert(self) -> ConvertedManifests:
        """Convert and write all manifests."""

        def one(pair: tuple[bytes, Users]) -> Conversion | None:
            old_id, users = pair
            try:
                old = self.source.manifest(old_id)
            except StorageError as error:
                if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                    return None
                raise
            at = None if self.container is None else self.container.url_prefix
            conversion = convert(old, old_id, users, self.ids, at, _LEVEL, self.sizes)
            for converted, file in zip(conversion.converted, conversion.files, strict=True):
                self.target.put(manifest_key(converted.id), file)
            return replace(conversion, files=())

        # One after the other, because each may be large and decoding holds the interpreter lock.
        done = {pair[0]: one(pair) for pair in sorted(self.users.items())}
        missing = tuple(id_ for id_, conversion in done.items() if conversion is None)
        return ConvertedManifests({id_: each for id_, each in done.items() if each is not None}, missing)

    def _chunks(self, report: ImportReport, manifests: ConvertedManifests) -> ImportReport:
        """Copy chunk files to the place where the new repository expects them."""
        chunks = manifests.chunks()
        report = replace(report, chunk_files=len(chunks))
        if (self.in_place and self.source.layout is not DRAFT) or self.container is not None:
            missing = missing_chunks(self.source, chunks)
        else:
            if not self.in_place:
                keys = map(f"{CHUNKS}/".__add__, ids_to_text(chunks.ids))
                require_only(self.target, keys, CHUNKS)
            sizes, missing = copy_chunks(self.source, self.target, chunks)
            report = replace(report, chunks_copied=len(sizes), bytes_copied=sum(sizes))
        return replace(report, left_out=(*report.left_out, *_lost(missing)))

    def _report(self, manifests: ConvertedManifests) -> ImportReport:
        versions = self.history.versions.values()
        conversions = manifests.conversions.values()
        files = [file for conversion in conversions for file in conversion.converted]
        lost = [f"manifest {id_to_text(id_)}: it has no file" for id_ in manifests.missing]
        unused = [
            f"{conversion.unused} references in manifest {id_to_text(id_)}: no array uses them"
            for id_, conversion in manifests.conversions.items()
            if conversion.unused
        ]
        cut = [
            f"the ends of {conversion.cut} virtual references in manifest {id_to_text(id_)}: "
            "they are after the ends of their objects"
            for id_, conversion in manifests.conversions.items()
            if conversion.cut
        ]
        return ImportReport(
            self.source.generation,
            tuple(sorted(self.refs.branches)),
            tuple(sorted(self.refs.tags)),
            snapshots=len(versions),
            arrays=len(set().union(*(version.summary.arrays for version in versions))),
            groups=len(set().union(*(version.summary.groups for version in versions))),
            manifests=len(files),
            chunk_references=sum(file.references for file in files),
            left_out=(
                *of_refs(self.refs),
                *self.history.left_out,
                *of_snapshots(self.history.versions),
                *lost,
                *of_manifests(id_ for id_, each in manifests.conversions.items() if each.has_flags),
                *unused,
                *cut,
            ),
            snapshot_ids={id_to_text(version.old_id): id_to_text(version.id) for version in versions},
        )

    def _write(self, version: ImportedVersion, uploads: Uploads) -> None:
        """Write a snapshot's file and its transaction log."""
        nodes = self._nodes_of(version.old_id)
        wanted = [self._files[id_] for id_ in id_list(nodes.manifest_ids())]
        snapshot = Snapshot(
            version.id,
            version.flushed_at,
            version.summary.message,
            version.summary.metadata,
            nodes,
            ManifestFiles(
                id_matrix([file.id for file in wanted]),
                np.array([file.size for file in wanted], np.uint64),
                np.array([file.references for file in wanted], np.uint32),
            ),
        )
        uploads.put(snapshot_key(version.id), partial(encode_snapshot, snapshot, level=_LEVEL))
        parent = version.old_parent
        before = NodeTable.from_nodes([]) if parent is None else self._nodes_of(parent)
        old = None if parent is None else self.source.log(version.old_id)
        if old is None:
            log = worked_out(version.id, before, nodes, self._table)
        else:
            log = translated(old, version.id, before, nodes)
        uploads.put(transaction_key(version.id), partial(encode_transaction_log, log, level=_LEVEL))

    def _nodes_of(self, old_id: bytes) -> NodeTable:
        table = self._nodes.pop(old_id, None)
        if table is None:
            snapshot = self.source.snapshot(old_id)
            table = new_nodes(snapshot, f"snapshot {id_to_text(old_id)}", self._manifests)
        self._nodes[old_id] = table
        while len(self._nodes) > _CACHED_TABLES:
            self._nodes.popitem(last=False)
        return table

    def _table(self, node: bytes, manifests: Sequence[bytes]) -> ChunkTable | None:
        """Return the references of an array in these manifests, or None."""
        tables = [self.assets.manifest(id_).arrays[node] for id_ in manifests]
        return ChunkTable.merge_tables(tables) if tables else None


def _lost(chunks: tuple[str, ...]) -> list[str]:
    if not chunks:
        return []
    more = f" and {len(chunks) - _NAMED} more" if len(chunks) > _NAMED else ""
    return [f"chunk files {', '.join(chunks[:_NAMED])}{more}: the files are missing"]
