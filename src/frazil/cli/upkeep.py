"""Commands that maintain a repository, look for damage and repair it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import fields
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import click

import frazil
from frazil.cli import arguments as args
from frazil.cli.cells import SELECTION, indices_of
from frazil.cli.command import Output, argument, option, picked, table, verb
from frazil.cli.opening import (
    SHORT,
    BranchChange,
    OpenTarget,
    author_metadata,
    clock,
    confirm,
    emit_tip,
    storage_of,
)
from frazil.display import counted
from frazil.errors import ErrorKind, FormatError, MissingExtraError, RepositoryNotFoundError, StorageError
from frazil.format.ids import REPO
from frazil.handle.addresses import virtual_access
from frazil.handle.opening import HandleOptions, opened_before
from frazil.handle.repository import Repository
from frazil.jobs.progress import Progress, size
from frazil.maintenance.doctor import DoctorFinding
from frazil.maintenance.plan import plain
from frazil.maintenance.verification.files import read_finding
from frazil.maintenance.verification.findings import LEVELS, Severity, VerificationReport, VerifyLevel, checks
from frazil.remedies import Remedy, call
from frazil.repository.catalog.repo_update import latest_backup
from frazil.repository.target import MAIN, Target
from frazil.storage.checks import is_outage
from frazil.storage.disk_cache import cache_limit, cache_usage, clear_cache

#: The check of derived arrays, which needs the packages of pipelines.
_DERIVED: Final = "derived-array"
_Selections = Annotated[tuple[str, ...], argument(metavar="[SLICE]...", nargs=-1)]
_Count = Annotated[int, option(metavar="N", default=0)]


@verb("expire")
def expire(
    output: Output,
    target: args.Location,
    newer_than: args.Time,
    last: _Count,
    hourly: _Count,
    daily: _Count,
    weekly: _Count,
    monthly: _Count,
    yearly: _Count,
    dry_run: args.DryRun,
    yes: args.Yes,
    verbose: Annotated[bool, option("-v", "--verbose")],
) -> None:
    """Remove old versions from the history. A version stays if one of the rules selects it.

    The first version, the tips of branches and the versions of tags always stay. `frazil collect` then
    deletes the files. --daily 7 selects the newest version of each of the last seven days that have versions,
    and so on.

    Args:
        newer_than: Versions from TIME on stay: 30d, 2026-11-01.
        last: The newest N versions stay.
        hourly: One version for each of N hours stays.
        daily: One version for each of N days stays.
        weekly: One version for each of N weeks stays.
        monthly: One version for each of N months stays.
        yearly: One version for each of N years stays.
        verbose: With --dry-run: print all versions, not only some.

    Examples:
        frazil expire ice --newer-than 30d --dry-run    show what would be removed, and why
        frazil expire ice --newer-than 30d -y           versions of the last 30 days stay
        frazil expire ice --last 10 --daily 7 -y        ten versions stay, and one for each of seven days
    """
    if newer_than is None and not any((last, hourly, daily, weekly, monthly, yearly)):
        raise click.UsageError("name a rule for the versions that stay: --newer-than, --last, --daily, ...")
    counts: dict[str, Any] = {
        "hourly": hourly,
        "daily": daily,
        "weekly": weekly,
        "monthly": monthly,
        "yearly": yearly,
    }
    plan = OpenTarget(target).repo.upkeep.retain(frazil.Retention(newer_than=newer_than, last=last, **counts))
    report = plan.report
    if not dry_run and len(report.removed):
        confirm(output, f"Remove {counted(len(report.removed), 'version')} from the history?", yes=yes)
        report = plan.apply()
    most = (None if verbose else _LISTED) if dry_run else 0
    document: dict[str, Any] = {"dry_run": dry_run}
    for name in ("removed", "retained") if output.as_json else ():
        members = ("id", "message", "reasons")
        document[name] = [picked(each, *members, time="written_at") for each in getattr(report, name)]
    output.emit(document, _expiration_lines(output, report, dry_run, most), pages=dry_run)


#: A rehearsal prints this number of the newest and of the oldest versions.
_LISTED: Final = 10


def _expiration_lines(
    output: Output, report: frazil.RetentionReport, dry_run: bool, most: int | None
) -> Iterator[str]:
    """Yield a summary, and the first and last ``most`` versions that leave and that stay."""
    removed, retained = len(report.removed), len(report.retained)
    action = "would remove" if dry_run and removed else "removed"
    yield f"{action} {counted(removed, 'version')}; {counted(retained, 'version')} in the history"
    for sign, versions in (("-", report.removed), (" ", report.retained)) if most != 0 else ():
        more = 0 if most is None else len(versions) - 2 * most
        first, last = (versions[:most], versions[-(most or 0) :]) if more > 0 else (versions[:], [])
        between = f"{sign} ... {counted(more, 'version')} between these (--verbose prints them) ..."
        for each in (*first, *([None] if more > 0 else ()), *last):
            if each is None:
                yield between
                continue
            text = f"{each.message.partition(chr(10))[0]}  [{', '.join(each.reasons)}]"
            yield output.cut(f"{sign} {each.id[:SHORT]}  {clock(each.written_at)}  {text}")


@verb("collect")
def collect(
    output: Output,
    target: args.Location,
    older_than: Annotated[
        datetime, option(metavar="TIME", required=True, callback=args.converted(args.moment))
    ],
    keep_ops: args.Time,
    dry_run: args.DryRun,
    yes: args.Yes,
) -> int:
    """Delete files that no branch, no tag and no young version needs, and that were modified before TIME.

    Leases of running work are respected. Choose a TIME before the start of all running sessions. --dry-run
    prints each file with the reason.

    Args:
        older_than: Only older files: 7d, 2026-11-01.
        keep_ops: Delete entries of the ops log before TIME.

    Examples:
        frazil collect ice --older-than 7d --dry-run       show what would be deleted, and why
        frazil collect ice --older-than 7d -y              delete it, without a question
        frazil collect ice --older-than 7d -y --keep-ops 30d
                                                           also delete entries of the ops log
    """
    repo = OpenTarget(target).repo
    ops = None if keep_ops is None else frazil.OpsLogRetention(newer_than=keep_ops)
    with output.progress("collect") as bar:
        plan = repo.upkeep.collect(older_than, progress=bar, keep_ops=ops)
        if dry_run or not yes:
            summary = plan.report
    if not dry_run:
        if not yes:
            files = counted(len(summary.files), "file")
            confirm(output, f"Delete {files}, {size(_bytes(summary))}?", yes=not len(summary.files))
        with bar or nullcontext():
            summary = plan.apply()
    document = {"dry_run": dry_run, **{each.name: getattr(summary, each.name) for each in fields(summary)}}
    document["leases"] = [each.holder() for each in summary.leases]
    document["files"] = [
        {"key": each.key, "bytes": each.size_bytes, "modified": each.modified_at, "reason": str(each.reason)}
        for each in summary.files
    ]
    output.emit(document, _collection_lines(summary, dry_run), pages=dry_run)
    return 1 if summary.objects_failed_to_delete else 0


def _bytes(summary: frazil.GCSummary) -> int:
    return summary.bytes_deleted + summary.backup_bytes_deleted


def _collection_lines(summary: frazil.GCSummary, dry_run: bool) -> Iterator[str]:
    if dry_run:
        yield from (f"{size(each.size_bytes):>9}  {each.key}  {each.reason}" for each in summary.files)
        kinds = Counter(each.kind for each in summary.files)
        counts = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in sorted(kinds.items()))
    else:
        kinds_of = ("snapshots", "transaction_logs", "statistics", "manifests", "chunks", "backups")
        values = {kind: getattr(summary, f"{kind}_deleted") for kind in kinds_of}
        counts = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in values.items() if count)
    yield f"{'would delete' if dry_run else 'deleted'} {counts or 'nothing'} ({size(_bytes(summary))})"
    for lease in summary.leases:
        held = ""
        if lease.held_objects is not None and lease.held_bytes is not None:
            held = f", holds back {counted(lease.held_objects, 'file')} ({size(lease.held_bytes)})"
        yield f"respected the lease {lease.id}: {lease.holder()}{held}"
    if summary.objects_failed_to_delete:
        failures = counted(summary.objects_failed_to_delete, "file")
        yield f"{failures} could not be deleted: {'; '.join(summary.delete_errors[:3])}"


@verb("compact", commits=True)
def compact(
    output: Output,
    target: args.BranchTarget,
    message: args.Message,
    metadata: args.Metadata,
    dry_run: args.DryRun,
) -> None:
    """Write the live chunks of small and of mostly unused chunk files again, as packs.

    The command makes one commit on a branch. Values do not change. `frazil expire` and `frazil collect` then
    delete the old files.

    Examples:
        frazil compact ice --dry-run         show what would be written again
        frazil compact ice@dev -m "Pack"     on a branch, with a message
    """
    opened = OpenTarget(target)
    branch = opened.branch
    text = message or "Compact chunk files"
    plan = opened.repo.upkeep.compact(text, branch=branch, metadata=metadata or None)
    report = plan.report if dry_run else plan.apply()
    document = {"dry_run": dry_run, **{each.name: getattr(report, each.name) for each in fields(report)}}
    manifests = (
        f", {report.manifests:,} manifests to {report.new_manifests:,}" if report.new_manifests else ""
    )
    files = counted(len(report.files), "chunk file")
    work = f"{files} to {report.new_files:,}, {size(report.bytes_moved)} moved{manifests}"
    line = f"would write {work}"
    if not len(report.files) and not manifests:
        line = "nothing to do"
    elif not dry_run:
        line = f"{branch} is at {report.snapshots[branch][:SHORT]}: wrote {work}"
    output.emit({**document, "files": len(report.files)}, [line])


@verb("forget")
def forget(
    output: Output,
    target: args.AnyTarget,
    selections: _Selections,
    all_versions: bool,
    source: Annotated[tuple[str, ...], option(metavar="URL", multiple=True)],
    follow: bool,
    check: bool,
    dry_run: args.DryRun,
    yes: args.Yes,
) -> int:
    """Withdraw data from all versions, so that no stored byte of them is left.

    PATH is an array or a group. SLICE selects cells of an array as in `frazil cat`: by index, or by the
    labels of coordinates. Without one, all cells are withdrawn. Withdrawn cells have the fill value, in all
    versions, branches and tags. Versions with the data get new ids. --dry-run prints where the data are, and
    what cannot be withdrawn.

    The command ends with a certificate: it reads what is stored, and names what is left. --check prints the
    certificates of all withdrawals again. The exit status is 1 if something is left.

    Args:
        all_versions: Confirm that all versions change. `frazil set` and `frazil rm` change one branch.
        source: Remove all references to this foreign object, or to those that match a pattern; may be
            repeated.
        follow: Also withdraw chunks with only withdrawn cells at other positions of the same arrays, as after
            a shift.
        check: Print the certificates of earlier withdrawals. Nothing is changed.

    Examples:
        frazil forget ice:era5/t 0:2 --dry-run             show where the cells are stored
        frazil forget ice:era5/t 0:2 --all-versions -y     withdraw two steps
        frazil forget ice:era5 --all-versions -y           withdraw all cells of a group
        frazil forget ice --source 's3://b/f.nc' --all-versions
                                                           withdraw the references to a file
        frazil forget ice --check                          what is left of withdrawn data
    """
    opened = OpenTarget(target)
    upkeep = opened.repo.upkeep
    if check:
        return _emit_certificates(output, upkeep.certificates())
    if not (all_versions or dry_run):
        raise click.UsageError("a withdrawal changes all versions: pass --all-versions, or --dry-run")
    with output.progress("forget") as bar:
        plan = upkeep.forget(_data(opened, selections), sources=source, follow=follow, progress=bar)
        report = plan.report
    counts = report.counts
    if dry_run:
        lines = str(report).splitlines()[1:]
        output.emit({"dry_run": True, **plan.as_dict()}, lines, pages=True)
        return 0
    if counts["references"] or counts["bytes_unused"]:
        versions = counted(len(report.versions), "version")
        what = f"{counted(counts['references'], 'reference')} in {versions}, {size(counts['bytes_removed'])}"
        confirm(output, f"Withdraw {', '.join(report.what)} ({what}) for good?", yes=yes)
    with bar or nullcontext():
        certificate = plan.apply()
    return _emit_certificates(output, [certificate])


def _data(opened: OpenTarget, selections: tuple[str, ...]) -> dict[str, Any]:
    """Return the boxes of a path for `Upkeep.forget`; none without a path."""
    if not selections:
        return {} if opened.target.path is None else {opened.path: None}
    session = opened.session()
    texts = (SELECTION.convert(each, None, None) for each in selections)
    return {opened.path: [indices_of(session, opened.path, each) for each in texts]}


@verb("hold", commits=True)
def hold(
    output: Output,
    target: args.AnyTarget,
    selections: _Selections,
    until: args.Time,
    name: Annotated[str | None, option(metavar="NAME")],
    end: Annotated[str | None, option(metavar="NAME")],
    conflicts: Annotated[Literal["refuse", "keep", "restore"], option(default="refuse")],
    dry_run: args.DryRun,
    yes: args.Yes,
) -> None:
    """Hide data of a branch until a date, or list what is hidden.

    PATH is an array or a group, and SLICE selects cells as in `frazil forget`. Readers of the branch see the
    fill value. The data stay stored, and readers of older versions and of tags see them. Nothing happens by
    itself at the date: `frazil doctor` then names the hold-back, and --end brings the data back.

    Args:
        until: The date: 2027-06-01.
        name: A name for the hold-back.
        end: End the hold-back with this name. What others have written since stays.
        conflicts: With --end, for cells that others have written since: end with an error (refuse), keep the
            values of others (keep), or restore the old values (restore).

    Examples:
        frazil hold ice:t 2:5 --until 2027-06-01 --name season   hide cells of `main`
        frazil hold ice                                          list the hold-backs
        frazil hold ice --end season --dry-run                   show what the end brings back
    """
    change = BranchChange(output, target, dry_run)
    upkeep, branch, further = change.repo.upkeep, change.branch, []
    if end is not None:
        plan: Any = upkeep.end_hold(end, conflicts=conflicts)
        branch = plan.report.branch
        question = f"Replace what others have written into {', '.join(plan.report.what)}?"
        confirm(output, question, yes=yes or dry_run or conflicts != "restore")
    elif until is not None and name is not None:
        plan = upkeep.hold(_data(change.opened, selections), until=until, name=name, branch=branch)
        further = [f"{each} shows the data" for each in plan.report.visible]
    elif selections or until or name:
        raise click.UsageError("a hold-back needs a date and a name: pass --until and --name")
    else:
        rows = [
            (each.name, each.branch, f"{clock(each.until)}", ", ".join(each.what)) for each in upkeep.holds()
        ]
        output.emit(list(map(plain, upkeep.holds())), table(rows) if rows else ["no hold-backs"])
        return
    before = change.repo.lookup_branch(branch)
    plan.apply()
    emit_tip(output, change.repo, branch, before, dry_run=dry_run, further=further, hold=plan.as_dict())


def _emit_certificates(output: Output, certificates: list[frazil.ops.WithdrawalCertificate]) -> int:
    lines = list[str]()
    for each in certificates:
        counts = each.counts
        lines.append(f"{each.id}  {clock(each.checked_at)}  {', '.join(each.what)}")
        lines.append(
            f"    removed {counted(counts['references'], 'reference')} and {size(counts['bytes_removed'])} "
            f"from {counted(len(each.snapshots), 'version')}, sha256 {each.digest}"
        )
        lines += [f"    {old} -> {new}" for old, new in each.snapshots.items()]
        lines += [f"    not a part of the repository: {url}" for url in each.sources]
        if counts["bytes_shared"]:
            lines.append(f"    {size(counts['bytes_shared'])} stay, because references outside use them")
        lines += [f"    left: {output.paint(text, 'remove')}" for text in each.left or ()]
        lines += [] if each.left else ["    no stored byte is left"]
    names = [each.name for each in fields(frazil.ops.WithdrawalCertificate)]
    output.emit([picked(each, *names) for each in certificates], lines or ["no withdrawals"])
    return 1 if any(each.left for each in certificates) else 0


@verb("rewrite-manifests", commits=True)
def rewrite_manifests(
    output: Output,
    target: args.BranchTarget,
    message: args.Message,
    metadata: args.Metadata,
    dry_run: args.DryRun,
) -> None:
    """Write all manifests at the tip of a branch again, in one commit. Values do not change.

    The new manifests have the splitting of the saved configuration.

    Examples:
        frazil rewrite-manifests ice                the manifests of `main`
        frazil rewrite-manifests ice@dev --dry-run  only rehearse
    """
    change = BranchChange(output, target, dry_run)
    text = message or "Rewrite the manifests"
    change.repo.rewrite_manifests(text, branch=change.branch, metadata=metadata or None)
    change.emit()


@verb("doctor")
def doctor(output: Output, target: args.Location) -> int:
    """Look for what makes a repository slow, expensive or unsafe, and print the command that fixes it.

    The checks concern small chunk files, many backups, manifests that are too large or too small, stale
    leases, files of jobs, containers, protections, and derived arrays of `main` that are not current. The
    command changes nothing. The exit status is 1 if there are findings. `frazil verify` checks whether the
    files are correct.

    Examples:
        frazil doctor ice          the findings
        frazil doctor ice --json   for programs
    """
    repo = OpenTarget(target).repo
    report = repo.upkeep.doctor()
    checks, findings, lines = list(report.checks), list[dict[str, Any]](), list[str]()
    rows = report.findings
    with suppress(MissingExtraError):
        rows = [*rows, *_derived_findings(repo)]
        checks.append(_DERIVED)
    for each in rows:
        command = each.remedy.for_shell(output.location)
        findings.append({**picked(each, "check", "subject", "detail"), "command": command})
        lines += [f"{output.paint(each.check, 'change')}: {each.subject}: {each.detail}", f"    {command}"]
    lines = lines or [f"no findings in {counted(len(checks), 'check')}"]
    output.emit({"checks": checks, "findings": findings}, lines, pages=True)
    return 1 if findings else 0


def _derived_findings(repo: Repository) -> Iterator[DoctorFinding]:
    """Return derived arrays that are not current."""
    import frazil.pipeline

    try:
        rows = frazil.pipeline.derived(repo, branch=MAIN).arrays if MAIN in repo.list_branches() else ()
    except (FormatError, StorageError) as error:
        if is_outage(error):
            raise
        detail = f"the state of derived arrays is not known: {error.message}"
        yield DoctorFinding(_DERIVED, f"branch `{MAIN}`", detail, Remedy("{}", (call("repair"),)))
        return
    for row in rows:
        if row.state != "current":
            edits = {"overwrite_edits": True} if row.state == "edited" else {}
            remedy = Remedy("{}", (call("refresh", **edits),))
            if row.state == "broken":
                remedy = Remedy("Correct the cause, or delete the array: `frazil derived` lists it", ())
            yield DoctorFinding(_DERIVED, row.path, row.row(), remedy)


@verb("lease")
def lease(
    output: Output,
    target: args.Location,
    end: Annotated[tuple[str, ...], option(metavar="ID")],
    stale: bool,
    yes: args.Yes,
) -> None:
    """List the leases of a repository, or end some of them.

    Sessions with forks, jobs, copies and compactions hold leases, so that `frazil collect` keeps the files
    that they have not committed yet. A lease is stale if its process ran on this machine and has ended:
    nobody can use its files any more. The process of another machine may still run. `frazil collect
    --dry-run` shows how many bytes a lease holds back.

    Args:
        end: End the lease with this id; may be repeated.
        stale: End the stale leases.

    Examples:
        frazil lease ice              list the leases
        frazil lease ice --stale      end the leases of processes of this machine that have ended
        frazil lease ice --end ID     end one lease, after a question
    """
    repo = OpenTarget(target).repo
    leases = repo.upkeep.leases()
    now = datetime.now(UTC)
    if not (end or stale):
        documents, lines = [], []
        for each in leases:
            names = (field.name for field in fields(each))
            documents.append(picked(each, *names, stale="is_stale"))
            state = "stale" if each.is_stale else "ended" if each.ends_at < now else "held"
            since, until = clock(each.protects_since), clock(each.ends_at)
            times = f"taken {clock(each.taken_at)}, protects files since {since} until {until}"
            lines.append(f"{each.id}  {state}  {_holder(each)}: {times}")
        output.emit(documents, lines or ["no leases"])
        return
    chosen = [each for each in leases if each.id in end or (stale and each.is_stale)]
    unknown = sorted({*end} - {each.id for each in chosen})
    if unknown:
        repo.upkeep.break_lease(unknown[0])  # raises the error for an unknown id
    # Holders that may still need their files
    needed = [each for each in chosen if not each.is_stale and each.ends_at > now]
    if needed:
        staged = " Staged results of a job are deleted." if any(each.is_of_job for each in needed) else ""
        holders = f"End {counted(len(needed), 'lease')}: {'; '.join(map(_holder, needed))}?"
        loss = "A collection may then delete the files of this work, and its commit is refused."
        confirm(output, f"{holders} {loss}{staged}", yes=yes)
    for each in chosen:
        repo.upkeep.break_lease(each.id)
    text = f"ended {counted(len(chosen), 'lease')}" if chosen else "no stale leases"
    output.emit({"ended": [each.id for each in chosen]}, [text])


def _holder(lease: frazil.LeaseInfo) -> str:
    runs = {True: "runs", False: "has ended", None: "is not on this machine"}
    process = f", process {lease.process} {runs[lease.running]}" if lease.process else ""
    return f"{lease.holder()}{process}"


#: Findings with the severity information that are printed in any case.
_NOTES: Final = ("codec-missing", "virtual-unchecked")
#: The number of chunks of one finding that are printed. `--json` prints all.
_CHUNKS: Final = 5
_Level = Annotated[VerifyLevel, option(type=click.Choice(LEVELS))]


@verb("verify")
def verify(
    output: Output,
    location: Annotated[Target | None, argument(type=args.LOCATION, required=False)],
    state: Annotated[str | None, option(metavar="FILE")],
    everything: Annotated[bool, option("--all")],
    list_checks: bool,
    level: _Level = "metadata",
    engine: Literal["auto", "inline", "threads", "processes", "spark", "sail"] = "auto",
) -> int:
    """Check a repository against the specification, and print what is damaged, missing or exchanged.

    The command writes nothing into the repository, and may run while others write. The exit status is 0 if
    there are no problems, 1 if there are some, and 2 for wrong arguments.

    Args:
        state: Record the finished pieces of work in this file; a second run with it skips them.
        everything: Also print findings with the severity information.
        list_checks: Only print all checks, and end.
        level: How much is read: metadata, also which files exist, also every byte, also every chunk decoded.
        engine: Where tasks run: in this process (inline), in its threads, in processes of this machine, on
            Spark, or on Sail.

    Examples:
        frazil verify s3://bucket/repo                          check the metadata
        frazil verify repo --level exists                       also check that all files exist
        frazil verify repo --level decode --state verify.state  decode every chunk; repeat to continue
        frazil verify repo --json > report.json                 a report for programs
        frazil verify --list-checks                             print all checks
    """
    if list_checks:
        names = ("name", "section", "level", "severity", "rule", "action")
        documents = [picked(check, *names) for check in checks]
        rows = (
            (each.name, each.level, each.severity.value, f"{each.rule} [{each.section}]") for each in checks
        )
        output.emit(documents, table(rows))
        return 0
    if location is None:
        raise click.UsageError("LOCATION is missing. --list-checks needs no LOCATION")
    try:
        report = _run(output, OpenTarget(location).repo, level, state, engine)
    except (FormatError, RepositoryNotFoundError) as error:
        # Verify the versions of the latest readable backup. Without a backup, ``repo`` is the only finding.
        storage = storage_of(location)
        if error.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION:
            raise
        if (backup := latest_backup(storage)) is not None:
            context = opened_before(storage, HandleOptions(authorized=virtual_access()), backup.info)
            report = _run(output, Repository(context), level, state, engine)
        elif storage.head(REPO) is None:  # there is no repository
            raise
        else:
            report = VerificationReport(level, 0, 0, 0, 0, (read_finding(error, REPO),), {})
    output.emit(json.loads(report.to_json()), summary(report, everything=everything))
    return 0 if report.ok else 1


def _run(output: Output, repo: Repository, level: Any, state: str | None, engine: Any) -> VerificationReport:
    if engine == "auto":
        with output.progress("verify") as bar:
            return repo.upkeep.verify(level, state=state, progress=bar)
    with Progress("verify", 0) as bar:  # also without a terminal
        return repo.upkeep.verify(level, engine=engine, state=state, progress=bar)


def summary(report: VerificationReport, *, everything: bool = False) -> list[str]:
    """Return a report as lines: one line of numbers, and two lines for each finding."""
    # What the level could not check is part of the answer.
    shown = [
        each
        for each in report.findings
        if everything or each.severity is not Severity.INFORMATION or each.check in _NOTES
    ]
    problems = len(report.problems)
    numbers = (
        f"level {report.level}, {counted(report.snapshots, 'snapshot')}, "
        f"{counted(report.manifests, 'manifest')}, {counted(report.references, 'reference')}"
    )
    numbers += f", {report.bytes_read:,} bytes of chunks" if report.bytes_read else ""
    lines = [f"{counted(problems, 'problem') if problems else 'no problems'}: {numbers}"]
    for each in shown:
        path = report.path_of(each)
        chunks = [str(at) for at in each.coordinates[:_CHUNKS].tolist()]
        more = f" and {len(each.coordinates) - _CHUNKS} more" if len(each.coordinates) > _CHUNKS else ""
        where = f" of `{path}`" if path else ""
        lines.append(f"{each.severity.value}: {each.check}: {each.key}{where}: {each.detail}")
        if chunks:
            number = counted(len(each.coordinates), "chunk")
            lines.append(f"  {number}: {', '.join(chunks)}{more}")
        if each.affected.snapshots or each.affected.arrays:
            lines.append(f"  affected: {each.affected}")
        lines.append(f"  {each.action}")
    return lines


@verb("repair", commits=True)
def repair(
    output: Output,
    location: args.Location,
    copy: Annotated[tuple[Target, ...], option(metavar="LOCATION", type=args.LOCATION)],
    recover: Annotated[tuple[tuple[str, str], ...], option(metavar="SNAPSHOT BRANCH", type=(str, str))],
    dry_run: bool,
    yes: bool,
    level: _Level = "exists",
    lost: Literal["keep", "fill", "previous"] = "keep",
) -> int:
    """Look for lost, damaged and exchanged files, and print the steps that repair them without a guess.

    With --yes, also make the steps. Files that are replaced are put aside below `quarantine/`; no file is
    deleted.

    The exit status is 0 if there is no damage, or if --yes repaired all damage. It is 1 if there is damage
    that was not repaired, and after an error. It is 2 for wrong arguments.

    Args:
        copy: A copy of the repository, also an older or partial one; may be repeated.
        recover: Put a detached snapshot of the plan on the branch that it belongs to; may be repeated, the
            oldest snapshot first.
        dry_run: Only print the plan (the default).
        yes: Apply the plan.
        level: How to look for damage, as in `frazil verify`.
        lost: Chunks without a copy: change nothing, or make a commit in which they have the fill value or the
            data of an older version.

    Examples:
        frazil repair ice                                   print the plan
        frazil repair ice --copy s3://bucket/backup --yes   repair, also with files of a copy
        frazil repair ice --lost fill --yes                 cells of chunks without a copy become missing
        frazil repair ice --recover KMT725G7Z0ZJ dev --yes  put a detached snapshot of the plan on a branch
    """
    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes exclude each other")
    storage = storage_of(location)
    copies = [storage_of(each) for each in copy]
    plan = Repository.upkeep.repair(
        storage, copies=copies, level=level, lost=lost, authorize_virtual_chunk_access=virtual_access()
    )
    if yes:
        plan = plan.apply(metadata=author_metadata())
    recovered = []
    for snapshot, branch in recover if yes else ():
        # An id, or the beginning of an id of the plan
        whole = [each.id for each in plan.detached if each.id.startswith(snapshot.upper())]
        id_ = whole[0] if len(whole) == 1 else snapshot
        recovered.append(Repository.open(storage).upkeep.recover(id_, branch))
    left = [each for each in plan.detached if each.id not in recovered]
    document = {**plan.as_dict(), "recovered": recovered}
    # The commands that go on where the plan needs a decision
    again, lines = f"frazil repair {location.location}", str(plan).splitlines()
    fill, previous = plan.choices
    if not any(each.action == "commit" for each in plan.steps):
        if fill:
            lines.append(f"to give lost chunks missing values: {again} --lost fill --yes")
        if previous:
            lines.append(f"to give lost chunks the data of an older version: {again} --lost previous --yes")
    lines += [
        f"to put {each.id} on `{branch}`: {again} --recover {each.id} {branch} --yes"
        for each in left
        for branch in each.branches or ("NEW_BRANCH",)
    ]
    output.emit(document, lines)
    done = plan.complete and not left if yes else plan.ok
    return 0 if done else 1


@verb("cache")
def cache(
    output: Output,
    folder: Annotated[
        str, argument(envvar="FRAZIL_CACHE", type=click.Path(file_okay=False, resolve_path=True))
    ],
    clear: bool,
) -> None:
    """Show the cache on disk for remote repositories, or empty it.

    FOLDER is by default the variable FRAZIL_CACHE, which makes all commands and programs use the cache.
    FRAZIL_CACHE_SIZE is its limit, such as 50GB.

    Args:
        clear: Delete all files of the cache, and no others. Programs that use it go on.

    Examples:
        frazil cache /tmp/ice            show how full a cache is
        frazil cache /tmp/ice --clear    empty it
    """
    usage, limit = (clear_cache if clear else cache_usage)(folder), cache_limit()
    document = {"folder": folder, **picked(usage, "objects", "size_bytes"), "limit_bytes": limit}
    action = "deleted " if clear else ""
    line = f"{action}{counted(usage.objects, 'object')} with {size(usage.size_bytes)} in {folder}"
    output.emit({**document, "cleared": clear}, [line if clear else f"{line}, at most {size(limit)}"])
