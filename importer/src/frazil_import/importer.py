"""The import of an older repository: it reads the repository and writes the new files, ``repo`` last.

The new files have other names than all old files, and depend only on the old files, except for the time in
``repo``. So an interrupted import can be repeated: it writes the same files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal

import numpy as np

from frazil.arguments import checked
from frazil.display import Lines
from frazil.errors import ErrorKind, FormatError, InvalidInputError, RepositoryNotFoundError
from frazil.format.chunk_table import ChunkTable
from frazil.format.ids import (
    CHUNKS,
    REPO,
    distinct_ids,
    id_list,
    id_matrix,
    id_to_text,
    ids_to_text,
    manifest_key,
    snapshot_key,
    transaction_key,
)
from frazil.format.repo_info import (
    Availability,
    OpsEntry,
    OpsLog,
    RepoInfo,
    SnapshotEntry,
    SnapshotTable,
    Status,
    UpdateKind,
    decode_repo_info,
    encode_repo_info,
)
from frazil.format.snapshot import ManifestFiles, NodeTable, Snapshot, encode_snapshot
from frazil.format.transaction_log import encode_transaction_log
from frazil.handle.opening import explicit_access, older_refs, require_prefix, require_writable
from frazil.remedies import Remedy, call
from frazil.repository.catalog.assets import Assets, CacheLimits
from frazil.repository.catalog.repo_changes import MAIN
from frazil.repository.clock import now_us
from frazil.repository.retries import RetryPolicy, write_once
from frazil.repository.session.commit_files import Uploads, uploading
from frazil.repository.settings.config import RepositoryConfig, VirtualChunkContainer
from frazil.repository.settings.config_document import document_to_save
from frazil.storage.base import IfAbsent, Storage
from frazil.storage.checks import PROBES, probe_conditions
from frazil.storage.credential_families import AnyCredential
from frazil_import.conversion import (
    ConvertedManifest,
    ManifestConversion,
    Sizes,
    container_of,
    convert,
    copy_chunks,
    new_config,
    new_nodes,
    old_names,
    sizes_of,
    translated,
    url_prefixes,
    worked_out,
)
from frazil_import.generations import DOT, DRAFT, LAYOUTS, OldRef
from frazil_import.source import (
    ImportedHistory,
    ImportedVersion,
    NewIds,
    OlderRefs,
    Source,
    Users,
    read_history,
)


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What ``upgrade`` imported, and what it left out.

    Attributes:
        generation: Format of the old repository, e.g. ``"M8, as written by icechunk 0.1.0 to 0.1.3"``.
        branches: Names of the branches.
        tags: Names of the tags.
        snapshots: Number of snapshots.
        arrays: Number of different arrays in all snapshots.
        groups: Number of different groups in all snapshots.
        manifests: Number of manifest files that were written.
        chunk_references: Number of references in these manifests.
        chunk_files: Number of chunk files that the references use.
        chunks_copied: Number of chunk files that this call copied.
        bytes_copied: Size of the copied chunk files in bytes.
        virtual_prefixes: URL prefixes to authorise when the repository is opened, for its virtual chunks.
        left_out: What was not imported and why, one line each.
        was_there: Whether the target already contained the complete import. Then this call wrote nothing, and
            did not count references and files.
        snapshot_ids: Old ids of snapshots -> new ids, as text.

    Examples:
        >>> print(ImportReport("M8", branches=("main",), snapshots=2).snapshots)
        2
    """

    generation: str
    branches: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    snapshots: int = 0
    arrays: int = 0
    groups: int = 0
    manifests: int = 0
    chunk_references: int = 0
    chunk_files: int = 0
    chunks_copied: int = 0
    bytes_copied: int = 0
    virtual_prefixes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    was_there: bool = False
    snapshot_ids: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """Return a summary in a few lines."""
        lines = [
            f"imported from: {self.generation}" + (" (was there already)" if self.was_there else ""),
            f"branches: {', '.join(self.branches)}",
            f"tags: {', '.join(self.tags) or 'none'}",
            f"{self.snapshots} snapshots, {self.arrays} arrays, {self.groups} groups",
        ]
        if not self.was_there:
            lines += [
                f"{self.chunk_references} references, {self.manifests} manifests",
                f"{self.chunk_files} chunk files",
                f"copied: {self.chunks_copied} chunk files, {self.bytes_copied} bytes",
            ]
        lines += [f"virtual chunks below: {prefix}" for prefix in self.virtual_prefixes]
        lines += [f"left out: {each}" for each in self.left_out]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the summary as HTML, for notebooks."""
        return Lines("frazil.ImportReport", f"\n{self}")._repr_html_()


_SHOWN: Final = 200
#: Field of a snapshot file -> why it is not imported.
_REASONS: Final = {
    "started_at": "a snapshot of spec version 2 has one time, and written_at is imported",
    "total_parents": "it is not the number of ancestors that are imported",
    "short_term_parents": "it is not the length of short_term_history",
    "format_flags": "their meaning was never defined",
    "attribute_files": "their kind was never defined",
}


def _of_refs(refs: OlderRefs) -> Iterator[str]:
    """Yield one line for each branch and tag with properties."""
    for name, sequence in sorted(refs.branches.items()):
        properties = [dict(ref.properties) for ref in sequence if ref.properties]
        if properties:
            yield (
                f"properties in {len(properties)} of {len(sequence)} ref files of branch {name}, the last "
                f"are {properties[-1]!r:.{_SHOWN}}: branches of spec version 2 have none"
            )
    for name, ref in sorted(refs.tags.items()):
        if ref.properties:
            text = f"{dict(ref.properties)!r:.{_SHOWN}}"
            yield f"properties of tag {name}, {text}: tags of spec version 2 have none"


def _of_snapshots(versions: Mapping[bytes, ImportedVersion]) -> Iterator[str]:
    """Yield lines for attributes in separate files, and one line for each lost field."""
    ancestors: dict[bytes, int] = {}
    by_field: dict[str, list[bytes]] = {name: [] for name in _REASONS}
    for id_, version in versions.items():
        summary, parent = version.summary, version.old_parent
        for path in summary.without_attributes:
            yield (
                f"attributes of {path} in snapshot {id_to_text(id_)}: "
                "they are in a file whose kind was never defined"
            )
        ancestors[id_] = 0 if parent is None else ancestors[parent] + 1
        for name in summary.snapshot.unplaced:
            by_field[name].append(id_)
        if summary.snapshot.total_parents not in (None, ancestors[id_]):
            by_field["total_parents"].append(id_)
    for name, ids in by_field.items():
        if ids:
            yield f"{name} of {_counted(ids, 'snapshot')}: {_REASONS[name]}"


def _counted(ids: list[bytes], kind: str) -> str:
    first = f"{kind} {id_to_text(ids[0])}"
    return first if len(ids) == 1 else f"{first} and {len(ids) - 1} more"


_SPEC_VERSION = 2
#: The version before the import. The older formats have no number, and readers know this one.
_BEFORE = 1


def new_info(refs: OlderRefs, history: ImportedHistory, config: dict[str, Any], now: int) -> RepoInfo:
    """Return refs, snapshots, and an ops log with their history, as far as the ref files contain it."""
    versions = history.versions
    entries = [
        SnapshotEntry(
            version.id,
            version.parent,
            version.flushed_at,
            version.summary.snapshot.message,
            version.summary.snapshot.metadata,
        )
        for version in versions.values()
    ]
    return RepoInfo(
        _SPEC_VERSION,
        {name: versions[sequence[-1].snapshot].id for name, sequence in refs.branches.items()},
        {name: versions[ref.snapshot].id for name, ref in refs.tags.items()},
        refs.deleted_tags,
        SnapshotTable.of(entries),
        Status(Availability.ONLINE, now),
        {},
        _ops(refs, history, now),
        config=config,
    )


def _ops(refs: OlderRefs, history: ImportedHistory, now: int) -> OpsLog:
    """Return the ops log: newest entry first, with different times, and the creation as the oldest entry.

    An entry has the time of its ref file if this time is later than the snapshot and than the entry before on
    the branch, and is not in the future. Otherwise its time is one microsecond after those.
    """
    entries: list[OpsEntry] = []
    for name, sequence in refs.branches.items():
        steps = [ref for ref in sequence if ref.snapshot in history.versions]
        first = UpdateKind.REPO_INITIALIZED if name == MAIN else UpdateKind.BRANCH_CREATED
        versions = [history.versions[ref.snapshot] for ref in steps]
        before: ImportedVersion | None = None
        at = -1
        for ref, version in zip(steps, versions, strict=True):
            at = max(_time(ref, version, now), at + 1)
            if before is None:
                entry = OpsEntry(first, at, name=None if name == MAIN else name)
            elif version.parent == before.id:
                entry = OpsEntry(UpdateKind.NEW_COMMIT, at, name=name, new_snapshot=version.id)
            else:
                entry = OpsEntry(UpdateKind.BRANCH_RESET, at, name=name, previous_snapshot=before.id)
            entries.append(entry)
            before = version
    entries += [
        OpsEntry(UpdateKind.TAG_CREATED, _time(ref, history.versions[ref.snapshot], now), name=name)
        for name, ref in refs.tags.items()
    ]
    entries.sort(key=lambda entry: (entry.kind is not UpdateKind.REPO_INITIALIZED, entry.updated_at))
    entries.append(OpsEntry(UpdateKind.REPO_MIGRATED, now, versions=(_BEFORE, _SPEC_VERSION)))
    last = -1
    for place, entry in enumerate(entries):
        last = max(entry.updated_at, last + 1)
        entries[place] = replace(entry, updated_at=last)
    return OpsLog.of(entries[::-1])


def _time(ref: OldRef, version: ImportedVersion, now: int) -> int:
    return max(min(ref.committed_at or 0, now), version.flushed_at + 1)


def _require_only(target: Storage, keys: set[str], folder: str, *ignored: str) -> None:
    """Raise ``InvalidInputError`` if a folder of the target has other keys, except in ignored folders."""
    for info in target.list(folder):
        if info.key not in keys and not info.key.startswith(ignored):
            raise InvalidInputError(
                f"the target of an import must be empty, got `{info.key}` in {target.label()}. "
                "To import in place, pass no target",
                ErrorKind.PARENT_DIRECTORY_NOT_CLEAN,
            )


_LEVEL = 3
#: Number of cached decoded snapshots. A child mostly follows its parent.
_CACHED_TABLES = 4
#: Number of missing chunk files that a report names.
_NAMED = 10


@dataclass(slots=True, eq=False)
class ImportJob:
    """The source, the target and the options of an import, and the files that it has converted.

    ``users`` are the arrays that use each old manifest, in any snapshot. With ``references_chunks`` chunk
    files remain in place and become virtual chunks. ``config`` overrides ``settings``, the configuration of
    the old repository. ``sizes`` returns sizes of virtual objects; None if requests to them are not allowed.
    """

    source: Source
    target: Storage
    refs: OlderRefs
    history: ImportedHistory
    users: dict[bytes, Users]
    ids: NewIds
    references_chunks: bool
    config: RepositoryConfig | None
    sizes: Sizes | None
    store_secrets: bool
    assets: Assets = field(init=False)
    container: VirtualChunkContainer | None = None
    _nodes: OrderedDict[bytes, NodeTable] = field(default_factory=OrderedDict)
    _manifests: dict[bytes, tuple[ConvertedManifest, ...]] = field(default_factory=dict)
    _files: dict[bytes, ConvertedManifest] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.assets = Assets(self.target, CacheLimits())
        self.container = container_of(self.source) if self.references_chunks else None

    def run(self) -> ImportReport:
        """Write all files, and return the report."""
        if not self.target.is_local:
            probe_conditions(self.target)
        own = [] if self.container is None else [self.container]
        # This raises possible errors before the work.
        document_to_save(new_config(self.source.settings, (), own, None)[0], self.store_secrets)
        conversions, missing = self._convert()
        self._manifests = {id_: each.converted for id_, each in conversions.items()}
        self._files = {file.id: file for each in self._manifests.values() for file in each}
        report = self._chunks(self._report(conversions, missing), conversions)
        with uploading(self.target) as uploads:
            for version in self.history.versions.values():
                self._write(version, uploads)
        # Of several manifests, again one folder for all files.
        prefixes = url_prefixes(prefix for each in conversions.values() for prefix in each.prefixes)
        config, left_out = new_config(self.source.settings, sorted(prefixes), own, self.config)
        containers = tuple(sorted(config.virtual_chunk_containers or {}))
        report = replace(report, virtual_prefixes=containers, left_out=(*report.left_out, *left_out))
        # In place, the storage already contains the secrets of the old configuration.
        document = document_to_save(config, self.store_secrets or self.ids.in_place)
        info = new_info(self.refs, self.history, document, now_us())
        file = encode_repo_info(info, level=_LEVEL)
        if write_once(self.target, REPO, file, RetryPolicy(), IfAbsent(), "the import"):
            return report
        # Another process created it, perhaps with the same import.
        return self.compared(bytes(self.target.get(REPO)))

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
        return replace(self._report({}, ()), was_there=True)

    def _convert(self) -> tuple[dict[bytes, ManifestConversion], Sequence[bytes]]:
        """Convert and write all manifests. Returns the conversions by old id, and the ids without a file."""
        conversions: dict[bytes, ManifestConversion] = {}
        missing: list[bytes] = []
        at = None if self.container is None else self.container.url_prefix
        # One after the other, because each may be large and decoding holds the interpreter lock.
        for old_id, users in sorted(self.users.items()):
            if id_to_text(old_id) not in self.source.files(self.source.layout.manifests):
                missing.append(old_id)
                continue
            old = self.source.manifest(old_id)
            conversion = convert(old, old_id, users, self.ids, at, _LEVEL, self.sizes)
            for converted, file in zip(conversion.converted, conversion.files, strict=True):
                self.target.put(manifest_key(converted.id), file)
            conversions[old_id] = replace(conversion, files=())
        return conversions, missing

    def _chunks(self, report: ImportReport, conversions: Mapping[bytes, ManifestConversion]) -> ImportReport:
        """Copy chunk files to the place where the new repository expects them."""
        every = conversions.values()
        ids = distinct_ids(np.concatenate([id_matrix([]), *(each.chunks for each in every)]))
        names = old_names(ids, {new: old for each in every for new, old in each.chunk_names.items()})
        report, folder = replace(report, chunk_files=len(names)), self.source.layout.chunks
        missing: Sequence[str]
        if (self.ids.in_place and self.source.layout is not DRAFT) or self.container is not None:
            existing = {info.key.removeprefix(f"{folder}/") for info in self.source.storage.list(folder)}
            missing = sorted(set(names) - existing)
        else:
            if not self.ids.in_place:
                _require_only(self.target, set(map(f"{CHUNKS}/".__add__, ids_to_text(ids))), CHUNKS)
            sizes, missing = copy_chunks(self.source, self.target, ids, names)
            report = replace(report, chunks_copied=len(sizes), bytes_copied=sum(sizes))
        if missing:
            more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
            lost = f"chunk files {', '.join(missing[:_NAMED])}{more}: the files are missing"
            report = replace(report, left_out=(*report.left_out, lost))
        return report

    def _report(
        self, conversions: Mapping[bytes, ManifestConversion], missing: Sequence[bytes]
    ) -> ImportReport:
        versions = self.history.versions.values()
        files = [file for conversion in conversions.values() for file in conversion.converted]
        lost = [f"manifest {id_to_text(id_)}: it has no file" for id_ in missing]
        flagged = [id_ for id_, each in conversions.items() if each.has_flags]
        if flagged:
            lost.append(f"format_flags of {_counted(flagged, 'manifest')}: {_REASONS['format_flags']}")
        lost += [
            f"{conversion.unused} references in manifest {id_to_text(id_)}: no array uses them"
            for id_, conversion in conversions.items()
            if conversion.unused
        ]
        lost += [
            f"the ends of {conversion.cut} virtual references in manifest {id_to_text(id_)}: "
            "they are after the ends of their objects"
            for id_, conversion in conversions.items()
            if conversion.cut
        ]
        return ImportReport(
            self.source.generation(self.refs.branches[MAIN][-1].snapshot),
            tuple(sorted(self.refs.branches)),
            tuple(sorted(self.refs.tags)),
            snapshots=len(versions),
            arrays=len(set().union(*(version.summary.arrays for version in versions))),
            groups=len(set().union(*(version.summary.groups for version in versions))),
            manifests=len(files),
            chunk_references=sum(file.references for file in files),
            left_out=(
                *_of_refs(self.refs),
                *self.history.left_out,
                *_of_snapshots(self.history.versions),
                *lost,
            ),
            snapshot_ids={id_to_text(version.summary.file): id_to_text(version.id) for version in versions},
        )

    def _write(self, version: ImportedVersion, uploads: Uploads) -> None:
        """Write a snapshot's file and its transaction log."""
        nodes = self._nodes_of(version.summary.file)
        files = [self._files[id_] for id_ in id_list(nodes.manifest_ids())]
        snapshot = Snapshot(
            version.id,
            version.flushed_at,
            version.summary.snapshot.message,
            version.summary.snapshot.metadata,
            nodes,
            ManifestFiles(
                id_matrix([file.id for file in files]),
                np.array([file.size for file in files], np.uint64),
                np.array([file.references for file in files], np.uint32),
            ),
        )
        parent = version.old_parent
        before = NodeTable.from_nodes([]) if parent is None else self._nodes_of(parent)
        old = None if parent is None else self.source.log(version.summary.file)
        if old is None:
            log = worked_out(version.id, before, nodes, self._table)
        else:
            log = translated(old, version.id, before, nodes)
        encode = partial(encode_snapshot, snapshot, level=_LEVEL)
        encode_log = partial(encode_transaction_log, log, level=_LEVEL)
        uploads.put([(snapshot_key(version.id), encode), (transaction_key(version.id), encode_log)])

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


Chunks = Literal["auto", "copy", "reference"]


@checked
def upgrade(
    source_storage: Storage,
    target_storage: Storage | None = None,
    *,
    chunks: Chunks = "auto",
    config: RepositoryConfig | None = None,
    authorize_virtual_chunk_access: Mapping[str, AnyCredential | None] | None = None,
    store_secrets: bool = False,
) -> ImportReport:
    """Import a repository of a format older than spec version 1, with its whole history.

    This needs the package frazil-import (extra ``import``).

    The formats are those of 0.1.0a1 to 0.1.3, and the draft before them. The new repository has spec version
    2. It has the same snapshots with their parents, messages, times and metadata, the same branches and tags,
    and every array of every snapshot.

    Without ``target_storage``, the new repository is created in place, next to the old files. The import
    does not change the old files. A later garbage collection deletes the old files that the new repository
    does not use.

    Some old repositories have virtual references that are longer than their objects. Such references cannot
    be read. Where ``authorize_virtual_chunk_access`` allows requests to the objects, the import shortens them
    to the end of the object.

    An interrupted import can be repeated and continues. If the import is complete, another call
    writes nothing.

    Args:
        source_storage: Storage of the old repository.
        target_storage: Empty storage for the new repository. Default: the same storage.
        chunks: What to do with chunk files. ``"copy"`` copies them. ``"reference"`` leaves them in place and
            refers to them as virtual chunks, which must be authorised when the repository is opened.
            ``"auto"``, the default, copies them, except for an import in place, where the new repository uses
            the same files. (Chunk files of the draft have other names, and are copied in this case, too.)
        config: Configuration that is saved with the new repository. It overrides the old configuration.
            Default: the old configuration.
        authorize_virtual_chunk_access: Credentials by URL prefix, as for ``Repository.open``. Default: none.
        store_secrets: Whether to save options and headers of containers that may contain a secret, as for
            ``Repository.create``. It also applies to the old configuration if the new repository is in
            another storage. Default: False.

    Returns:
        A report with counts, and with everything that was not imported and why.

    Raises:
        RepositoryNotFoundError: There is no older repository in ``source_storage``.
        FormatError: A file of the old repository is damaged; ``unsupported-operation-for-version`` if the
            repository already has spec version 1 or 2.
        InvalidInputError: ``parent-directory-not-clean`` if the target contains other files.
        ReadOnlyError: ``read-only-storage`` if the target is read only.
        ValueError: ``chunks`` has another value.

    Examples:
        >>> import frazil
        >>> frazil.upgrade(frazil.in_memory_storage())
        Traceback (most recent call last):
            ...
        frazil.errors.RepositoryNotFoundError: ...
    """
    if config is not None:
        document_to_save(config, store_secrets)
    source = _source(source_storage)
    in_place = target_storage is None
    target = source_storage if target_storage is None else target_storage
    if chunks not in ("auto", "copy", "reference"):
        raise ValueError(f"chunks must be auto, copy or reference, got {chunks!r}")
    require_writable(target)
    require_prefix(target)
    ids = NewIds(in_place)
    refs = source.refs()
    history = read_history(source, refs, ids)
    users = history.users()
    existing = None if target.head(REPO) is None else bytes(target.get(REPO))
    if existing is None and not in_place:  # only files of this import may be there
        versions = history.versions.values()
        own_keys = {key(version.id) for version in versions for key in (snapshot_key, transaction_key)}
        own_keys |= {
            manifest_key(ids.manifest(id_, variant))
            for id_, arrays in users.items()
            for variant in range(len({rank for _, rank in arrays}))
        }
        _require_only(target, own_keys, "", f"{CHUNKS}/", f"{PROBES}/")
    reference = chunks == "reference" and not (in_place and source.layout is not DRAFT)
    job = ImportJob(
        source=source,
        target=target,
        refs=refs,
        history=history,
        users=users,
        ids=ids,
        references_chunks=reference,
        config=config,
        sizes=sizes_of(source.settings, config, explicit_access(authorize_virtual_chunk_access)),
        store_secrets=store_secrets,
    )
    return job.run() if existing is None else job.compared(existing)


def _source(storage: Storage) -> Source:
    folder = older_refs(storage)
    if folder is not None:
        return Source(storage, LAYOUTS[folder])
    upgrade = Remedy("Upgrade it with `{}`", (call("upgrade_icechunk_repository"),))
    for key, version, remedy in (
        (REPO, 2, Remedy("It can be opened")),
        ("refs/branch.main/ref.json", 1, upgrade),
    ):
        if storage.head(key) is not None:
            error = FormatError(
                f"the repository to import must be older than spec version 1, got version {version} in "
                f"{storage.label()}",
                ErrorKind.UNSUPPORTED_OPERATION_FOR_VERSION,
            )
            error.remedy = remedy
            raise error
    next(iter(storage.list(DOT.refs)), None)  # a storage that cannot list raises its own error here
    raise RepositoryNotFoundError(f"no repository to import in {storage.label()}. Correct the location")
