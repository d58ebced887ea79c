"""The whole verification: which files to read in which process, and which findings still hold.

Other processes may commit, expire and collect garbage in the meantime, so each finding contains the version
or manifest that led to it. At the end, the state of the repository is read again, and findings of versions
that are not needed any more are dropped. A version that was needed before and after was needed all the time.

A state records results without findings, by keys of everything that they depend on. A manifest and a snapshot
never change under their ids. A damaged or restored chunk file has another size or time in the listing. Pieces
with virtual references are never recorded, because foreign objects may change.
"""

from __future__ import annotations

import hashlib
import os
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frazil.changes.diff import rows_of
from frazil.display import counted
from frazil.engines import Engine, EngineName
from frazil.errors import ConflictError, ErrorKind, IcechunkError, InvalidInputError
from frazil.format.columns import U8
from frazil.format.ids import (
    CHUNKS,
    MANIFESTS,
    NODE_ID_BYTES,
    SNAPSHOTS,
    TRANSACTIONS,
    id_from_text,
    id_keys,
    id_list,
    id_matrix,
    ids_among,
    ids_to_text,
    is_id_text,
)
from frazil.format.repo_info import RepoInfo
from frazil.format.snapshot import ManifestFiles
from frazil.lazy_names import ModuleOnDemand
from frazil.maintenance.backups import check_latest
from frazil.maintenance.verification.chunks import (
    ReadRequest,
    ReadResult,
    check_bytes,
    check_lost,
    lost_files,
)
from frazil.maintenance.verification.files import (
    LoggedChanges,
    ManifestLevel,
    ManifestUse,
    NeededChunkFiles,
    check_log_chunks,
    check_manifests,
    check_versions,
)
from frazil.maintenance.verification.findings import (
    LEVELS,
    AffectedArrays,
    Finding,
    Severity,
    VerificationReport,
    VerifyLevel,
)
from frazil.maintenance.verification.repo_state import (
    RepositoryState,
    check_backups,
    check_chain,
    ops_findings,
    state_of,
    versions_of,
)
from frazil.repository.catalog.assets import Assets
from frazil.repository.catalog.context import Context
from frazil.storage.base import Storage
from frazil.survey.columns import ManifestUses, ObjectListing, among, distinct, joined_columns, list_objects
from frazil.survey.survey import (
    NO_PROGRESS,
    Piece,
    Progress,
    Run,
    manifest_batches,
    run_with,
    snapshot_batches,
)

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = ModuleOnDemand("sqlite3")


_TABLE: Final = "CREATE TABLE IF NOT EXISTS pieces (key BLOB PRIMARY KEY, result BLOB NOT NULL) WITHOUT ROWID"


class VerificationState:
    """The pieces of a verification that are done.

    Args:
        path: The file of the state, which is created if it does not exist. Default: in memory.

    Raises:
        InvalidInputError: ``invalid-argument`` if the file is not the state of a verification.
        TypeError: ``path`` is neither a path nor None.

    Examples:
        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> state = frazil.VerificationState()
        >>> repo.upkeep.verify("exists", state=state).ok, len(state)
        (True, 0)
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._lock = Lock()
        place = os.fspath(path) if isinstance(path, os.PathLike) else path
        if not isinstance(place, str | None):
            raise TypeError(f"state must be a VerificationState, a path or None, got {type(path).__name__}")
        if place is not None and (not place or "\0" in place):
            raise InvalidInputError(f"state must be the path of a file, got {place!r:.80}")
        self._path = ":memory:" if place is None else place
        try:
            self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._database.close)
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.execute(_TABLE)
            self._database.execute("SELECT key, result FROM pieces LIMIT 1").fetchall()
        except sqlite3.Error as error:
            raise InvalidInputError(
                f"state must be a new file or the state of a verification, got {self._path!r}: {error}. Use "
                "another file, or delete this one"
            ) from error

    def __len__(self) -> int:
        return int((self._fetch("SELECT count(*) FROM pieces") or (0,))[0])

    def __repr__(self) -> str:
        return f"<frazil.VerificationState {self._path}: {len(self)} pieces>"

    def result_of(self, key: bytes) -> bytes | None:
        """Return the result of a piece, or None if the piece is not done.

        Args:
            key: What the result depends on.

        Returns:
            The bytes that were stored.

        Examples:
            >>> VerificationState().result_of(b"piece") is None
            True
        """
        row = self._fetch("SELECT result FROM pieces WHERE key = ?", key)
        return None if row is None else bytes(row[0])

    def record(self, key: bytes, result: bytes) -> None:
        """Record that a piece is done.

        Args:
            key: What the result depends on.
            result: The result of the piece.

        Examples:
            >>> VerificationState().record(b"piece", b"done")
        """
        with self._lock:
            self._database.execute("INSERT OR REPLACE INTO pieces VALUES (?, ?)", (key, result))

    def close(self) -> None:
        """Close the file.

        Examples:
            >>> VerificationState().close()
        """
        with self._lock:
            self._database.close()

    def _fetch(self, query: str, *values: bytes) -> tuple[Any, ...] | None:
        with self._lock:
            row: tuple[Any, ...] | None = self._database.execute(query, values).fetchone()
            return row


def _piece_key(context: Context, *parts: bytes | str | int) -> bytes:
    """Return the key of a piece: a hash of the storage, and of everything else that its result depends on."""
    digest = hashlib.sha256()
    for part in (context.storage.label(), *parts):
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()


#: Findings that a garbage collection can cause in versions without a branch or tag.
_COLLECTED: Final = frozenset({"missing", "short"})


@dataclass(slots=True)
class Evidence:
    """The findings until now, by the version or manifest that led to them."""

    by_version: list[tuple[bytes, Finding]] = field(default_factory=list)
    by_manifest: list[tuple[bytes, Finding]] = field(default_factory=list)
    manifests_of: dict[bytes, U8] = field(default_factory=dict)
    bytes_read: int = 0
    native_chunks: int = 0
    compared_chunks: int = 0

    def findings(self, before: RepositoryState, after: RepositoryState) -> dict[Finding, dict[str, bytes]]:
        """Return the findings of needed files, each once, with the versions that they affect.

        The values are versions that have the arrays of a finding: the tips of branches and tags by name, or
        the newest version, without a name.
        """
        rows = {id_: row for row, id_ in enumerate(self.manifests_of)}
        versions = list(rows)

        def bits(ids: Set[bytes]) -> int:
            if len(ids) == 1:
                return 1 << row if (row := rows.get(next(iter(ids)))) is not None else 0
            return _number(np.fromiter((id_ in ids for id_ in rows), bool, len(rows)))

        unreadable = after.info is None and not after.versions
        alive = bits(before.needed if unreadable else after.needed)
        # For versions without a ref, only damage is reported.
        detached = bits({version.id for version in before.versions if not version.is_needed})
        removals = {each.key for each in before.findings} - {each.key for each in after.findings}
        every = [(each, 0) for each in before.findings if each.key not in removals]
        for id_, each in self.by_version:
            if (ids := bits({id_})) & (alive | detached):
                every.append((each, ids))
        users = self._users()
        for id_, each in self.by_manifest:
            if (ids := users[id_]) & alive or (ids & detached and each.check not in _COLLECTED):
                every.append((each, ids))
        once: dict[tuple[str, str, bytes, bytes], tuple[Finding, int]] = {}
        for each, ids in every:
            key = each.check, each.key, each.node, each.coordinates.tobytes() + each.offsets.tobytes()
            once[key] = each, ids | (once[key][1] if key in once else 0)
        findings: dict[Finding, dict[str, bytes]] = {}
        for each, ids in once.values():
            newest = {"": versions[ids.bit_length() - 1]} if ids else {}
            ids &= alive
            branches, tags = (
                {name: tip for name, tip in sorted(refs.items()) if bits({tip}) & ids}
                for refs in (after.branches, after.tags)
            )
            affected = AffectedArrays((), tuple(branches), tuple(tags), ids.bit_count())
            findings[replace(each, affected=affected)] = {**tags, **branches} or newest
        return findings

    def _users(self) -> dict[bytes, int]:
        """Return the versions that use each manifest with findings."""
        suspects = list({id_ for id_, _ in self.by_manifest})
        if not suspects:
            return {}
        lists = list(self.manifests_of.values())
        every = np.concatenate(lists)
        owners = np.repeat(np.arange(len(lists)), list(map(len, lists)))
        hits = ids_among(every, id_matrix(suspects))
        keys = id_keys(id_matrix(suspects))
        order = np.argsort(keys)
        which = order[keys[order].searchsorted(id_keys(every[hits]))]
        ends = np.cumsum(np.bincount(which, minlength=len(suspects)))
        users: dict[bytes, int] = {}
        for id_, rows in zip(suspects, np.split(np.argsort(which, kind="stable"), ends[:-1]), strict=True):
            bits = np.zeros(len(lists), bool)
            bits[owners[hits][rows]] = True
            users[id_] = _number(bits)
        return users


def _number(bits: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


class ResumeCodec[E, R](NamedTuple):
    """How results are recorded: the key of an element, and a result as bytes. None is not recorded."""

    key: Callable[[E], bytes | None]
    dump: Callable[[R], bytes | None]
    load: Callable[[E, bytes], R]


@dataclass(slots=True)
class Runner:
    """A run of pieces. ``resumed`` counts the elements that the state has as done."""

    run: Run
    state: VerificationState | None
    progress: Progress
    resumed: int = 0

    def results(
        self,
        piece: Piece,
        elements: Sequence[Any],
        batches: Callable[[Sequence[Any]], Sequence[Sequence[Any]]],
        *,
        shared: Any = None,
        codec: ResumeCodec[Any, Any] | None = None,
    ) -> Iterator[Any]:
        """Yield the results of a piece for all elements, in any order."""
        state = self.state
        waiting = list[Any]()
        for element in elements:
            result = key = None
            if state is not None and codec is not None and (key := codec.key(element)) is not None:
                # If the file of the state is damaged, the piece is done again.
                with suppress(ValueError, zlib.error):
                    data = state.result_of(key)
                    result = None if data is None else codec.load(element, data)
            if result is None:
                waiting.append(element)
            else:
                self.resumed += 1
                yield result
        groups = batches(waiting)
        self.progress.expect(len(groups))
        answers = self.run(piece, [(shared, group) for group in groups])
        for group in groups:
            answer = list(islice(answers, len(group)))
            if state is not None and codec is not None:
                for element, result in zip(group, answer, strict=True):
                    key, data = codec.key(element), codec.dump(result)
                    if key is not None and data is not None:
                        state.record(key, data)
            self.progress.advance()
            yield from answer


def manifest_codec(
    context: Context, level: ManifestLevel
) -> ResumeCodec[ManifestUse, tuple[bytes, list[Finding], NeededChunkFiles]]:
    """Return how checks of manifests are recorded."""

    def key(use: ManifestUse) -> bytes:
        boxes = b"".join(node + box.tobytes() for node, box in use.boxes)
        return _piece_key(context, "manifest", repr(level), use.id, repr(use.listed), boxes)

    return ResumeCodec(
        key,
        lambda result: None if result[1] or result[2].foreign else result[2].to_bytes(),
        lambda use, data: (use.id, [], NeededChunkFiles.from_bytes(data)),
    )


def bytes_codec(
    context: Context, level: VerifyLevel, required: Mapping[bytes, NeededChunkFiles], chunks: ObjectListing
) -> ResumeCodec[ReadRequest, tuple[bytes, ReadResult]]:
    """Return how reads of bytes are recorded. ``chunks`` are the chunk files."""
    listed_keys = id_keys(chunks.ids)

    def key(request: ReadRequest) -> bytes | None:
        own = required[request.manifest]
        if own.foreign:
            return None
        rows = np.flatnonzero(np.isin(listed_keys, id_keys(own.files.ids)))
        files = chunks.sizes[rows].tobytes() + chunks.modified[rows].tobytes()
        return _piece_key(context, "bytes", level, request.manifest, request.start, request.stop, files)

    def dump(answer: tuple[bytes, ReadResult]) -> bytes | None:
        result = answer[1]
        return None if result.findings else f"{result.size} {result.native} {result.compared}".encode()

    return ResumeCodec(
        key, dump, lambda request, data: (request.manifest, ReadResult((), *map(int, data.split())))
    )


#: Number of bytes that one item reads.
_BYTES: Final = 1 << 30
#: Number of manifests that are collected before duplicates are removed.
_GATHERED: Final = 1 << 20
#: Number of names of files that a finding shows.
_SHOWN: Final = 3
#: Number of attempts to read the chain of backups while other processes change it.
_TRIES: Final = 5


def verify(
    context: Context,
    level: VerifyLevel,
    *,
    engine: Engine | EngineName | None = None,
    state: VerificationState | str | os.PathLike[str] | None = None,
    progress: Progress = NO_PROGRESS,
) -> VerificationReport:
    """Verify a repository."""
    if state is not None and not isinstance(state, VerificationState):
        state = VerificationState(state)
    context = replace(context, storage=context.storage.origin())
    folders = [SNAPSHOTS, TRANSACTIONS, MANIFESTS, *([CHUNKS] if _has(level, "exists") else [])]
    # The listings are older than the state, so that they have no files of later commits.
    listed = [_listing(context.storage, folder) for folder in folders]
    files = [each for each, _ in listed]
    runner = Runner(run_with(context, engine), state, progress)
    work = _Work(context, level, state_of(context), runner)
    work.check_versions()
    has_chunks = _has(level, "exists")
    work.check_manifests(ManifestLevel(has_chunks, "all" if has_chunks else "some", _has(level, "decode")))
    if has_chunks:
        work.check_files()
    if _has(level, "checksum"):
        work.check_bytes(files[-1])
    of_chain = work.check_chain()
    evidence = work.evidence
    suspects = evidence.by_version or evidence.by_manifest or work.state.findings
    affected = evidence.findings(work.state, state_of(context) if suspects else work.state)
    findings, paths = work.with_arrays(affected)
    findings += of_chain
    findings += [] if work.state.info is None else check_latest(context)
    if unchecked := sum(each.unchecked for each in work.required.values()):
        detail = f"{counted(unchecked, 'object')} of virtual chunks were not compared with their references"
        findings.append(Finding("virtual-unchecked", MANIFESTS, detail=detail))
    hides_files = any(map(_hides_files, findings))
    findings += (each for _, names in listed for each in names)
    if not hides_files:
        findings += work.unreferenced(files)
    return VerificationReport(
        level,
        len(work.state.needed),
        len(work.required),
        int(ManifestFiles.union([work.manifests]).num_chunk_refs.sum()),
        evidence.bytes_read,
        tuple(findings),
        paths,
        evidence.native_chunks,
        evidence.compared_chunks,
        runner.resumed,
    )


def stored_findings(
    context: Context, info: RepoInfo, engine: Engine | EngineName | None = None
) -> list[Finding]:
    """Return findings about missing or damaged files that the versions of ``info`` need."""
    state = RepositoryState(tuple(version for version in versions_of(info) if version.is_needed), (), info)
    work = _Work(context, "exists", state, Runner(run_with(context, engine), None, NO_PROGRESS))
    work.check_versions()
    work.check_manifests(ManifestLevel(with_chunks=True))
    work.check_files()
    findings = [*work.evidence.findings(state, state), *check_chain(context.storage, info).findings]
    return [each for each in findings if _hides_files(each)]


def _listing(storage: Storage, folder: str) -> tuple[ObjectListing, list[Finding]]:
    """Return the files of a folder, and a finding if it has files whose names are not ids."""
    shown, count = list[str](), 0

    def note(names: list[str]) -> None:
        nonlocal count
        count += len(names)
        shown.extend(names[: _SHOWN - len(shown)])

    files = list_objects(storage, folder, others=note)
    detail = f"{counted(count, 'file')} with other names, such as {', '.join(shown)}"
    return files, [Finding("file-name", folder, detail=detail)] if count else []


def _has(level: VerifyLevel, other: VerifyLevel) -> bool:
    """Return whether a level includes another one."""
    return LEVELS.index(other) <= LEVELS.index(level)


def _hides_files(finding: Finding) -> bool:
    """Return whether a finding is about a file that was not read, and that may refer to other files."""
    return finding.severity is Severity.LOSS or finding.check == "unavailable"


@dataclass(slots=True, eq=False)
class _Work:
    """A verification that runs: its runner, and what it knows until now."""

    context: Context
    level: VerifyLevel
    state: RepositoryState
    runner: Runner
    evidence: Evidence = field(default_factory=Evidence)
    manifests: ManifestFiles = field(default_factory=ManifestFiles.empty)
    uses: ManifestUses = field(default_factory=lambda: ManifestUses.union([]))
    required: dict[bytes, NeededChunkFiles] = field(default_factory=dict)

    def check_versions(self) -> None:
        """Check all snapshots, and their logs."""
        lists, uses, waiting = [self.manifests], [self.uses], 0
        changes: list[LoggedChanges] = []
        for checked in self.runner.results(check_versions, self.state.versions, snapshot_batches):
            self.evidence.by_version += ((checked.id, each) for each in checked.findings)
            self.evidence.manifests_of[checked.id] = checked.manifests.ids
            changes += [checked.changes] if checked.changes.arrays else []
            lists.append(checked.manifests)
            uses.append(checked.uses)
            waiting += len(checked.uses.manifests) + len(checked.manifests)
            if waiting > _GATHERED:
                lists, uses, waiting = [each_listing_once(lists)], [ManifestUses.union(uses)], 0
        codec: ResumeCodec[LoggedChanges, tuple[bytes, list[Finding]]] = ResumeCodec(
            lambda changes: _piece_key(self.context, "log-chunks", repr(changes)),
            lambda result: None if result[1] else b"done",
            lambda changes, data: (changes.id, []),
        )
        for id_, findings in self.runner.results(check_log_chunks, changes, snapshot_batches, codec=codec):
            self.evidence.by_version += ((id_, each) for each in findings)
        self.manifests, self.uses = each_listing_once(lists), ManifestUses.union(uses)

    def check_manifests(self, level: ManifestLevel) -> None:
        """Check all manifests, each once."""
        files = self.manifests
        listed: dict[bytes, list[tuple[int, int]]] = {}
        columns = id_list(files.ids), files.size_bytes.tolist(), files.num_chunk_refs.tolist()
        for id_, size, count in zip(*columns, strict=True):
            listed.setdefault(id_, []).append((size, count))
        elements = [ManifestUse(id_, rows, self.uses.boxes_of(id_)) for id_, rows in listed.items()]
        codec = manifest_codec(self.context, level)
        for id_, findings, required in self.runner.results(
            check_manifests, elements, _use_batches, shared=level, codec=codec
        ):
            self.evidence.by_manifest += ((id_, each) for each in findings)
            self.required[id_] = required

    def check_files(self) -> None:
        """Look for chunk files that are missing or short."""
        chunks = list_objects(self.context.storage, CHUNKS)
        lost = lost_files((each.files for each in self.required.values()), chunks)
        if not len(lost[0]):
            return
        users = [id_ for id_, each in self.required.items() if among(each.files.ids, lost[0]).any()]
        every = ManifestFiles.union([self.manifests])
        chosen = every.select_manifests(np.flatnonzero(among(every.ids, id_matrix(users))))
        batches = [id_list(batch.ids) for batch in manifest_batches(chosen)]
        for id_, findings in self.runner.results(
            check_lost, id_list(chosen.ids), lambda ids: batches, shared=lost
        ):
            self.evidence.by_manifest += ((id_, each) for each in findings)

    def check_bytes(self, chunks: ObjectListing) -> None:
        """Read all bytes of chunks."""
        decodes = _has(self.level, "decode")
        requests: list[ReadRequest] = []
        for id_, required in self.required.items():
            snapshots = self.uses.snapshots_of(id_) if decodes and required.size else {}
            parts = max(1, min(required.count, -(-required.size // _BYTES))) if required.size else 0
            cuts = [required.count * part // max(parts, 1) for part in range(parts + 1)]
            requests += (ReadRequest(id_, low, high, snapshots) for low, high in pairwise(cuts) if high > low)
        evidence = self.evidence
        reported = {each.key for _, each in evidence.by_manifest}
        codec = bytes_codec(self.context, self.level, self.required, chunks)
        for id_, result in self.runner.results(
            check_bytes, requests, lambda left: [[request] for request in left], codec=codec
        ):
            findings = [each for each in result.findings if each.key not in reported]
            evidence.by_manifest += ((id_, each) for each in findings)
            evidence.bytes_read += result.size
            evidence.native_chunks += result.native
            evidence.compared_chunks += result.compared

    def check_chain(self) -> list[Finding]:
        """Check the ops log and its chain of backups, which other writers and collections change."""
        info = self.state.info
        for _ in range(_TRIES):
            if info is None:
                return []
            ops = check_chain(self.context.storage, info)
            findings = list(ops.findings)
            with suppress(IcechunkError):  # texts of the log are damaged, which the rules of ``repo`` report
                findings += ops_findings(info, ops.logs) if ops.logs else []
            if _has(self.level, "checksum"):
                pairs = [pair for pair in pairwise([*ops.named, ("", 0)]) if pair[0][0]]
                for more in self.runner.results(check_backups, pairs, snapshot_batches):
                    findings += more
            newer = state_of(self.context).info if findings else None
            if newer is None or newer.repo_before_updates == info.repo_before_updates:
                return findings
            info = newer
        raise ConflictError(
            message=f"the ops log changed its backups during each of {_TRIES} attempts. Try again",
            kind=ErrorKind.REPO_INFO_UPDATED,
        )

    def unreferenced(self, files: Sequence[ObjectListing]) -> Iterator[Finding]:
        """Yield a finding for each folder with files that no version needs."""
        snapshots = id_matrix([version.id for version in self.state.versions])
        pruned = id_matrix([id_ for version in self.state.versions for id_ in version.pruned])
        needed: dict[str, U8] = {
            SNAPSHOTS: snapshots,
            TRANSACTIONS: distinct([snapshots, pruned]),
            MANIFESTS: self.manifests.ids,
            CHUNKS: distinct([each.files.ids for each in self.required.values()]),
        }
        for each in files:
            rest = each.select_files(~among(each.ids, needed[each.folder]))
            if len(rest):
                names = ", ".join(ids_to_text(rest.ids[:_SHOWN]))
                detail = (
                    f"{counted(len(rest), 'file')} with {int(rest.sizes.sum())} bytes belong to no version, "
                    f"such as {names}. A session that has not committed may need them"
                )
                yield Finding("unreferenced", each.folder, detail=detail)

    def with_arrays(
        self, affected: Mapping[Finding, Mapping[str, bytes]]
    ) -> tuple[list[Finding], dict[bytes, str]]:
        """Return findings with the paths of their arrays in the versions that they affect, and all paths.

        ``affected`` is what ``Evidence.findings`` returns.
        """
        # The arrays whose chunks the file of a finding has, or whose references.
        nodes: dict[Finding, list[bytes]] = {}
        wanted: dict[bytes, set[bytes]] = {}
        for each, versions in affected.items():
            folder, _, name = each.key.partition("/")
            is_manifest = folder == MANIFESTS and is_id_text(name)
            users = list(self.uses.snapshots_of(id_from_text(name))) if is_manifest else []
            nodes[each] = [each.node] if each.node else users
            for version in versions.values():
                wanted.setdefault(version, set()).update(nodes[each])
        assets = Assets(self.context.storage, self.context.assets.limits)
        path_at: dict[tuple[bytes, bytes], str] = {}
        paths: dict[bytes, str] = {}
        waiting = set(chain.from_iterable(nodes.values()))
        # Other versions may have the arrays of a version that cannot be read.
        for version in (each.id for each in reversed(self.state.versions if waiting else ())):
            some = list(wanted.get(version, set()) | (waiting - paths.keys()))
            if not some:
                continue
            with suppress(IcechunkError):  # there is a finding for it
                table = assets.snapshot(version).nodes
                rows = rows_of(table, id_matrix(some, NODE_ID_BYTES)).tolist()
                here = {node: table.paths.text(row) for node, row in zip(some, rows, strict=True) if row >= 0}
                path_at |= {(version, node): path for node, path in here.items()}
                paths = here | paths  # those of the newest version
        findings: list[Finding] = []
        for each, versions in affected.items():
            arrays = set[str]()
            for node in nodes[each]:
                at = {name: path_at[id_, node] for name, id_ in versions.items() if (id_, node) in path_at}
                if len({*at.values()}) > 1:
                    arrays.update(f"@{name}:{path}" for name, path in at.items())
                else:
                    arrays.update(at.values() or filter(None, [paths.get(node)]))
            findings.append(replace(each, affected=replace(each.affected, arrays=tuple(sorted(arrays)))))
        return findings, paths


def each_listing_once(parts: Sequence[ManifestFiles]) -> ManifestFiles:
    """Return each row of several lists of manifests once, sorted. Lists may contradict each other."""
    ids, sizes, counts = joined_columns(parts, "ids", "size_bytes", "num_chunk_refs")
    keys = np.column_stack((ids, sizes.view(np.uint8).reshape(-1, 8), counts.view(np.uint8).reshape(-1, 4)))
    _, first = np.unique(id_keys(keys), return_index=True)
    return ManifestFiles(ids[first], sizes[first], counts[first])


def _use_batches(uses: Sequence[ManifestUse]) -> list[Sequence[ManifestUse]]:
    """Return manifests in batches with a limited number of references."""
    counts = np.array([use.listed[0][1] for use in uses], np.uint32)
    ids = id_matrix([use.id for use in uses])
    sizes = [len(batch) for batch in manifest_batches(ManifestFiles(ids, counts.astype(np.uint64), counts))]
    return [uses[start:stop] for start, stop in pairwise(np.cumsum([0, *sizes]).tolist())]
