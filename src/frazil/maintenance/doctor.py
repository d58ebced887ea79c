"""The doctor: the state of a repository that works, but could be faster, cheaper or as its owner wants it.

A verification asks whether the files are correct. Each finding of the doctor names the command that fixes it.
The checks list the chunk files and the backups, and read the snapshots, logs and manifests of the tips. A
file that cannot be read is a finding, and the other checks go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np

from frazil.changes.diff import rows_of
from frazil.display import Record, Shown, counted, some_of
from frazil.format.columns import I64
from frazil.format.ids import (
    CHUNKS,
    MANIFESTS,
    NODE_ID_BYTES,
    OVERWRITTEN,
    REPO,
    id_from_text,
    id_list,
    id_matrix,
    id_to_text,
    manifest_key,
)
from frazil.format.manifest import ChunkKind
from frazil.format.repo_info import RepoInfo, UpdateKind
from frazil.maintenance.backups import check_latest
from frazil.maintenance.hold_backs import holds
from frazil.maintenance.plan import CompactionLimits
from frazil.maintenance.verification.files import (
    CheckedVersion,
    ListedVersion,
    check_kind,
    check_versions,
    noted,
)
from frazil.maintenance.verification.findings import Finding, Severity
from frazil.remedies import Remedy, call
from frazil.repository.catalog.ancestry import all_ancestors
from frazil.repository.catalog.assets import MANIFEST, MANIFEST_CHUNK_RANGES
from frazil.repository.catalog.collection_guard import (
    COLLECTIONS,
    LEASES,
    LONGEST,
    abandoned,
    leases,
    read_markers,
)
from frazil.repository.catalog.context import Context
from frazil.repository.catalog.protection import BranchProtection, has_audit, read_protections
from frazil.repository.catalog.version_info import VIEW_TAG
from frazil.repository.clock import DAY_US, MICROSECOND, from_datetime, now_us, to_datetime, utc_text
from frazil.survey.columns import among, distinct, no_ids
from frazil.survey.survey import Bounds, read_manifests


@dataclass(frozen=True, slots=True, repr=False)
class DoctorFinding(Record, shown_as="ops.DoctorFinding"):
    """Something that makes a repository slow, expensive or unsafe, and the command that fixes it.

    Attributes:
        check: The name of the check, such as ``small-chunk-files``.
        subject: What the finding is about: a branch, a lease, a folder.
        detail: What was found, with numbers.
        remedy: What fixes it.
    """

    check: str
    subject: str
    detail: str
    remedy: Remedy

    @property
    def command(self) -> str:
        """The Python call that fixes it, on a handle ``repo``."""
        return str(self.remedy)

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        return ((name, getattr(self, name)) for name in ("check", "subject", "detail", "command"))


@dataclass(frozen=True, slots=True, repr=False)
class DoctorReport(Record, shown_as="ops.DoctorReport"):
    """The result of ``Repository.upkeep.doctor``.

    Attributes:
        findings: The findings, in the order of the checks.
        checks: The names of all checks that were made.
    """

    findings: list[DoctorFinding] = field(default_factory=list, hash=False)
    checks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    def __str__(self) -> str:
        """Return two lines for each finding: what it is, and the command that fixes it."""
        if self.ok:
            return f"no findings in {len(self.checks)} checks\n"
        return "".join(
            f"{each.check}: {each.subject}: {each.detail}\n    {each.command}\n" for each in self.findings
        )

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for each in self.findings:
            yield f"{each.check} ({each.subject})", f"{each.detail}. {each.command}"
        yield "checks", ", ".join(self.checks)


_MIB: Final = 1 << 20
#: Fewer small files, backups or manifests are no finding.
_MANY_FILES: Final = 1000
#: The bytes of all backups that are a finding.
_BACKUP_BYTES: Final = 1 << 30
#: From this size on, each commit of a small change writes mostly ``repo``. It has about 200,000 versions.
_LONG_HISTORY: Final = 8 * _MIB
#: The processor time of a commit for each MiB of ``repo``, in ms (``benchmarks/RESULTS.md``).
_MS_PER_MIB: Final = 5
#: The age of backups that a collection deletes, longer than any job runs.
_COLLECTED_US: Final = 30 * DAY_US
#: The references of one manifest that are too many.
_MANY_REFERENCES: Final = 2_000_000
#: The mean number of references of many manifests that is too small.
_FEW_REFERENCES: Final = 500
#: A lease that is older than this is reported as stale.
_STALE_US: Final = DAY_US
#: An update that is newer than this far in the future is of a wrong clock.
_CLOCK_US: Final = timedelta(minutes=5) // MICROSECOND
#: The age of staged files without a lease.
_STAGED_US: Final = 7 * DAY_US


@dataclass(frozen=True)
class DoctorContext:
    """The repository, with what several checks read."""

    context: Context
    info: RepoInfo

    @cached_property
    def tips(self) -> dict[str, CheckedVersion]:
        """The tip of each branch, with damage. Branches on the same snapshot are listed once."""
        tips = {id_: name for name, id_ in sorted(self.info.branches.items(), reverse=True)}
        versions = [ListedVersion(id_, None, (), is_needed=True) for id_ in tips]
        return dict(zip(tips.values(), check_versions(self.context, (None, versions)), strict=True))

    @cached_property
    def folders(self) -> dict[str, set[str]]:
        """The folders of virtual chunks without a container, by branch. Each manifest is read once.

        The damage of manifests becomes findings of the tips.
        """
        context, read, folders = self.context, no_ids(), dict[str, set[str]]()
        damage = dict[bytes, list[Finding]]()
        for branch, tip in self.tips.items():
            new = tip.manifests.select_manifests(~among(tip.manifests.ids, read))
            read = distinct([read, new.ids])
            missing, unread = folders.setdefault(branch, set()), {*id_list(new.ids)}
            tables = read_manifests(context.storage, MANIFEST_CHUNK_RANGES, new, Bounds(), skips_damage=True)
            for table in chain.from_iterable(tables):
                unread.remove(table.id)
                used = np.unique(table.source[table.kind == ChunkKind.VIRTUAL])
                with noted(damage.setdefault(table.id, []), manifest_key(table.id)):
                    locations = np.array(table.locations.take(used).texts(), object)
                    unmatched = ~context.virtual.matching(locations.tolist())
                    missing.update(text.rpartition("/")[0] + "/" for text in locations[unmatched].tolist())
            damage |= {id_: check_kind(context, MANIFEST, id_).findings for id_ in unread}
        for tip in self.tips.values():
            tip.findings += chain.from_iterable(map(damage.__getitem__, id_list(tip.manifests.ids)))
        return folders


def examine(context: Context) -> DoctorReport:
    """Make all checks. See ``Repository.upkeep.doctor``."""
    doctor = DoctorContext(context, context.catalog.repo_info())
    findings = [DoctorFinding(name, *each) for name, check in CHECKS.items() for each in check(doctor)]
    return DoctorReport(findings, tuple(CHECKS))


#: The subject, the detail and the remedy of a finding.
type _Finding = tuple[str, str, Remedy]


def _remedy(operation: str, **arguments: object) -> Remedy:
    return Remedy("{}", (call(operation, **arguments),))


def _collect(age_us: int) -> Remedy:
    """Return a collection of files that are older than this."""
    cutoff = to_datetime(now_us() - age_us).replace(microsecond=0)
    return _remedy("garbage_collect", delete_object_older_than=cutoff)


def _break(key: str, shell: str | None = None) -> tuple[str, Remedy]:
    """Return the id of the lease with a key, and the call that breaks it."""
    id_ = key.removeprefix(f"{LEASES}/")
    return f"lease {id_}", Remedy("{}", (f"repo.upkeep.break_lease({id_!r})",), shell)


def _rewrite(branch: str) -> Remedy:
    return _remedy("rewrite_manifests", message="rewrite manifests", branch=branch)


def _sizes(doctor: DoctorContext, folder: str) -> I64:
    return np.fromiter((each.size for each in doctor.context.storage.list(folder)), np.int64)


def _older_repo(doctor: DoctorContext) -> Iterator[_Finding]:
    for each in check_latest(doctor.context):
        yield REPO, f"{each.detail}. Commits are lost until a repair", _remedy("repair")


def _small_chunk_files(doctor: DoctorContext) -> Iterator[_Finding]:
    sizes = _sizes(doctor, CHUNKS)
    limit = CompactionLimits().small_size
    small = int(np.count_nonzero(sizes < limit))
    if small >= _MANY_FILES and 2 * small > len(sizes):
        detail = (
            f"{small:,} of {len(sizes):,} chunk files are smaller than {limit // _MIB} MiB, "
            f"{int(sizes.sum()) / len(sizes) / 1024:,.0f} KiB on average"
        )
        yield CHUNKS, detail, _remedy("compact", message="compact", branch="main")


def _backups(doctor: DoctorContext) -> Iterator[_Finding]:
    sizes = _sizes(doctor, OVERWRITTEN)
    total = int(sizes.sum())
    if total > _BACKUP_BYTES or len(sizes) > 10 * _MANY_FILES:
        detail = f"{len(sizes):,} backups of `repo` have {total / _MIB:,.0f} MiB"
        yield OVERWRITTEN, detail, _collect(_COLLECTED_US)


def _long_history(doctor: DoctorContext) -> Iterator[_Finding]:
    status = doctor.context.storage.head(REPO)
    if status is not None and status.size > _LONG_HISTORY:
        size, count = status.size / _MIB, len(doctor.info.snapshots)
        detail = (
            f"{count:,} versions have {size:,.0f} MiB in `repo`, which each commit writes whole, in about "
            f"{_MS_PER_MIB * size:,.0f} ms. Half of the versions would cost half of it"
        )
        keeps = (
            "`{}` keeps the versions that rules select. Repository.upkeep.squash joins a range of versions"
        )
        yield REPO, detail, Remedy(keeps, (call("retain"),))


def _unsplit(doctor: DoctorContext) -> Iterator[_Finding]:
    for branch, tip in doctor.tips.items():
        files = tip.manifests
        largest = int(files.num_chunk_refs.max(initial=0))
        if largest > _MANY_REFERENCES:
            count = int(np.count_nonzero(files.num_chunk_refs > _MANY_REFERENCES))
            detail = (
                f"{counted(count, 'manifest')} with more than {_MANY_REFERENCES:,} references, the largest "
                f"with {largest:,}. Set the option manifest.splitting to auto first"
            )
            yield f"branch `{branch}`", detail, _rewrite(branch)


def _over_split(doctor: DoctorContext) -> Iterator[_Finding]:
    for branch, tip in doctor.tips.items():
        files = tip.manifests
        mean = float(files.num_chunk_refs.mean()) if len(files) else 0.0
        if len(files) >= _MANY_FILES and mean < _FEW_REFERENCES:
            detail = f"{len(files):,} manifests with {mean:,.0f} references on average"
            yield f"branch `{branch}`", detail, _rewrite(branch)


def _stale_leases(doctor: DoctorContext) -> Iterator[_Finding]:
    now = now_us()
    for lease in leases(doctor.context.storage):
        is_stale = lease.info.is_stale
        if lease.until >= now and (is_stale or lease.taken < now - _STALE_US):
            why = ", and its process has ended" if is_stale else ""
            detail = (
                f"{lease.info.purpose} since {utc_text(lease.taken)}{why}, protects files until "
                f"{utc_text(lease.until)}"
            )
            subject, remedy = _break(lease.key, "It ends by itself at the end of this time")
            yield subject, detail, remedy


def _unreadable_leases(doctor: DoctorContext) -> Iterator[_Finding]:
    for marker in read_markers(doctor.context.storage, LEASES):
        if not all(isinstance(marker.content.get(name), int) for name in ("age", "left")):
            subject, remedy = _break(marker.key)
            yield subject, "it has no readable times, so it protects no files", remedy


def _killed_collections(doctor: DoctorContext) -> Iterator[_Finding]:
    for marker in read_markers(doctor.context.storage, COLLECTIONS, ".garbage"):
        age = now_us() - marker.modified
        if not marker.content.get("done") and age > LONGEST // MICROSECOND:
            detail = f"the collection that began at {utc_text(marker.modified)} has not ended"
            yield marker.key, detail, _collect(_COLLECTED_US)


def _staged_jobs(doctor: DoctorContext) -> Iterator[_Finding]:
    files = abandoned(doctor.context.storage, now_us() - _STAGED_US)
    if files:
        folders = {each.key.rpartition("/")[0] for each in files}
        total = sum(each.size for each in files)
        detail = f"{counted(len(files), 'file')} of jobs without a lease, {total / _MIB:,.1f} MiB"
        yield some_of(sorted(folders)), detail, _collect(_STAGED_US)


def _unreadable_files(doctor: DoctorContext) -> Iterator[_Finding]:
    for branch in doctor.folders:  # which reads the manifests
        tip = doctor.tips[branch]
        for each in tip.findings:
            if each.severity is Severity.INFORMATION:
                continue
            folder, _, name = each.key.partition("/")
            detail = str(each)
            if folder == MANIFESTS:
                nodes = id_matrix(list(tip.uses.snapshots_of(id_from_text(name))), NODE_ID_BYTES)
                table = doctor.context.assets.snapshot(tip.id).nodes
                paths = table.paths.take(rows_of(table, nodes)).texts()
                detail += f". It has references of {some_of(sorted(paths))}"
            is_damage = each.check != "unavailable"
            yield f"branch `{branch}`", detail, _remedy("repair") if is_damage else Remedy(each.action, ())


def _missing_containers(doctor: DoctorContext) -> Iterator[_Finding]:
    for branch, folders in doctor.folders.items():
        if folders:
            detail = f"no virtual chunk container has {some_of(sorted(folders))}"
            remedy = Remedy(
                "repo.reconfigure(config_with_a_VirtualChunkContainer_for_the_prefix); repo.save_config()",
                shell="Save a configuration with a VirtualChunkContainer for this prefix, in Python",
            )
            yield f"branch `{branch}`", detail, remedy


def _broken_protections(doctor: DoctorContext) -> Iterator[_Finding]:
    info = doctor.info
    for protection in read_protections(info.metadata):
        for branch, detail in _offences(info, protection):
            accept = call(
                "unprotect_branch" if branch == protection.pattern not in info.branches else "protect_branch",
                pattern=protection.pattern,
            )
            remedy = Remedy("{}, or {} to accept the state", (call("undo", branch=branch), accept))
            yield f"branch `{branch}`", detail, remedy


def _offences(info: RepoInfo, protection: BranchProtection) -> Iterator[tuple[str, str]]:
    """Yield branches that lost commits since they are protected, by the newest part of the ops log."""
    ops = info.ops
    kinds = [UpdateKind.BRANCH_DELETED, UpdateKind.BRANCH_RESET, UpdateKind.COMMIT_AMENDED]
    rows = np.flatnonzero((ops.updated_at > np.uint64(protection.since)) & np.isin(ops.kinds, kinds))
    branches: set[str] = set()
    for entry in map(ops.entry, rows.tolist()):
        branch, before = entry.name or "", entry.previous_snapshot or b""
        if branch in branches or not fnmatchcase(branch, protection.pattern):
            continue
        tip, row = info.branches.get(branch), info.snapshots.find_snapshot(before)
        if tip is None:
            yield branch, f"it was deleted at {utc_text(entry.updated_at)}"
        elif protection.fast_forward_only and (row < 0 or row not in all_ancestors(info, tip)):
            yield branch, f"it lost commits at {utc_text(entry.updated_at)} ({entry.kind.name.lower()})"
        else:
            continue
        branches.add(branch)
    for branch, tip in info.branches.items():
        newer = info.snapshots.entry(info.snapshots.find_snapshot(tip)).flushed_at > protection.since
        is_under_rules = protection.rules and fnmatchcase(branch, protection.pattern)
        if is_under_rules and newer and not has_audit(protection, info, tip):
            yield branch, "no audit shows that the rules hold in its tip"


def _views(doctor: DoctorContext) -> Iterator[_Finding]:
    """Look for versions that only views need: refreshed views refer to the tip of a branch."""
    info = doctor.info
    for tag, id_ in sorted(info.tags.items()):
        if tag.startswith(VIEW_TAG) and id_ not in info.branches.values():
            row = info.snapshots.find_snapshot(id_)
            written = utc_text(info.snapshots.entry(row).flushed_at) if row >= 0 else "unknown"
            name = tag.removeprefix(VIEW_TAG).rpartition(".")[0]
            detail = (
                f"the view {name} refers to the chunks of {id_to_text(id_)} of {written}, which is no tip of "
                "a branch any more, so collections keep them. A refresh of the view moves the tag"
            )
            yield f"tag `{tag}`", detail, _remedy("delete_tag", tag=tag)


def _holds(doctor: DoctorContext) -> Iterator[_Finding]:
    for each in holds(doctor.info):
        if each.until <= to_datetime(now_us()):
            what = f"{some_of(each.what)} of the branch `{each.branch}`"
            detail = f"{what} must be held back until {utc_text(from_datetime(each.until))}, which has passed"
            yield f"hold-back `{each.name}`", detail, _remedy("end_hold", name=each.name)


def _wrong_clock(doctor: DoctorContext) -> Iterator[_Finding]:
    """Look for an update of the future. All later updates get later times."""
    updates = doctor.info.ops.updated_at
    last = int(updates[0]) if len(updates) else 0
    if last > now_us() + _CLOCK_US:
        detail = f"its newest update is of {utc_text(last)}, in the future of this machine"
        remedy = Remedy(
            "`{}` shows it. Correct the clock of the machine that wrote it, or of this one. Until {}, new "
            "versions get times of the future too, and rules about the age of versions keep them",
            (call("ops_log"), utc_text(last)),
        )
        yield "ops log", detail, remedy


#: The checks by name, in their order.
CHECKS: Final[dict[str, Callable[[DoctorContext], Iterator[_Finding]]]] = {
    "repo-latest": _older_repo,
    "unreadable-file": _unreadable_files,
    "small-chunk-files": _small_chunk_files,
    "backups": _backups,
    "long-history": _long_history,
    "unsplit-manifest": _unsplit,
    "over-split": _over_split,
    "stale-lease": _stale_leases,
    "unreadable-lease": _unreadable_leases,
    "killed-collection": _killed_collections,
    "staged-job": _staged_jobs,
    "missing-container": _missing_containers,
    "broken-protection": _broken_protections,
    "view": _views,
    "hold": _holds,
    "wrong-clock": _wrong_clock,
}
