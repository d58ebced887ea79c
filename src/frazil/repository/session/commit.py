"""Turning a change set into a new version: manifests, transaction log, snapshot; then the one conditional
write.

Nothing is visible before that write, and all it refers to is durable by then. A commit that is refused
leaves files that nobody refers to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.log import amended_log, transaction_log
from frazil.changes.manifests import ManifestRewrite, auto_split, distribute, plan_rewrite, share
from frazil.errors import ConflictError, ErrorKind, InvalidInputError, SessionStateError, StorageError
from frazil.format.columns import U8
from frazil.format.ids import OBJECT_ID_BYTES, id_keys, id_list, id_matrix, id_to_text
from frazil.format.keys import manifest_key, snapshot_key, transaction_key
from frazil.format.manifest import (
    ChunkTable,
    LocationCompression,
    Manifest,
    encode_manifest,
)
from frazil.format.repo_info import RepoInfo, SnapshotEntry
from frazil.format.snapshot import (
    ArrayData,
    ManifestFiles,
    ManifestRef,
    Node,
    NodeTable,
    Snapshot,
    encode_snapshot,
)
from frazil.format.transaction_log import TransactionLog, encode_transaction_log
from frazil.repository.catalog.collection_guard import (
    CollectedMeanwhile,
    Files,
    Relied,
    before_collections,
    is_uncollected,
)
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.expired_versions import require_listed
from frazil.repository.catalog.files import MANIFEST_CHUNK_FILES
from frazil.repository.catalog.lineage import FRAZIL
from frazil.repository.catalog.repo_changes import (
    Note,
    base_not_found,
    new_snapshot,
    noted,
    require_base,
    require_flag,
    require_online,
    require_snapshot,
    require_tip,
)
from frazil.repository.catalog.stream_records import BATCH, QUERY, with_amended
from frazil.repository.clock import new_object_id, now_us
from frazil.repository.session.uploads import Puts, putting
from frazil.repository.settings.feature_flags import MOVE_NODE, Flag

_READERS = 16
_NO_IDS: Final = np.zeros((0, OBJECT_ID_BYTES), np.uint8)


@dataclass(frozen=True, slots=True)
class Written:
    """What was written for one array: the manifest, the array's box in it, the size of the file."""

    node_id: bytes
    ref: ManifestRef
    manifest: Manifest
    size: int

    @property
    def num_refs(self) -> int:
        """Of the whole file."""
        return sum(map(len, self.manifest.arrays.values()))


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was written for an array, and what it was made from."""

    made_of: tuple[object, ...]
    edits: ChunkTable
    written: tuple[Written, ...]


class Attempts:
    """What earlier attempts to commit the same changes have stored, to be used again where it is still right:
    a manifest holds what its array's edits and the manifests that they were merged with hold.
    """

    def __init__(self) -> None:
        self._kept: dict[bytes, _Kept] = {}
        self._new: dict[bytes, _Kept] = {}

    def find(self, update: _Update) -> tuple[Written, ...] | None:
        known = self._kept.get(update.node.id)
        if known is None or known.made_of != update.made_of or not known.edits.equals(update.edits):
            return None
        return known.written

    def add(self, update: _Update, written: Iterable[Written]) -> None:
        """Something that is on its way; ``keep`` says that it has arrived."""
        self._new[update.node.id] = _Kept(update.made_of, update.edits, tuple(written))

    def forget(self) -> None:
        """It may have been taken for garbage."""
        self._kept, self._new = {}, {}

    def keep(self) -> None:
        self._kept |= self._new
        self._new = {}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a session's changes become a version."""

    name: str
    #: The branch has to be where the session started, and goes to the new snapshot.
    moves_branch: bool = True
    #: The new snapshot takes the place of the one that the session started from, instead of following it.
    replaces: bool = False
    #: Without changes there is nothing to do, unless told so.
    needs_changes: bool = True
    #: Every manifest is written anew, as the configuration splits them now.
    rewrites: bool = False


COMMIT: Final = Ending("commit")
AMEND: Final = Ending("amend", replaces=True)
FLUSH: Final = Ending("flush", moves_branch=False, needs_changes=False)
REWRITE: Final = Ending("rewrite", needs_changes=False, rewrites=True)
REWRITE_AMEND: Final = Ending("rewrite", replaces=True, needs_changes=False, rewrites=True)


def end_session(
    context: Context,
    ending: Ending,
    branch: str | None,
    parent: Snapshot,
    changes: ChangeSet,
    message: str,
    metadata: dict[str, Any],
    flush: Callable[[], None],
    relied: Relied,
    attempts: Attempts | None = None,
    note: Note | None = None,
) -> bytes:
    """Make ``changes``, made on ``parent``, a version as ``ending`` says; the new snapshot's id.

    ``flush`` makes the chunks of the changes durable; ``relied`` tells garbage collections that may have met
    them from others; ``attempts`` are earlier ones; ``note`` changes the metadata of the repository in the
    same update (spec version 2). Raises ``ConflictError`` with both parents if the branch has moved, and then
    wrote nothing that anybody sees; ``SessionStateError`` (``no-amend-for-initial-commit``,
    ``rearrange-session-only``, ``feature-flag-disabled``);
    ``InvalidInputError`` (``bad-metadata``) for a message or metadata that cannot be stored.
    """
    _require_text(message)
    while True:
        try:
            return _attempt(
                context,
                ending,
                branch,
                parent,
                changes,
                message,
                metadata,
                flush,
                relied,
                attempts or Attempts(),
                note,
            )
        except CollectedMeanwhile:
            continue  # its files may have been taken
        except StorageError as error:
            # A file of the parent: collected, if the branch has left it, and lost otherwise.
            if error.kind == ErrorKind.OBJECT_NOT_FOUND:
                _require_possible(context.repo_info(), ending, branch, parent.id, changes)
                require_listed(context, parent.id, error)
            raise


def _require_text(message: str) -> None:
    try:
        message.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"message: expected text that UTF-8 can encode, found {message!r:.80}", ErrorKind.BAD_METADATA
        ) from None


def _attempt(
    context: Context,
    ending: Ending,
    branch: str | None,
    parent: Snapshot,
    changes: ChangeSet,
    message: str,
    metadata: dict[str, Any],
    flush: Callable[[], None],
    relied: Relied,
    attempts: Attempts,
    note: Note | None,
) -> bytes:
    begun = context.begin()

    if ending.replaces:
        _require_not_first(begun.info, parent.id)
    # In spec version 1 this reads the branch, which has to come before the look back at collections.
    row = _require_possible(begun.info, ending, branch, parent.id, changes)

    # Then no conditional write fails because of a collection, or because the parent is dropped.
    is_unconditional = context.spec_version == 1 and not ending.moves_branch

    def files() -> Files:
        flush()
        ready = _files_of_ready(context, parent, changes)
        manifests = [ready.manifests, *([parent.manifests.ids] if is_unconditional else [])]
        return Files(np.concatenate([changes.chunk_files(), ready.chunks]), np.concatenate(manifests))

    def is_safe(new: U8) -> bool:
        return is_uncollected(context.storage, begun.info, relied.update, lambda: files().and_manifests(new))

    try:
        if not is_safe(_NO_IDS):
            attempts.forget()
    except SessionStateError as error:
        if is_unconditional and context.storage.head(snapshot_key(parent.id)) is None:
            raise base_not_found(parent.id) from error  # that is why its manifests are gone
        raise
    before = begun.info.snapshots.entry(row)
    replaced = _replaced(context, before, changes) if ending.replaces else None
    if ending.replaces:
        metadata = {**_carried(before), **metadata}
    with putting(context.storage) as puts:
        puts.run(flush)
        puts.run(lambda: begun.save(context.storage))
        snapshot, written = write_version(
            context,
            puts,
            begun.info,
            parent,
            changes,
            message,
            metadata,
            attempts,
            replaced,
            rewrites=ending.rewrites,
        )
    attempts.keep()
    if is_unconditional:
        # A collection that has begun since has either seen the snapshot, or put its list before that.
        try:
            is_safe(id_matrix([each.ref.id for each in written]))
        except (ConflictError, SessionStateError) as error:
            # Only what was written in this attempt can be written again: the next one tells.
            raise CollectedMeanwhile from error
    entry = SnapshotEntry(
        snapshot.id,
        before.parent if ending.replaces else parent.id,
        snapshot.flushed_at,
        message,
        metadata,
        before.pruned_ancestor_tx_logs if ending.replaces else (),
    )
    branch = branch if ending.moves_branch else None
    change = new_snapshot(entry, branch, parent.id, needs_flag(changes))
    if ending.replaces:
        change = noted(change, partial(_amended_records, old=parent.id, branch=branch or ""), entry.id)
    if note is not None and context.spec_version > 1:
        change = noted(change, note, entry.id)
    context.update(before_collections(change, begun.info), begun)
    context.assets.keep_snapshot(snapshot)
    for manifest in {each.manifest.id: each.manifest for each in written}.values():
        context.assets.keep_manifest(manifest)
    return snapshot.id


def _require_possible(
    info: RepoInfo, ending: Ending, branch: str | None, parent: bytes, changes: ChangeSet
) -> int:
    """What the update will check again, before anything is written; the row of the parent."""
    require_online(info)
    if flag := needs_flag(changes):
        require_flag(info, flag)
    if branch is not None and ending.moves_branch:
        require_tip(info, branch, parent)
    return require_base(info, parent)


def needs_flag(changes: ChangeSet) -> Flag | None:
    """The feature that the changes use."""
    return MOVE_NODE if changes.moves else None


def _require_not_first(info: RepoInfo, id_: bytes) -> None:
    row = info.snapshots.find_snapshot(id_)
    if row >= 0 and info.snapshots.entry(row).parent is None:
        raise SessionStateError(
            "the first commit of a repository cannot be amended: make a new commit",
            ErrorKind.NO_AMEND_FOR_INITIAL_COMMIT,
        )


#: Keys of a commit's metadata that go on to the commit that replaces it: which batch of a streaming query it
#: is, and what it has merged. It does what the replaced one did.
_CARRIED: Final = (QUERY, BATCH, FRAZIL)


def _carried(before: SnapshotEntry) -> dict[str, Any]:
    return {name: before.metadata[name] for name in _CARRIED if name in before.metadata}


def _amended_records(info: RepoInfo, new: bytes, *, old: bytes, branch: str) -> dict[str, Any]:
    return with_amended(info, old, new, branch)


def _replaced(context: Context, before: SnapshotEntry, changes: ChangeSet) -> TransactionLog:
    """The log of the commit that is to be replaced."""
    log = context.assets.transaction_log(before.id)
    if log.moves and not changes.only_moves:
        raise SessionStateError(
            f"the commit {id_to_text(before.id)} moved nodes: amend it in a session of "
            "Repository.rearrange_session",
            ErrorKind.REARRANGE_SESSION_ONLY,
        )
    return log


def write_version(
    context: Context,
    puts: Puts,
    info: RepoInfo,
    parent: Snapshot,
    changes: ChangeSet,
    message: str,
    metadata: dict[str, Any],
    attempts: Attempts,
    replaced: TransactionLog | None = None,
    *,
    rewrites: bool = False,
) -> tuple[Snapshot, list[Written]]:
    """Put all files of a new version but ``repo``. ``replaced`` is the log of the commit that
    the new one replaces.
    """
    id_ = new_object_id()
    nodes, written = write_manifests(context, puts, parent, changes, attempts, rewrites=rewrites)
    # Later than the parent, whatever this machine's clock says.
    before = info.snapshots.entry(require_snapshot(info, parent.id)).flushed_at
    snapshot = Snapshot(
        id=id_,
        flushed_at=max(now_us(), before + 1),
        message=message,
        metadata=metadata,
        nodes=nodes,
        manifests=manifest_files(_with_ready(parent.manifests, changes), nodes, written),
        parent_id=parent.id,
        spec_version=context.spec_version,
    )
    level = context.settings.compression_level
    log = transaction_log(changes, id_)
    if replaced is not None:
        log = amended_log(replaced, log)
    puts.put(snapshot_key(id_), lambda: encode_snapshot(snapshot, level=level))
    puts.put(
        transaction_key(id_),
        lambda: encode_transaction_log(log, level=level, spec_version=context.spec_version),
    )
    return snapshot, written


def write_manifests(
    context: Context,
    puts: Puts,
    parent: Snapshot,
    changes: ChangeSet,
    attempts: Attempts,
    *,
    rewrites: bool = False,
) -> tuple[NodeTable, list[Written]]:
    """The nodes after the changes, with the manifests that had to be written, all of them if asked to."""
    nodes = changes.moved_nodes(parent.nodes)
    arrays = _arrays_to_write(nodes, changes)
    if rewrites:
        arrays = [node for node in _all_arrays(nodes) if node.id not in changes.ready]
    files = _with_ready(parent.manifests, changes)
    updates = [_update(context, files, node, changes, everything=rewrites) for node in arrays]
    stored = [attempts.find(update) for update in updates]
    missing = [update for update, known in zip(updates, stored, strict=True) if known is None]
    reads = [ref.id for update in missing for ref in update.rewrite.read]
    threads = max(_READERS, context.settings.concurrent_manifest_fetches)
    old = dict(zip(reads, context.assets.manifests(reads, threads), strict=True))
    put = put_manifests(context, puts, [(update.node.id, update.tables(old)) for update in missing])
    new: dict[bytes, list[Written]] = {}
    for manifest in put:
        new.setdefault(manifest.node_id, []).append(manifest)
    for update in missing:
        attempts.add(update, new.get(update.node.id, ()))
    written = [*put, *chain.from_iterable(filter(None, stored))]
    refs: dict[bytes, list[ManifestRef]] = {}
    for manifest in written:
        refs.setdefault(manifest.node_id, []).append(manifest.ref)
    changed = changes.present(nodes)
    for update in updates:
        manifests = (*update.rewrite.unchanged, *refs.get(update.node.id, ()))
        changed[update.node.path] = replace(update.node, array=replace(update.array, manifests=manifests))
    paths = {**changes.nodes, **changed}
    rows = np.fromiter(map(nodes.find_node, paths), np.int64, len(paths))
    return nodes.edit(rows[rows >= 0], NodeTable.from_nodes(list(changed.values()))), written


@dataclass(frozen=True, slots=True, eq=False)
class _Update:
    """An array whose manifests a commit has to look at."""

    node: Node
    array: ArrayData
    edits: ChunkTable
    split: tuple[int, ...]
    rewrite: ManifestRewrite

    @property
    def made_of(self) -> tuple[object, ...]:
        """All that decides what the new manifests hold, but for the edits."""
        read = tuple(ref.id for ref in self.rewrite.read)
        return (self.array.num_chunks, self.split, read)

    def tables(self, manifests: Mapping[bytes, Manifest]) -> list[ChunkTable]:
        """What the new manifests hold, one table each."""
        old = [manifests[ref.id].arrays for ref in self.rewrite.read]
        known = [arrays[self.node.id] for arrays in old if self.node.id in arrays]
        return distribute(self.array, known, self.edits, self.split)


def split_of(context: Context, node: Node, refs: int) -> tuple[int, ...]:
    """Chunks in a manifest of an array with so many references, along each dimension: as configured, or as
    ``auto_split`` says.
    """
    assert node.array is not None
    num_chunks = node.array.num_chunks
    if context.settings.is_split_configured:
        return context.settings.split_sizes_for(node.path, node.array.dimension_names, num_chunks)
    return auto_split(num_chunks, min(refs, math.prod(num_chunks)))  # edits may be of chunks that are there


def num_refs(files: ManifestFiles, array: ArrayData) -> int:
    """References in the manifests of an array."""
    rows = np.isin(id_keys(files.ids), id_keys(id_matrix([ref.id for ref in array.manifests])))
    return int(files.num_chunk_refs[rows].sum())


def _with_ready(files: ManifestFiles, changes: ChangeSet) -> ManifestFiles:
    """With the manifests that others have written."""
    parts = [files, *(ready.files for ready in changes.ready.values())]
    if len(parts) == 1:
        return files
    ids = np.concatenate([part.ids for part in parts])
    _, first = np.unique(id_keys(ids), return_index=True)
    return ManifestFiles(
        ids[first],
        np.concatenate([part.size_bytes for part in parts])[first],
        np.concatenate([part.num_chunk_refs for part in parts])[first],
    )


def _files_of_ready(context: Context, parent: Snapshot, changes: ChangeSet) -> Files:
    """Manifests that others have written, and their chunk files: to be asked for after a collection.

    Raises ``SessionStateError`` (``garbage-collected``) if a manifest itself is gone.
    """
    ids = np.concatenate([_NO_IDS, *(ready.files.ids for ready in changes.ready.values())])
    ids = ids[~np.isin(id_keys(ids), id_keys(parent.manifests.ids))]
    manifests = ids[np.unique(id_keys(ids), return_index=True)[1]]
    parts = [_NO_IDS]
    for id_ in id_list(manifests):
        try:
            parts.append(MANIFEST_CHUNK_FILES.read(context.storage, id_).chunk_ids)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            raise SessionStateError(
                f"`{MANIFEST_CHUNK_FILES.key(id_)}`, written for this commit, is gone: garbage collection "
                "deleted it, with a limit younger than the session. Write it again in a new session",
                ErrorKind.GARBAGE_COLLECTED,
            ) from error
    chunks = np.concatenate(parts)
    return Files(chunks[np.unique(id_keys(chunks), return_index=True)[1]], manifests)


def _update(
    context: Context, files: ManifestFiles, node: Node, changes: ChangeSet, *, everything: bool = False
) -> _Update:
    assert node.array is not None
    array = node.array
    known = changes.chunks.get(node.id)
    edits = ChunkTable.empty(len(array.shape)) if known is None else known.table()
    split = split_of(context, node, num_refs(files, array) + len(edits))
    rewrite = ManifestRewrite((), array.manifests) if everything else plan_rewrite(array, edits, split)
    return _Update(node, array, edits, split, rewrite)


def _all_arrays(nodes: NodeTable) -> list[Node]:
    return list(map(nodes.exact().node, np.flatnonzero(nodes.is_array).tolist()))


def _arrays_to_write(nodes: NodeTable, changes: ChangeSet) -> list[Node]:
    """Arrays with edits of chunks, and those whose grid became smaller than their manifests."""
    edited = {edits.path for edits in changes.chunks.values() if edits}
    resized = {
        path
        for path, node in changes.nodes.items()
        if node is not None
        and node.array is not None
        and any(
            (ref.extents[:, 1] > np.array(node.array.num_chunks, np.int64)).any()
            for ref in node.array.manifests
        )
    }
    return [changes.array(nodes, path) for path in sorted(edited | resized, key=str.encode)]


def put_manifests(
    context: Context, puts: Puts, updates: list[tuple[bytes, list[ChunkTable]]]
) -> list[Written]:
    """Put manifests of these tables, by node id; those of small arrays share files."""
    settings = context.settings
    level = settings.compression_level
    locations = LocationCompression(
        settings.location_compression_min_chunks,
        settings.location_dictionary_samples,
        settings.location_dictionary_bytes,
        settings.location_compression_level,
    )
    manifests = [Manifest(new_object_id(), arrays) for arrays in share(updates)]

    def encoder(manifest: Manifest) -> Callable[[], bytes]:
        return lambda: encode_manifest(
            manifest, level=level, locations=locations, spec_version=context.spec_version
        )

    sizes = [puts.put(manifest_key(each.id), encoder(each)) for each in manifests]
    return [
        Written(node_id, ManifestRef(manifest.id, table.bounds()), manifest, size.result())
        for manifest, size in zip(manifests, sizes, strict=True)
        for node_id, table in manifest.arrays.items()
    ]


def manifest_files(before: ManifestFiles, nodes: NodeTable, written: list[Written]) -> ManifestFiles:
    """The manifests that the nodes refer to, of those that were there and those that were written."""
    written = list({manifest.ref.id: manifest for manifest in written}.values())
    new: U8 = id_matrix([manifest.ref.id for manifest in written])
    ids = np.concatenate([before.ids, new])
    sizes = np.concatenate([before.size_bytes, np.array([manifest.size for manifest in written], np.uint64)])
    counts = np.concatenate(
        [before.num_chunk_refs, np.array([manifest.num_refs for manifest in written], np.uint32)]
    )
    keys = id_keys(ids)
    order = np.argsort(keys)
    used = order[np.isin(keys[order], id_keys(nodes.manifest_ids()))]
    return ManifestFiles(ids[used], sizes[used], counts[used])
