"""The withdrawal of data from all versions.

    survey   1. Read all versions that `repo` or one of its backups lists, and all stored manifests. Each
                manifest with references in the data is written again without them, once for all versions.
                A chunk that is partly in the data is written again with the fill value there.
             2. Write the versions that use such manifests again, with their logs, under new ids.
    update   3. Store the record of the withdrawal, then the new versions in one conditional write of `repo`.
                If another update came first, the survey reads what is new.
    finish   4. Name the new versions in the backups, too.
             5. Delete the chunk files of the data. In packs with other chunks, its bytes become zeros.
             6. Delete the old manifests, statistics, logs and snapshots.
             7. Store the record as done, and read what is stored for the certificate.

Steps 4 to 7 use only the record and what is stored, so a second call ends a withdrawal that was killed. No
version refers to a file when it is deleted. A pack is written again under its own id, and its other chunks
stay where they are, so versions without the data do not change. The entry of the update in the ops log is
that of a collection, so commits of sessions look whether their files still exist.

The bytes of a pack that no version uses may be an earlier copy of the data. They become zeros, too, unless
the file is younger than a lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from operator import is_not
from typing import Any, Final

import numpy as np

from frazil.display import Record, Shown, counted, literal
from frazil.errors import ConflictError, ErrorKind, FormatError, IcechunkError, OutcomeUnknownError
from frazil.format.chunk_table import ChunkKind, ChunkTable
from frazil.format.columns import U8, Ragged, structs
from frazil.format.ids import (
    CHUNKS,
    MANIFESTS,
    NODE_ID_BYTES,
    OBJECT_ID_BYTES,
    SNAPSHOTS,
    STATISTICS,
    TRANSACTIONS,
    chunk_key,
    id_keys,
    id_list,
    id_matrix,
    ids_to_text,
    manifest_key,
    snapshot_key,
    transaction_key,
)
from frazil.format.manifest import Manifest
from frazil.format.nodes import NodeTable
from frazil.format.repo_info import OpsEntry, RepoInfo, UpdateKind, decode_repo_info, encode_repo_info
from frazil.format.snapshot import ManifestFiles, encode_snapshot
from frazil.format.transaction_log import encode_transaction_log
from frazil.maintenance.collection import DeleteLimits, Sweeper
from frazil.maintenance.withdrawal.certificate import (
    OTHER_POSITIONS,
    WITHDRAWALS,
    Removal,
    WithdrawalCertificate,
    backup_keys,
    certify,
    digests_of,
    inline_digests,
    names_any,
    removals,
    stored_inline,
    table_of,
)
from frazil.maintenance.withdrawal.copies import AT_ONCE, copied_files
from frazil.maintenance.withdrawal.selection import ArrayCut, DataSelection, PartialChunks, array_cuts
from frazil.maintenance.withdrawal.spans import ChunkFiles, Mask, Spans, erase, has_bytes
from frazil.repository.catalog.assets import MANIFEST, TRANSACTION_LOG, with_read_statistics
from frazil.repository.catalog.collection_guard import (
    STAGING,
    CollectionRecord,
    LeaseLimit,
    announce,
    new_key,
)
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.repo_changes import require_online
from frazil.repository.catalog.repo_update import RepoUpdate, newest_update
from frazil.repository.catalog.version_info import VIEW_TAG
from frazil.repository.clock import now_us
from frazil.repository.ids import new_object_id
from frazil.repository.session.commit_files import NewManifest, manifest_files, put_manifests, uploading
from frazil.storage.base import IfVersion
from frazil.storage.checks import skip_damage, skip_missing
from frazil.survey.columns import among, distinct, list_objects, no_ids
from frazil.survey.survey import NO_PROGRESS, Progress, reachable, side_by_side
from frazil.threads import Purpose, map_bounded

#: The number of updates of others during a withdrawal after which it gives up.
_TRIES: Final = 20
#: The number of manifests whose spans are united at a time.
_GATHERED: Final = 64
_PAIR_BYTES: Final = OBJECT_ID_BYTES + NODE_ID_BYTES


def _no_pairs() -> U8:
    return np.zeros((0, _PAIR_BYTES), np.uint8)


@dataclass(frozen=True, slots=True, repr=False)
class Withdrawal(Record, shown_as="ops.Withdrawal"):
    """What a withdrawal would remove, and where the data are.

    Attributes:
        what: The data in words.
        arrays: The paths of the arrays, in all versions.
        versions: The id of each version that gets a new one: with the data, or with another array of a
            manifest that has them.
        branches: The branches with such a version in their history.
        tags: The tags with such a version in their history.
        backups: The backups of ``repo`` that name such a version.
        detached: The versions with the data that no branch and no tag leads to.
        manifests: The manifests with references to the data.
        statistics: The files with statistics of their chunks.
        chunk_files: The chunk files that are deleted.
        packs: The chunk files with other chunks, in which bytes become zeros.
        counts: ``references`` in all manifests, ``partial_chunks`` among them, ``bytes_removed`` from chunk
            files, ``bytes_shared``, which stay because references outside of the data use them, and
            ``bytes_unused``, which no version uses and which become zeros.
        sources: The URLs of foreign objects to which references are removed. The objects stay.
        unresolved: What the withdrawal cannot remove, with what to do.
    """

    what: tuple[str, ...]
    arrays: tuple[str, ...]
    versions: tuple[str, ...]
    branches: tuple[str, ...]
    tags: tuple[str, ...]
    backups: tuple[str, ...]
    detached: tuple[str, ...]
    manifests: tuple[str, ...]
    statistics: tuple[str, ...]
    chunk_files: tuple[str, ...]
    packs: tuple[str, ...]
    counts: Mapping[str, int] = field(hash=False)
    sources: tuple[str, ...]
    unresolved: tuple[str, ...]

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            value = list(value) if isinstance(value, tuple) else value
            is_long = isinstance(value, list) and len(value) > _SHOWN
            yield name, f"{len(value):,}" if is_long else literal(value)


#: Longer lists are printed as their length.
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class ManifestCut:
    """What one manifest has of the data, and of other bytes of chunk files.

    ``files`` are the new manifests. ``uses`` are pairs of the old manifest and an array with other
    references, (k, 20), and ``new`` the new manifest of each.
    """

    live: Spans
    gone: Spans
    files: ManifestFiles = field(default_factory=ManifestFiles.empty)
    uses: U8 = field(default_factory=_no_pairs)
    new: U8 = field(default_factory=no_ids)
    inline: U8 = field(default_factory=no_ids)
    sources: tuple[str, ...] = ()
    references: int = 0
    partial: int = 0
    #: Of chunks with only withdrawn elements; and of the chunks of the same arrays that stay.
    certain: Spans = field(default_factory=Spans)
    certain_inline: U8 = field(default_factory=no_ids)
    near: Spans = field(default_factory=Spans)
    near_inline: U8 = field(default_factory=no_ids)
    #: What `gone` and `near` have in common: equal chunks at two positions.
    twins: Spans = field(default_factory=Spans)
    inline_twins: U8 = field(default_factory=no_ids)
    #: Whether it stays, but has arrays that no version has.
    has_orphans: bool = False


@dataclass(slots=True, eq=False)
class WithdrawalSurvey:
    """What a withdrawal has read, and written again. It grows if other updates come in between."""

    files: ChunkFiles
    cuts: Mapping[bytes, ArrayCut] = field(default_factory=dict)
    #: All versions that `repo` or a backup lists, with their metadata; those whose files exist.
    metadata: dict[bytes, dict[str, Any]] = field(default_factory=dict)
    versions: list[bytes] = field(default_factory=list)
    backups: dict[str, U8] = field(default_factory=dict)
    #: Manifests of versions that were read, and all manifests with references in the data.
    seen: set[bytes] = field(default_factory=set)
    cut: dict[bytes, ManifestCut] = field(default_factory=dict)
    #: Manifests that no version uses, with arrays that no version has.
    orphans: set[bytes] = field(default_factory=set)
    #: The ids of all nodes of the versions, uint8 (n, 8).
    nodes: U8 = field(default_factory=lambda: np.zeros((0, NODE_ID_BYTES), np.uint8))
    #: Pairs of a manifest and an array that a version reads from it, (k, 20).
    pairs: U8 = field(default_factory=_no_pairs)
    #: The new ids of snapshots.
    names: dict[bytes, bytes] = field(default_factory=dict)
    live: Spans = field(default_factory=Spans)
    #: Bytes of the chunks of the arrays outside of the data.
    near: Spans = field(default_factory=Spans)
    near_inline: U8 = field(default_factory=no_ids)
    #: Files that cannot be read, or that a lease protects.
    unread: dict[str, None] = field(default_factory=dict)


class Forgetting:
    """One withdrawal: its plan, and the withdrawal itself."""

    def __init__(self, context: Context, selection: DataSelection, progress: Progress = NO_PROGRESS) -> None:
        self._context, self._storage = context, context.storage
        self._selection, self._matches = selection, selection.matches()
        self._progress = progress
        self._partial = PartialChunks(context.chunk_access())
        #: Bytes that are withdrawn at all positions of the arrays.
        self._followed, self._followed_inline = Spans(), no_ids()

    def plan(self) -> Withdrawal:
        """Return what the withdrawal would remove."""
        info, now, storage = self._context.catalog.full_repo_info(), now_us(), self._storage
        require_online(info)
        leases = LeaseLimit(storage, now, now)
        survey, older_than = WithdrawalSurvey(ChunkFiles.of(list_objects(storage, CHUNKS))), leases.refresh()
        self._follow(info, survey.files, older_than)
        self._survey(info, survey, older_than, writes=False)
        removal = self._removal(survey, leases.older_than, "")
        is_affected = among(info.table.ids(), removal.old)
        unlisted = removal.old[~among(removal.old, info.table.ids())]
        detached = np.concatenate([info.table.ids()[is_affected & ~reachable(info)], unlisted])
        statistics = list_objects(storage, STATISTICS)
        tags = _refs_with(info, info.tags, is_affected)
        views = (tag for tag in tags if tag.startswith(VIEW_TAG))
        return Withdrawal(
            what=removal.what,
            arrays=tuple(sorted({path for cut in survey.cuts.values() for path in cut.paths})),
            versions=tuple(ids_to_text(removal.old)),
            branches=_refs_with(info, info.branches, is_affected),
            tags=tags,
            backups=tuple(
                key for key, ids in sorted(survey.backups.items()) if among(ids, removal.old).any()
            ),
            detached=tuple(ids_to_text(detached)),
            manifests=tuple(ids_to_text(removal.manifests)),
            statistics=tuple(ids_to_text(statistics.ids[among(statistics.ids, removal.manifests)])),
            chunk_files=tuple(ids_to_text(removal.chunks)),
            packs=tuple(ids_to_text(distinct([removal.packs]))),
            counts=removal.counts,
            sources=removal.sources,
            unresolved=(
                *self._unresolved(survey, removal, leases),
                *copied_files(
                    self._context,
                    removal.what,
                    {url for each in (removal, *removals(storage)) for url in each.sources},
                ),
                *(
                    f"the view of the tag {tag} may refer to the data, or have copies: refresh it"
                    for tag in views
                ),
            ),
        )

    def finish(self) -> WithdrawalCertificate:
        """Remove the data, and return the certificate."""
        catalog, storage = self._context.catalog, self._storage
        require_online(catalog.repo_info())
        record, now, _ = announce(storage)
        try:
            for earlier in removals(storage):
                if not earlier.done and names_any(catalog.full_repo_info(), earlier.new):
                    self._finish(earlier)
                elif not earlier.done:  # it was killed before its update, which may not be right any more
                    storage.delete([earlier.key])
            removal = self._finish(self._update(record, now))
        finally:
            record.end(storage, leaves_mark=False)
        return certify(self._context, removal)

    # The survey

    def _survey(self, info: RepoInfo, survey: WithdrawalSurvey, older_than: int, *, writes: bool) -> None:
        """Do step 1, as far as it has not been done, and choose the new ids of step 2."""
        self._list_versions(info, survey)
        before = survey.cuts.keys()

        def tables() -> Iterator[NodeTable]:
            snapshots = side_by_side(survey.versions, self._context.assets.snapshot, AT_ONCE)
            return (snapshot.nodes for snapshot in snapshots)

        survey.cuts = array_cuts(tables, self._selection)
        if survey.cuts.keys() != before:  # another array has one of the paths now
            survey.live = Spans()
            survey.seen.clear()
        uses, ids, pairs = dict[bytes, U8](), [survey.nodes], [survey.pairs]
        for id_, nodes in zip(survey.versions, tables(), strict=True):
            uses[id_] = nodes.manifest_ids()
            if self._selection.boxes:
                every = nodes.whole()
                ids, pairs = (
                    [distinct([*parts, new])] if len(parts) > _GATHERED else [*parts, new]
                    for parts, new in ((ids, every.ids), (pairs, _pairs_of(every)))
                )
        survey.nodes, survey.pairs = distinct(ids), distinct(pairs)
        needed = id_list(info.table.ids()[reachable(info)])
        required = set(id_list(distinct([uses[id_] for id_ in needed])))
        used, stored = distinct(list(uses.values())), list_objects(self._storage, MANIFESTS)
        unused = stored.select_files(~among(stored.ids, used))
        survey.unread |= dict.fromkeys(unused.select_files(unused.modified >= older_than).keys())
        unused = unused.select_files(unused.modified < older_than)
        has_statistics = set(id_list(list_objects(self._storage, STATISTICS).ids)) if writes else set()
        todo = [(id_, True) for id_ in id_list(used) if id_ not in survey.seen]
        todo += [(id_, False) for id_ in id_list(unused.ids) if id_ not in survey.cut]
        self._progress.expect(len(todo))

        def cut(item: tuple[bytes, bool]) -> ManifestCut | None:
            id_, is_used = item
            if id_ in required:
                return self._cut(survey, id_, True, writes=writes, has_statistics=id_ in has_statistics)
            with skip_missing(), skip_damage():  # a version without a ref may have lost its files
                part = self._cut(survey, id_, is_used, writes=writes and is_used, has_statistics=False)
                return part if is_used else replace(part, live=Spans(), near=Spans(), near_inline=no_ids())
            return None

        live, near = [survey.live], [survey.near]
        for (id_, is_used), part in zip(todo, side_by_side(todo, cut, AT_ONCE), strict=True):
            self._progress.advance()
            if part is None:
                survey.unread[manifest_key(id_)] = None
                continue
            survey.seen |= {id_} if is_used else set()
            live = [Spans.union([*live, part.live])] if len(live) > _GATHERED else [*live, part.live]
            near = [Spans.union([*near, part.near])] if len(near) > _GATHERED else [*near, part.near]
            survey.near_inline = distinct([survey.near_inline, part.near_inline])
            if part.references:
                survey.cut[id_] = replace(part, live=Spans(), near=Spans())
            elif part.has_orphans:
                survey.orphans.add(id_)
        survey.live, survey.near = Spans.union(live), Spans.union(near)
        changed = id_matrix(list(survey.cut))
        new = [id_ for id_, ids in uses.items() if among(ids, changed).any()]
        while new := [id_ for id_ in new if id_ not in survey.names]:  # and those that name them as parents
            survey.names |= {id_: new_object_id() for id_ in new}
            texts, known = _texts(survey.names), survey.metadata
            new = [id_ for id_ in survey.versions if _with_texts(known[id_], texts) is not known[id_]]

    def _list_versions(self, info: RepoInfo, survey: WithdrawalSurvey) -> None:
        """Note all versions that `repo` and the backups list, and whose files exist."""

        def add(state: RepoInfo) -> U8:
            ids = state.table.ids()
            rows = np.flatnonzero(~among(ids, id_matrix(list(survey.metadata))))
            survey.metadata |= dict(zip(id_list(ids[rows]), state.table.metadata(rows), strict=True))
            return ids

        def backup(key: str) -> RepoInfo | None:
            try:
                with skip_missing():
                    return decode_repo_info(self._storage.get(key), key)
            except FormatError:
                survey.unread[key] = None
            return None

        add(info)
        new = [key for key in backup_keys(self._storage) if key not in survey.backups]
        for key, state in zip(new, side_by_side(new, backup, AT_ONCE), strict=True):
            if state is not None:
                survey.backups[key] = add(state)
        stored = list_objects(self._storage, SNAPSHOTS).ids
        needed, ids = info.table.ids()[reachable(info)], id_matrix(list(survey.metadata))
        for id_ in id_list(needed[~among(needed, stored)]):
            self._context.assets.snapshot(id_)  # raises an error
        survey.versions = id_list(ids[among(ids, stored)])

    def _cut(
        self, survey: WithdrawalSurvey, id_: bytes, is_used: bool, *, writes: bool, has_statistics: bool
    ) -> ManifestCut:
        """Read a manifest, and write it again without the data.

        It may have chunks of arrays that no version reads from it any more. They go if they may be earlier
        chunks of the data: of an array with data, or of one that no version has. A manifest that no version
        uses stays: another writer may be about to commit it.
        """
        manifest = MANIFEST.read(self._storage, id_)
        if has_statistics:
            manifest = with_read_statistics(self._storage, manifest)
        pairs = [(node, each) for node, table in manifest.arrays.items() for each in (table, *table.others)]
        cuts = {node: survey.cuts[node].in_manifest(id_) for node in manifest.arrays if node in survey.cuts}
        orphans = self._orphans(survey, id_, manifest, is_used=is_used)
        masks = [self._masks(survey, cuts.get(node), table) for node, table in pairs]
        certain = np.concatenate([np.zeros(0, np.bool_), *(all_ for all_, _ in masks)])
        for (node, _), (all_, partly) in zip(pairs, masks, strict=True):
            if node in orphans:
                all_[:], partly[:] = all_ | partly, False
        written: dict[bytes, ChunkTable] = {}
        for (node, table), (_, partly) in zip(pairs, masks, strict=True):
            if len(rows := np.flatnonzero(partly)):
                partly[rows], written[node] = self._partial.written(table, rows, cuts[node], writes=writes)
        whole = table_of(manifest)
        gone = np.concatenate([np.zeros(0, np.bool_), *(all_ | partly for all_, partly in masks)])
        has_cut, is_orphan = (
            np.concatenate([gone[:0], *(np.full(len(table), node in nodes) for node, table in pairs)])
            for nodes in (cuts, orphans if is_used else ())
        )
        removal = gone | is_orphan
        spans = survey.files.spans(whole, ~removal), survey.files.spans(whole, gone)
        stays = ~removal & has_cut
        near, near_inline = survey.files.spans(whole, stays), inline_digests(whole, stays)
        if not removal.any():
            return ManifestCut(*spans, near=near, near_inline=near_inline, has_orphans=bool(orphans))
        foreign = np.unique(whole.source[gone & (whole.kind == ChunkKind.VIRTUAL)])
        sources = self._context.virtual.urls(whole.foreign.locations.take(foreign).texts())
        left: dict[bytes, ChunkTable] = {}
        for (node, table), (all_, partly) in zip(pairs, masks, strict=True) if writes else ():
            # References with another number of coordinates are of no array. Unused sources have bytes.
            rest = replace(table.select_chunks(~(all_ | partly)), others=()).prune().compact()
            rest = ChunkTable.merge_tables([rest, written[node]]) if partly.any() else rest
            if len(rest) and table is manifest.arrays[node] and node not in orphans:
                left[node] = rest
        stored = list[NewManifest]()
        if left:
            with uploading(self._storage) as puts:
                updates = [(node, [table]) for node, table in left.items()]
                stored = put_manifests(self._context, puts, updates)
        inline = inline_digests(whole, gone)
        return ManifestCut(
            *spans,
            manifest_files(stored),
            id_matrix([id_ + each.node_id for each in stored], _PAIR_BYTES),
            id_matrix([each.ref.id for each in stored]),
            inline,
            tuple(sources),
            int(removal.sum()),
            sum(int(partly.sum()) for _, partly in masks),
            survey.files.spans(whole, certain),
            inline_digests(whole, certain),
            near,
            near_inline,
            spans[1].common(near),
            inline[among(inline, near_inline)],
        )

    def _orphans(
        self, survey: WithdrawalSurvey, id_: bytes, manifest: Manifest, *, is_used: bool
    ) -> set[bytes]:
        """Return the arrays of a manifest that no version reads from it, and that may be of the data."""
        if not self._selection.boxes or not manifest.arrays:
            return set()
        nodes = id_matrix(list(manifest.arrays), NODE_ID_BYTES)
        is_orphan = ~among(nodes, survey.nodes)
        if is_used and len(nodes) > 1:
            pairs = id_matrix([id_ + node for node in manifest.arrays], _PAIR_BYTES)
            has_data = np.array([node in survey.cuts for node in manifest.arrays])
            is_orphan |= has_data & ~among(pairs, survey.pairs)
        return set(id_list(nodes[is_orphan]))

    def _masks(self, survey: WithdrawalSurvey, cut: ArrayCut | None, table: ChunkTable) -> tuple[Mask, Mask]:
        """Return which references are in the data, and which are of chunks that are partly in them."""
        gone, partly = np.zeros((2, len(table)), np.bool_)
        if cut is not None and (not cut.boxes or table.ndim == len(cut.boxes[0])):
            gone, partly = cut.masks(table.index)
        virtual = np.flatnonzero(table.kind == ChunkKind.VIRTUAL)
        if self._selection.sources and len(virtual):
            urls = self._context.virtual.urls(table.foreign.locations.texts())
            gone[virtual[self._matches(urls)[table.source[virtual]]]] = True
        if cut is not None and len(self._followed.starts):
            rows, starts, stops = survey.files.places(table, ~gone)
            gone[rows[self._followed.contains(starts, stops)]] = True
        if cut is not None and len(self._followed_inline):
            rows = np.flatnonzero(table.kind == ChunkKind.INLINE)
            source, number = np.unique(table.source[rows], return_inverse=True)
            gone[rows] |= among(digests_of(table.inline.take(source)), self._followed_inline)[number]
        return gone, partly & ~gone

    def _follow(self, info: RepoInfo, files: ChunkFiles, older_than: int) -> None:
        """Find the bytes of the chunks that have only withdrawn elements."""
        if self._selection.follow and not len(self._followed.starts):
            survey = WithdrawalSurvey(files)
            self._survey(info, survey, older_than, writes=False)
            self._followed = Spans.union(each.certain for each in survey.cut.values())
            self._followed_inline = distinct([each.certain_inline for each in survey.cut.values()])

    def _removal(self, survey: WithdrawalSurvey, older_than: int, key: str) -> Removal:
        """Return the record of the withdrawal."""
        files, listing = survey.files, survey.files.listing
        own = among(listing.ids, self._partial.files())  # of an earlier attempt, or with equal bytes
        live = Spans.union([survey.live, Spans(files.bases[own], (files.bases + listing.sizes)[own])])
        gone = Spans.union(each.gone for each in survey.cut.values())
        data, unused = gone.without(live), files.unused(self._storage, live).without(gone)
        is_live, had_data = files.lengths(live) > 0, files.lengths(gone) > 0
        may_erase = (listing.modified < older_than)[files.owners(unused)]
        has_unused = ~is_live & ~had_data
        spared = unused.select(~may_erase)
        with_bytes = [id_ for id_, each in files.by_file(spared) if has_bytes(self._storage, id_, each)]
        has_unused |= among(listing.ids, id_matrix(with_bytes))
        unused = unused.select(may_erase)
        erased = Spans.union([unused, data.select(is_live[files.owners(data)])])
        packs, spans = files.in_files(erased)
        cuts = survey.cut.values()
        # A chunk was shifted if a version has it at its old position only. Others have been equal from the
        # beginning, such as constants.
        twins = Spans.union(each.twins for each in cuts)
        twins = twins.without(Spans.union(each.gone.without(each.twins) for each in cuts))
        moved, moved_spans = files.in_files(gone.common(survey.near).without(twins))
        inline = distinct([each.inline for each in cuts])
        is_moved = among(inline, survey.near_inline)
        is_moved &= among(
            inline, distinct([each.inline[~among(each.inline, each.inline_twins)] for each in cuts])
        )
        chunks = listing.ids[had_data & ~is_live]
        return Removal(
            key,
            self._selection.texts(),
            old=id_matrix(list(survey.names)),
            new=id_matrix(list(survey.names.values())),
            manifests=id_matrix(list(survey.cut)),
            chunks=chunks,
            packs=packs,
            spans=spans,
            unused=np.concatenate([listing.ids[has_unused], id_matrix(sorted(survey.orphans - survey.seen))]),
            moved=moved,
            moved_spans=moved_spans,
            inline=inline,
            moved_inline=inline[is_moved],
            sources=tuple(sorted({url for each in cuts for url in each.sources})),
            counts={
                "references": sum(each.references for each in cuts),
                "partial_chunks": sum(each.partial for each in cuts),
                "chunk_files": len(chunks),
                "packs": len(distinct([packs])),
                "inline_chunks": len(inline),
                "bytes_removed": data.length,
                "bytes_shared": gone.length - data.length,
                "bytes_unused": unused.length,
            },
        )

    def _unresolved(self, survey: WithdrawalSurvey, removal: Removal, leases: LeaseLimit) -> Iterator[str]:
        """Yield what the withdrawal cannot remove, with what to do."""
        for lease in leases.leases.values():
            yield f"the lease {lease.info.id} ({lease.info.holder()}) may be of work with the data: end it"
        if staged := list(self._storage.list(STAGING)):
            yield f"{counted(len(staged), 'staged file')} of jobs may have the data: end or discard the jobs"
        if len(removal.unused):
            yield (
                f"{counted(len(removal.unused), 'file')} with chunks that no version uses may have the data: "
                "collect garbage"
            )
        if len(removal.moved) or len(removal.moved_inline):
            yield f"bytes of the data are in use at {OTHER_POSITIONS}"
        yield from (f"{key} cannot be read, or a lease protects it: verify" for key in survey.unread)

    # The update

    def _update(self, record: CollectionRecord, now: int) -> Removal:
        """Do steps 1 to 3."""
        catalog, storage, key = self._context.catalog, self._storage, new_key(WITHDRAWALS)
        survey = WithdrawalSurvey(ChunkFiles.of(list_objects(storage, CHUNKS)))
        for _ in range(_TRIES):
            info, older_than = catalog.full_repo_info(), LeaseLimit(storage, now, now).refresh()
            survey.files = survey.files.extended(list_objects(storage, CHUNKS))
            self._follow(info, survey.files, older_than)
            self._survey(info, survey, older_than, writes=True)
            self._partial.writer.flush()
            storage.put_many(chain.from_iterable(self._version_files(survey)))
            removal = self._removal(survey, older_than, key)
            removal.put(storage)
            record = record.with_list(storage, np.concatenate([removal.manifests, removal.chunks]))
            if not survey.names:
                return removal
            seen = newest_update(info)

            def change(info: RepoInfo, now: int, seen: int = seen) -> RepoUpdate | None:
                require_online(info)
                entry = OpsEntry(UpdateKind.GC_RAN, now)
                return RepoUpdate(renamed(info, survey.names), entry) if newest_update(info) == seen else None

            try:
                if catalog.update_full_repo_info(change) is not None:
                    return removal
            except OutcomeUnknownError:
                raise
            except IcechunkError:  # such as a protected branch: nothing has changed
                storage.delete([key, *map(chunk_key, id_list(self._partial.files()))])
                raise
        raise ConflictError(
            message=f"others updated the repository during {_TRIES} attempts. Repeat the withdrawal when "
            "fewer writers commit",
            kind=ErrorKind.UPDATE_ATTEMPTS_EXHAUSTED,
        )

    def _version_files(self, survey: WithdrawalSurvey) -> Iterator[Sequence[tuple[str, bytes]]]:
        """Yield the snapshot and the log of each new version."""
        level, texts = self._context.settings.compression_level, _texts(survey.names)
        cuts = list(survey.cut.values())
        cut, files = id_matrix(list(survey.cut)), ManifestFiles.union([each.files for each in cuts])
        pairs = np.concatenate([ManifestCut(Spans(), Spans()).uses, *(each.uses for each in cuts)])
        order = np.argsort(id_keys(pairs), kind="stable")
        pairs, new_ids = pairs[order], np.concatenate([no_ids(), *(each.new for each in cuts)])[order]

        def files_of_version(names: tuple[bytes, bytes]) -> Sequence[tuple[str, bytes]]:
            old, new = names
            snapshot = self._context.assets.snapshot(old)
            nodes = _with_manifests(snapshot.nodes.exact(), cut, pairs, new_ids)
            whole = ManifestFiles.union([snapshot.manifests, files])
            snapshot = replace(
                snapshot,
                id=new,
                metadata=_with_texts(snapshot.metadata, texts),
                nodes=nodes,
                manifests=whole.select_manifests(among(whole.ids, nodes.manifest_ids())),
                parent_id=None,  # files of spec version 1 have one
                spec_version=2,
            )
            objects = [(snapshot_key(new), encode_snapshot(snapshot, level=level))]
            with skip_missing():
                log = replace(TRANSACTION_LOG.read(self._storage, old), id=new)
                objects.append((transaction_key(new), encode_transaction_log(log, level=level)))
            return objects

        return side_by_side(survey.names.items(), files_of_version, AT_ONCE)

    def _finish(self, removal: Removal) -> Removal:
        """Do steps 4 to 7."""
        storage, names = self._storage, dict(zip(id_list(removal.old), id_list(removal.new), strict=True))

        def rename(key: str) -> None:
            with skip_missing(), suppress(FormatError):  # the certificate names damaged backups
                data, version = storage.get_versioned(key)
                state = decode_repo_info(data, key)
                if names_any(state, removal.old):
                    level = self._context.settings.compression_level
                    new = encode_repo_info(renamed(state, names), level=level)
                    storage.put(key, new, IfVersion(version))

        map_bounded(Purpose.BACKUP_READS, rename, backup_keys(storage), AT_ONCE)
        chunks = list_objects(storage, CHUNKS)
        files = ChunkFiles.of(chunks)
        map_bounded(Purpose.CHUNK_COPIES, self._erase, files.by_file(removal.erased(files)))
        sweeper, failed = Sweeper(storage, DeleteLimits(), progress=self._progress), 0
        for folder, ids in (
            (CHUNKS, removal.chunks),
            (STATISTICS, removal.manifests),
            (MANIFESTS, removal.manifests),
            (TRANSACTIONS, removal.old),
            (SNAPSHOTS, removal.old),
        ):
            listing = list_objects(storage, folder)
            failed += sweeper.sweep(listing.select_files(among(listing.ids, ids))).failed
        if len(removal.inline):  # equal chunks outside of the data stay, and are none of theirs
            is_shared = among(removal.inline, stored_inline(storage))
            is_shared &= ~among(removal.inline, removal.moved_inline)
            removal = replace(removal, inline=removal.inline[~is_shared])
        removal = replace(removal, done=0 if failed else now_us())
        removal.put(storage)
        return removal

    def _erase(self, file: tuple[bytes, list[tuple[int, int]]]) -> None:
        with skip_missing():  # a collection may have deleted it
            erase(self._storage, *file)


def _refs_with(info: RepoInfo, refs: Mapping[str, bytes], rows: Mask) -> tuple[str, ...]:
    """Return the refs with one of the rows in their history."""
    names = sorted(refs)
    tips = info.table.find_snapshots(id_matrix([refs[name] for name in names])).tolist()
    chains = zip(names, info.table.chains(tips), strict=True)
    return tuple(name for name, chain in chains if rows[chain].any())


def _pairs_of(nodes: NodeTable) -> U8:
    """Return the pairs of a manifest and an array, (k, 20), in the order of the nodes."""
    refs = nodes.manifests.compact()
    ids = np.array(refs.values).view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
    return np.concatenate([ids, np.repeat(nodes.ids, refs.lengths, axis=0)], axis=1)


def _with_manifests(nodes: NodeTable, cut: U8, pairs: U8, new: U8) -> NodeTable:
    """Return nodes with new manifests in place of those that are cut. Others of these are dropped.

    ``pairs`` are sorted pairs of an old manifest and an array, and ``new`` their new manifests.
    """
    extents, own = nodes.extents.compact(), _pairs_of(nodes)
    owners, ids = np.repeat(np.arange(len(nodes)), nodes.manifests.lengths), own[:, :OBJECT_ID_BYTES].copy()
    is_new, keep = among(own, pairs), ~among(ids, cut)
    ids[is_new] = new[id_keys(pairs).searchsorted(id_keys(own[is_new]))]
    keep |= is_new
    counts, numbers = np.bincount(owners[keep], minlength=len(nodes)), 2 * nodes.array_length.lengths
    boxes = extents.values[np.repeat(keep, numbers[owners])]
    hidden = nodes.hidden
    return replace(
        nodes,
        manifests=Ragged.from_lengths(structs(ids[keep]), counts),
        extents=Ragged.from_lengths(boxes, counts * numbers),
        hidden=None if hidden is None else _with_manifests(hidden, cut, pairs, new),
    )


def _texts(names: Mapping[bytes, bytes]) -> dict[str, str]:
    old, new = (ids_to_text(id_matrix(list(each))) for each in (names.keys(), names.values()))
    return dict(zip(old, new, strict=True))


def _with_texts(value: Any, texts: Mapping[str, str]) -> Any:
    """Return JSON in which texts are replaced. A value without them is returned itself."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, dict):
        every = [_with_texts(each, texts) for each in value.values()]
        return dict(zip(value, every, strict=True)) if any(map(is_not, every, value.values())) else value
    if isinstance(value, list):
        every = [_with_texts(each, texts) for each in value]
        return every if any(map(is_not, every, value)) else value
    return value


def renamed(info: RepoInfo, names: Mapping[bytes, bytes]) -> RepoInfo:
    """Return a repo info with other ids of snapshots, in all its parts. A pure function."""
    texts, table, old = _texts(names), info.table, id_matrix(sorted(names))
    new = id_matrix([names[id_] for id_ in sorted(names)])

    def ids(matrix: U8) -> U8:
        rows, out = among(matrix, old), matrix.copy()
        out[rows] = new[id_keys(old).searchsorted(id_keys(matrix[rows]))]
        return out

    pruned = table.pruned().compact()
    logs = ids(np.array(pruned.values).view(np.uint8).reshape(-1, OBJECT_ID_BYTES))
    metadata = table.metadata(np.arange(len(table)))
    items = [_with_texts(each, texts) for each in metadata]
    return replace(
        info,
        snapshots=table.renamed(
            ids(table.ids()),
            items if any(map(is_not, items, metadata)) else None,
            Ragged.from_lengths(structs(logs), pruned.lengths),
        ),
        branches={name: names.get(id_, id_) for name, id_ in info.branches.items()},
        tags={name: names.get(id_, id_) for name, id_ in info.tags.items()},
        metadata=_with_texts(info.metadata, texts),
        ops=replace(info.ops, new=ids(info.ops.new), previous=ids(info.ops.previous)),
    )
