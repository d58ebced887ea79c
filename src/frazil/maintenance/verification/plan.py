"""The whole verification: which files to read in which process, and which findings still hold.

Other processes may commit, expire and collect garbage in the meantime. A missing file is a finding only if a
version needs it now. Therefore each finding contains the version or manifest that led to it. At the end, the
state of the repository is read again, and findings of removed versions are dropped. A version that was needed
before and after the verification was needed all the time, so no process was allowed to delete its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from frazil.errors import ConflictError, ErrorKind, IcechunkError
from frazil.format.columns import U8
from frazil.format.ids import OBJECT_ID_BYTES, id_from_text, id_keys, id_list, id_matrix, is_id_text
from frazil.format.keys import CHUNKS, MANIFESTS, SNAPSHOTS, TRANSACTIONS
from frazil.format.repo_info import RepoInfo
from frazil.format.snapshot import ManifestFiles
from frazil.maintenance.file_batches import manifest_batches, snapshot_batches
from frazil.maintenance.listing import Listed, among, distinct, listed
from frazil.maintenance.progress import Progress
from frazil.maintenance.verification.backups import check_chain
from frazil.maintenance.verification.checks import LEVELS
from frazil.maintenance.verification.chunks import ReadRequest, absent, split_rows
from frazil.maintenance.verification.findings import Finding, Severity, VerificationReport, VerifyLevel
from frazil.maintenance.verification.gathered import Gathered
from frazil.maintenance.verification.leftovers import Files, folder_files, name_findings, unreferenced
from frazil.maintenance.verification.log_chunks import LoggedChanges
from frazil.maintenance.verification.manifests import ManifestLevel, ManifestUse, Needed
from frazil.maintenance.verification.markers import marker_findings
from frazil.maintenance.verification.ops import ops_findings
from frazil.maintenance.verification.pieces import (
    PIECES,
    Piece,
    Run,
    backups_piece,
    bytes_piece,
    logs_piece,
    lost_piece,
    manifests_piece,
    run_locally,
    versions_piece,
)
from frazil.maintenance.verification.records import bytes_records, log_records, manifest_records
from frazil.maintenance.verification.runner import Runner
from frazil.maintenance.verification.state import State, state_of, versions_of
from frazil.maintenance.verification.uses import Uses
from frazil.maintenance.verification.verification_state import VerificationState
from frazil.maintenance.walk_columns import each_once
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.context import Context

#: Number of bytes that one item reads.
_BYTES: Final = 1 << 30
#: Number of manifests that are collected before duplicates are removed.
_GATHERED: Final = 1 << 20
#: Number of attempts to read the chain of backups while other processes change it.
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Request:
    """What to verify, and how.

    Attributes:
        level: How much to read.
        run: Does the pieces of work.
        state: The pieces that an earlier run has done, or None.
        progress: A progress bar, or None.
    """

    level: VerifyLevel
    run: Run
    state: VerificationState | None = None
    progress: Progress | None = None

    def has(self, level: VerifyLevel) -> bool:
        """Return whether the request includes a level."""
        return LEVELS.index(level) <= LEVELS.index(self.level)


@dataclass(slots=True, eq=False)
class _Work:
    """A verification that runs: its request, its runner, and what it has gathered."""

    context: Context
    request: Request
    state: State
    runner: Runner
    gathered: Gathered

    def manifest_level(self) -> ManifestLevel:
        has_chunks = self.request.has("exists")
        return ManifestLevel(has_chunks, has_chunks, self.request.has("decode"), self.context.spec_version)


def verify(context: Context, request: Request) -> VerificationReport:
    """Verify a repository."""
    folders = (SNAPSHOTS, TRANSACTIONS, MANIFESTS, *((CHUNKS,) if request.has("exists") else ()))
    # The listings are older than the state, so that they have no files of later commits.
    files = {folder: folder_files(context.storage, folder) for folder in folders}
    state = state_of(context)
    runner = Runner(request.run, request.state, request.progress)
    work = _Work(context, request, state, runner, Gathered())
    manifests, uses = _check_versions(work)
    needed = _check_manifests(work, manifests, uses)
    if request.has("exists"):
        _check_files(work, manifests, needed, listed(context.storage, CHUNKS))
    if request.has("checksum"):
        _check_bytes(work, needed, uses, files[CHUNKS].listed)
    backups = _check_backups(work)
    gathered = work.gathered
    suspects = gathered.by_version or gathered.by_manifest or state.findings
    findings = gathered.findings(state, state_of(context) if suspects else state)
    findings += backups
    findings += _leftovers(work, files, manifests, needed, findings)
    findings += marker_findings(context.storage)
    paths = _paths(context, state, {each.node for each in findings} | set(_nodes(findings, uses)))
    return VerificationReport(
        request.level,
        len(state.needed),
        gathered.manifests,
        gathered.references,
        gathered.bytes_read,
        tuple(_with_arrays(each, uses, paths) for each in findings),
        paths,
        gathered.native_chunks,
        gathered.compared_chunks,
        runner.resumed,
    )


def stored_findings(context: Context, info: RepoInfo, run: Run) -> list[Finding]:
    """Return findings about missing or damaged files that the versions of ``info`` need.

    The storage does not need the file ``repo``. Foreign objects and the bytes of chunks are not checked.
    """
    state = State(tuple(version for version in versions_of(info) if version.is_needed), (), info)
    work = _Work(context, Request("exists", run), state, Runner(run), Gathered())
    manifests, uses = _check_versions(work)
    needed = _check_manifests(work, manifests, uses, ManifestLevel(with_chunks=True))
    _check_files(work, manifests, needed, listed(context.storage, CHUNKS))
    findings = [*work.gathered.findings(state, state), *check_chain(context.storage, info).findings]
    return [each for each in findings if _hides_files(each)]


def _hides_files(finding: Finding) -> bool:
    """Return whether a finding is about a file that was not read, and that may refer to other files."""
    return finding.severity is Severity.LOSS or finding.check == "unavailable"


def _check_versions(work: _Work) -> tuple[ManifestFiles, Uses]:
    lists: list[ManifestFiles] = [ManifestFiles.empty()]
    users: list[Uses] = []
    gathered, count = work.gathered, 0
    changes: list[LoggedChanges] = []
    versions = work.state.versions
    for checked in work.runner.results(versions_piece, versions, snapshot_batches):
        gathered.by_version += ((checked.id, each) for each in checked.findings)
        gathered.manifests_of[checked.id] = checked.manifests.ids
        lists.append(checked.manifests)
        changes += [checked.changes] if checked.changes.arrays else []
        users.append(checked.uses)
        count += len(checked.uses.manifests) + len(checked.manifests)
        if count > _GATHERED:
            lists, users, count = [each_listing_once(lists)], [Uses.union(users)], 0
    for id_, findings in work.runner.results(
        logs_piece, changes, snapshot_batches, recorded=log_records(work.context)
    ):
        gathered.by_version += ((id_, each) for each in findings)
    listings = each_listing_once(lists)
    files = each_once([listings])
    gathered.manifests, gathered.references = len(files), int(files.num_chunk_refs.sum())
    return listings, Uses.union(users)


def _check_manifests(
    work: _Work, files: ManifestFiles, uses: Uses, level: ManifestLevel | None = None
) -> dict[bytes, Needed]:
    shared = level or work.manifest_level()
    rows = list(zip(files.size_bytes.tolist(), files.num_chunk_refs.tolist(), strict=True))
    ids = id_list(files.ids)
    stops = [*(row for row in range(1, len(ids)) if ids[row] != ids[row - 1]), len(ids)] if ids else []
    elements = [
        ManifestUse(ids[start], rows[start:stop], uses.of(ids[start]))
        for start, stop in zip([0, *stops], stops, strict=False)
    ]
    needed: dict[bytes, Needed] = {}
    results = work.runner.results(
        manifests_piece,
        elements,
        _use_batches,
        shared=shared,
        recorded=manifest_records(work.context, shared),
    )
    for id_, findings, need in results:
        work.gathered.by_manifest += ((id_, each) for each in findings)
        needed[id_] = need
    return needed


def each_listing_once(parts: Sequence[ManifestFiles]) -> ManifestFiles:
    """Return each row of several lists of manifests once, sorted. Lists may contradict each other."""
    ids, sizes, counts = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("ids", "size_bytes", "num_chunk_refs")
    )
    keys = np.column_stack((ids, sizes.view(np.uint8).reshape(-1, 8), counts.view(np.uint8).reshape(-1, 4)))
    _, first = np.unique(id_keys(keys), return_index=True)
    return ManifestFiles(ids[first], sizes[first], counts[first])


def _use_batches(uses: Sequence[ManifestUse]) -> list[Sequence[ManifestUse]]:
    """Return manifests in batches with a limited number of references."""
    counts = np.array([use.listed[0][1] for use in uses], np.uint32)
    ids = id_matrix([use.id for use in uses])
    sizes = [len(batch) for batch in manifest_batches(ManifestFiles(ids, counts.astype(np.uint64), counts))]
    stops = np.cumsum([0, *sizes]).tolist()
    return [uses[start:stop] for start, stop in pairwise(stops)]


def _check_files(work: _Work, files: ManifestFiles, needed: dict[bytes, Needed], chunks: Listed) -> None:
    lost = absent(needed.values(), chunks)
    if not len(lost.ids):
        return
    affected = [id_ for id_, need in needed.items() if np.isin(id_keys(need.files), id_keys(lost.ids)).any()]
    every = each_once([files])
    chosen = every.select_manifests(np.isin(id_keys(every.ids), id_keys(id_matrix(affected))))

    def batches(ids: Sequence[bytes]) -> list[list[bytes]]:
        return manifest_batches(chosen)

    for id_, findings in work.runner.results(lost_piece, id_list(chosen.ids), batches, shared=lost):
        work.gathered.by_manifest += ((id_, each) for each in findings)


def _check_bytes(work: _Work, needed: dict[bytes, Needed], uses: Uses, chunks: Listed) -> None:
    is_hashed = work.context.settings.deduplicate
    decodes = work.request.has("decode")
    requests = [
        ReadRequest(id_, low, high, is_hashed, uses.snapshots_of(id_) if decodes else {})
        for id_, need in needed.items()
        for low, high in split_rows(need.count, need.size, _BYTES)
        if need.size
    ]
    reported = {each.key for _, each in work.gathered.by_manifest}
    results = work.runner.results(
        bytes_piece,
        requests,
        lambda left: [[request] for request in left],
        recorded=bytes_records(work.context, work.request.level, needed, chunks),
    )
    gathered = work.gathered
    for id_, result in results:
        findings = [each for each in result.findings if each.key not in reported]
        gathered.by_manifest += ((id_, each) for each in findings if _is_needed(each, needed))
        gathered.bytes_read += result.size
        gathered.native_chunks += result.native
        gathered.compared_chunks += result.compared


def _is_needed(finding: Finding, needed: dict[bytes, Needed]) -> bool:
    """Return whether the file of a finding is needed. Only a comparison with a name reads other files."""
    if finding.check != "exchanged" or len(finding.coordinates):
        return True
    id_ = id_matrix([id_from_text(finding.key.rpartition("/")[2])])
    return any(among(id_, need.files).any() for need in needed.values())


def _check_backups(work: _Work) -> list[Finding]:
    """Check the ops log and its chain of backups.

    Writers of the repository change the chain, and a collection then deletes backups that are no
    longer in it.
    """
    info = work.state.info
    for _ in range(_TRIES):
        if info is None:
            return []
        chain = check_chain(work.context.storage, info)
        findings = [*chain.findings, *_ops_findings(info, chain)]
        if work.request.has("checksum"):
            for more in work.runner.results(backups_piece, list(chain.named()), snapshot_batches):
                findings += more
        newer = state_of(work.context).info if findings else None
        if newer is None or newer.repo_before_updates == info.repo_before_updates:
            return findings
        info = newer
    raise ConflictError(
        message=f"the ops log changed its backups during each of {_TRIES} attempts to verify it. Try again",
        kind=ErrorKind.REPO_INFO_UPDATED,
    )


def _ops_findings(info: RepoInfo, chain: Any) -> list[Finding]:
    try:
        return list(ops_findings(info, chain.logs, is_complete=chain.is_complete))
    except IcechunkError:  # texts of the log are damaged, which the rules of ``repo`` report
        return []


def _leftovers(
    work: _Work,
    files: dict[str, Files],
    manifests: ManifestFiles,
    needed: dict[bytes, Needed],
    findings: Sequence[Finding],
) -> Iterator[Finding]:
    for listing in files.values():
        yield from name_findings(listing)
    if any(map(_hides_files, findings)):
        return
    versions = work.state.versions
    snapshots = id_matrix([version.id for version in versions])
    pruned = id_matrix([id_ for version in versions for id_ in version.pruned])
    ids: dict[str, U8] = {
        SNAPSHOTS: snapshots,
        TRANSACTIONS: distinct([snapshots, pruned]),
        MANIFESTS: manifests.ids,
        CHUNKS: distinct(
            [np.zeros((0, OBJECT_ID_BYTES), np.uint8), *(need.files for need in needed.values())]
        ),
    }
    for folder, listing in files.items():
        yield from unreferenced(listing, ids[folder])


def _nodes(findings: Iterable[Finding], uses: Uses) -> Iterator[bytes]:
    """Yield the arrays whose chunks the files of findings have, or whose references."""
    for each in findings:
        folder, _, name = each.key.partition("/")
        if each.node:
            yield each.node
        elif folder == MANIFESTS and is_id_text(name):
            yield from (node for node, _ in uses.of(id_from_text(name)))


def _with_arrays(finding: Finding, uses: Uses, paths: Mapping[bytes, str]) -> Finding:
    arrays = tuple(sorted({paths[node] for node in _nodes([finding], uses) if node in paths}))
    return replace(finding, affected=replace(finding.affected, arrays=arrays)) if arrays else finding


def _paths(context: Context, state: State, nodes: set[bytes]) -> dict[bytes, str]:
    """Return the paths of nodes, from the newest readable version that has them."""
    left, paths = nodes - {b""}, dict[bytes, str]()
    assets = Assets(context.storage, context.assets.limits)
    for version in reversed(state.versions):
        if not left:
            break
        try:
            table = assets.snapshot(version.id).nodes
            paths_by_id = dict(zip(id_list(table.ids), table.paths_list(), strict=True))
        except IcechunkError:  # there is a finding for it
            continue
        paths.update((node, paths_by_id[node]) for node in left & paths_by_id.keys())
        left -= paths.keys()
    return paths


__all__ = ["PIECES", "Piece", "Request", "Run", "run_locally", "stored_findings", "verify"]
