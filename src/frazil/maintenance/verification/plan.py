"""The whole verification: which files to read in which process, and which findings still hold.

Other processes may commit, expire and collect garbage in the meantime. A missing file is a finding only if a
version needs it now. Therefore each finding contains the version or manifest that led to it. At the end, the
state of the repository is read again, and findings of removed versions are dropped. A version that was needed
before and after the verification was needed all the time, so no process was allowed to delete its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from frazil.errors import ConflictError, ErrorKind, IcechunkError
from frazil.format.columns import U8
from frazil.format.ids import id_keys, id_list, id_matrix
from frazil.format.keys import CHUNKS
from frazil.format.repo_info import RepoInfo
from frazil.format.snapshot import ManifestFiles
from frazil.maintenance.file_batches import manifest_batches, snapshot_batches
from frazil.maintenance.listing import listed
from frazil.maintenance.side_by_side import side_by_side
from frazil.maintenance.verification.backups import Named, check_chain, check_named
from frazil.maintenance.verification.chunks import ReadResult, absent, read_rows, split_rows, without_files
from frazil.maintenance.verification.manifests import Needed, check_manifest
from frazil.maintenance.verification.state import State, state_of, versions_of
from frazil.maintenance.verification.uses import Uses
from frazil.maintenance.verification.versions import CheckedVersion, Version, check_versions
from frazil.maintenance.walk_columns import each_once
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.findings import Finding, VerificationReport, VerifyLevel

#: Number of bytes that one item reads.
_BYTES: Final = 1 << 30
#: Number of concurrent items in one process.
_ITEMS: Final = 4
#: Problems of files that cannot be read any more.
_LOSSES: Final = ("unreadable", "missing", "short")
#: Number of manifests that are collected before duplicates are removed.
_GATHERED: Final = 1 << 20
#: Number of attempts to read the chain of backups while other processes change it.
_TRIES: Final = 5

#: A piece of work: from a context and an item to results.
type Piece = Callable[[Context, Any], Iterable[Any]]
#: Does a piece of work for all items in any process. Yields the results in the order of the items.
type Run = Callable[[Piece, Sequence[Any]], Iterator[Any]]


# Pieces of work. Each result begins with the id of its version or manifest.


def versions_piece(context: Context, item: Sequence[Version]) -> Iterator[CheckedVersion]:
    """Check snapshots and their logs."""
    return check_versions(context.storage, item)


def manifests_piece(context: Context, item: Any) -> Iterator[tuple[bytes, list[Finding], Needed]]:
    """Check manifests and foreign objects."""
    what, group = item
    for id_, sizes, uses in group:
        yield id_, *check_manifest(context.storage, context.virtual, id_, sizes, uses, **what)


def lost_piece(context: Context, item: Any) -> Iterator[tuple[bytes, list[Finding]]]:
    """Find references of manifests to chunk files that are missing or short."""
    group, files, sizes = item
    return ((id_, without_files(context.storage, id_, files, sizes)) for id_ in group)


def bytes_piece(context: Context, item: Any) -> Iterator[tuple[bytes, ReadResult]]:
    """Read bytes of chunks."""
    id_, low, high = item
    is_hashed = context.settings.deduplicate
    yield id_, read_rows(context.storage, context.virtual, id_, low, high, is_hashed=is_hashed)


def backups_piece(context: Context, item: Sequence[Named]) -> Iterator[Finding]:
    """Check backups that the ops log names."""
    return check_named(context.storage, item)


PIECES: Final[tuple[Piece, ...]] = (versions_piece, manifests_piece, lost_piece, bytes_piece, backups_piece)


def run_locally(context: Context) -> Run:
    """Return a function that does pieces of work on threads of this process."""

    def run(piece: Piece, items: Sequence[Any]) -> Iterator[Any]:
        for answers in side_by_side(items, lambda item: list(piece(context, item)), _ITEMS):
            yield from answers

    return run


@dataclass(slots=True)
class _Progress:
    """The findings until now, by the version or manifest that led to them."""

    by_version: list[tuple[bytes, Finding]] = field(default_factory=list)
    by_manifest: list[tuple[bytes, Finding]] = field(default_factory=list)
    manifests_of: dict[bytes, U8] = field(default_factory=dict)
    references: int = 0
    manifests: int = 0
    bytes_read: int = 0
    native_chunks: int = 0
    compared_chunks: int = 0


def verify(context: Context, level: VerifyLevel, run: Run) -> VerificationReport:
    """Verify a repository. ``run`` does the pieces of work."""
    state = state_of(context)
    has_chunks = level != "metadata"
    progress, needed = _check_stored(context, state, run, with_chunks=has_chunks, with_foreign=has_chunks)
    if level == "checksum":
        _check_bytes(needed, run, progress)
    backups = _check_backups(context, state, level, run)
    suspects = progress.by_version or progress.by_manifest or state.findings
    findings = [*_still(progress, state, state_of(context) if suspects else state), *backups]
    paths = _paths(context, state, {each.node for each in findings})
    return VerificationReport(
        level,
        len(state.needed),
        progress.manifests,
        progress.references,
        progress.bytes_read,
        tuple(findings),
        paths,
        progress.native_chunks,
        progress.compared_chunks,
    )


def stored_findings(context: Context, info: RepoInfo, run: Run) -> list[Finding]:
    """Return findings about missing or damaged files that the versions of ``info`` need.

    The storage does not need the file ``repo``. Foreign objects and the bytes of chunks are not checked.
    """
    state = State(tuple(version for version in versions_of(info) if version.is_needed), (), info)
    progress, _ = _check_stored(context, state, run, with_chunks=True, with_foreign=False)
    chain, _ = check_chain(context.storage, info)
    return [each for each in (*_still(progress, state, state), *chain) if each.problem in _LOSSES]


def _check_stored(
    context: Context, state: State, run: Run, *, with_chunks: bool, with_foreign: bool
) -> tuple[_Progress, dict[bytes, Needed]]:
    progress = _Progress()
    files, uses = _check_versions(state, run, progress)
    what = {"with_chunks": with_chunks, "with_foreign": with_foreign}
    needed = _check_manifests(files, uses, what, run, progress)
    if with_chunks:
        _check_files(context, files, needed, run, progress)
    return progress, needed


def _check_versions(state: State, run: Run, progress: _Progress) -> tuple[ManifestFiles, Uses]:
    lists: list[ManifestFiles] = [ManifestFiles.empty()]
    users: list[Uses] = []
    gathered = 0
    for checked in run(versions_piece, snapshot_batches(state.versions)):
        progress.by_version += ((checked.id, each) for each in checked.findings)
        progress.manifests_of[checked.id] = checked.manifests.ids
        lists.append(checked.manifests)
        users.append(checked.uses)
        gathered += len(checked.uses.manifests) + len(checked.manifests)
        if gathered > _GATHERED:
            lists, users, gathered = [each_once(lists)], [Uses.union(users)], 0
    files = each_once(lists)
    progress.manifests, progress.references = len(files), int(files.num_chunk_refs.sum())
    return files, Uses.union(users)


def _check_manifests(
    files: ManifestFiles, uses: Uses, what: dict[str, bool], run: Run, progress: _Progress
) -> dict[bytes, Needed]:
    work = [
        (what, [(id_, (size, count), uses.of(id_)) for id_, size, count in group])
        for group in manifest_batches(files, with_sizes=True)
    ]
    needed: dict[bytes, Needed] = {}
    for id_, findings, need in run(manifests_piece, work):
        progress.by_manifest += ((id_, each) for each in findings)
        needed[id_] = need
    return needed


def _check_files(
    context: Context, files: ManifestFiles, needed: dict[bytes, Needed], run: Run, progress: _Progress
) -> None:
    lost, sizes = absent(needed.values(), listed(context.storage, CHUNKS))
    if not len(lost):
        return
    hit = [bool(np.isin(id_keys(need.files), id_keys(lost)).any()) for need in needed.values()]
    affected = files.select_manifests(np.isin(id_keys(files.ids), id_keys(id_matrix(_chosen(needed, hit)))))
    work = [(group, lost, sizes) for group in manifest_batches(affected)]
    for id_, findings in run(lost_piece, work):
        progress.by_manifest += ((id_, each) for each in findings)


def _chosen(needed: dict[bytes, Needed], hit: list[bool]) -> list[bytes]:
    return [id_ for id_, chosen in zip(needed, hit, strict=True) if chosen]


def _check_bytes(needed: dict[bytes, Needed], run: Run, progress: _Progress) -> None:
    ranges = [
        (id_, low, high)
        for id_, need in needed.items()
        for low, high in split_rows(need.count, need.size, _BYTES)
        if need.size
    ]
    reported = {each.key for _, each in progress.by_manifest}
    for id_, result in run(bytes_piece, ranges):
        progress.by_manifest += ((id_, each) for each in result.findings if each.key not in reported)
        progress.bytes_read += result.size
        progress.native_chunks += result.native
        progress.compared_chunks += result.compared


def _check_backups(context: Context, state: State, level: VerifyLevel, run: Run) -> list[Finding]:
    """Check the chain of backups.

    Writers of the repository change the chain, and a collection then deletes backups that are no
    longer in it.
    """
    info = state.info
    for _ in range(_TRIES):
        if info is None:
            return []
        findings, named = check_chain(context.storage, info)
        if level == "checksum":
            findings += run(backups_piece, snapshot_batches(list(named)))
        newer = state_of(context).info if findings else None
        if newer is None or newer.repo_before_updates == info.repo_before_updates:
            return findings
        info = newer
    raise ConflictError(
        message=f"the ops log changed its backups during each of {_TRIES} attempts to verify it. Try again",
        kind=ErrorKind.REPO_INFO_UPDATED,
    )


def _still(progress: _Progress, before: State, after: State) -> list[Finding]:
    """Return the findings of needed files, each once."""
    # For versions without a ref, only damage was reported.
    detached = {version.id for version in before.versions if not version.is_needed}
    unreadable = after.info is None and not after.versions
    alive = before.needed if unreadable else after.needed
    used = _used(progress, alive)
    gone = {each.key for each in before.findings} - {each.key for each in after.findings}
    every = [
        *(each for each in before.findings if each.key not in gone),
        *(each for id_, each in progress.by_version if id_ in alive | detached),
        *(each for id_, each in progress.by_manifest if id_ in used),
    ]
    once = {(each.problem, each.key, each.node, each.coordinates.tobytes()): each for each in every}
    return list(once.values())


def _used(progress: _Progress, alive: set[bytes]) -> set[bytes]:
    """Return the manifests with findings that versions in ``alive`` use."""
    suspects = list({id_ for id_, _ in progress.by_manifest})
    if not suspects:
        return set()
    lists = [ids for version, ids in progress.manifests_of.items() if version in alive]
    ids = id_matrix(suspects)
    return set(id_list(ids[np.isin(id_keys(ids), id_keys(np.concatenate([ids[:0], *lists])))]))


def _paths(context: Context, state: State, nodes: set[bytes]) -> dict[bytes, str]:
    """Return the paths of nodes, from the newest readable version that has them."""
    left, paths = nodes - {b""}, dict[bytes, str]()
    assets = Assets(context.storage, context.assets.limits)
    for version in reversed(state.versions):
        if not left:
            break
        try:
            table = assets.snapshot(version.id).nodes
        except IcechunkError:  # there is a finding for it
            continue
        paths_by_id = dict(zip(id_list(table.ids), table.paths_list(), strict=True))
        paths.update((node, paths_by_id[node]) for node in left & paths_by_id.keys())
        left -= paths.keys()
    return paths
