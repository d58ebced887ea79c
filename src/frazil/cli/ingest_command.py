"""The command ``frazil ingest``: many files become one dataset."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from frazil.cli.changes import emit_tip, writable_storage
from frazil.cli.command import verb
from frazil.cli.ingest_arguments import ingest_arguments
from frazil.cli.opening import open_repository
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.display import counted
from frazil.extras import needs
from frazil.repository.handle.repository import Repository

_DESCRIPTION: Final = """\
Write many files into one dataset, in one commit. The command inspects all files first. If some files do not
fit, it prints their names and problems, and does not write. A second run with the same files does not write
either. With --mode append, a run with more files writes the new files. If --on-problem skip or quarantine
leaves files out, the exit status is 4, and the command lists them.

SOURCE is a file, or a glob in quotes: 'data/*.nc'. The repository is created if it does not exist. A
rehearsal (--dry-run) reads everything and holds the new chunks in memory."""

_EXAMPLES: Final = """\
frazil ingest 'era5/*.nc' ice --inspect                print the contents and the problems of the files
frazil ingest 'era5/*.nc' ice --dry-run                show what the commit would change
frazil ingest 'era5/*.nc' ice --chunks time=24         write them into one dataset
frazil ingest 'era5/*.nc' ice --mode append            append new files
frazil ingest 'gfs/*.grib2' ice --filter-by-keys typeOfLevel=isobaricInhPa
                                                       write one kind of level of GRIB files"""


def _reader_options(arguments: SimpleNamespace) -> dict[str, Any]:
    options = dict(arguments.reader_option)
    if arguments.filter_by_keys:
        options["filter_by_keys"] = arguments.filter_by_keys
    return options


@verb("ingest", description=_DESCRIPTION, examples=_EXAMPLES, commits=True)
@ingest_arguments
def command(output: Output, source: tuple[str, ...], repository: Target, **options: Any) -> int:
    """Inspect the files, and ingest them."""
    arguments = SimpleNamespace(source=list(source), repository=repository, **options)
    with needs("ingest", extra="pipeline"):
        from frazil.pipeline import Target, inspect_files
        from frazil.pipeline.ingest.operation import run_ingest
        from frazil.pipeline.ingest.options import IngestRequest, Settings
        from frazil.pipeline.ingest.source_inspection import inspect_for_new_group

    common = _options(arguments)
    if arguments.inspect:
        # The last argument, the repository, may be one more file: an inspection writes nothing.
        report = inspect_files(arguments.source, **common)
        output.emit(report_document(report), [str(report)])
        return 1 if report.fatal() else 0
    storage = writable_storage(arguments.repository, arguments.dry_run)
    with output.progress("ingest") as progress:
        settings = Settings(
            mode=arguments.mode,
            chunks=arguments.chunks,
            containers=arguments.container,
            on_problem=arguments.on_problem,
            on_change=arguments.on_change,
            message=arguments.message,
            progress=progress,
            **common,
        )
        request = IngestRequest.of(arguments.source, settings)
        inspection = None
        if arguments.on_problem == "fail" and not Repository.exists(storage):
            # An inspection that fails must not leave a new repository.
            inspection = inspect_for_new_group(request, settings.run)
        repo = open_repository(storage, create=True)
        if arguments.branch not in repo.list_branches():
            repo.create_branch(arguments.branch, repo.lookup_branch("main"))
        target = Target(repo, arguments.branch, arguments.group)
        result = run_ingest(request, target, settings.run, inspection)
    if arguments.dry_run and not result.done_before:
        version = repo.lookup_snapshot(repo.lookup_branch(arguments.branch))
        before = version.parent_id
        emit_tip(output, repo, arguments.branch, before, dry_run=True, further=notes(result))
    else:
        output.emit(result_document(result), [summary(result)])
    return LEFT_OUT if result.quarantined else 0


def _options(arguments: SimpleNamespace) -> dict[str, Any]:
    """Return the options that an inspection and an ingest have in common."""
    with needs("ingest", extra="pipeline"):
        from frazil.pipeline.ingest.size import is_small

    # Missing files must not leave a new repository.
    small = is_small(arguments.source)
    automatic = "inline" if small or arguments.dry_run else "local"
    return {
        "concat_dim": arguments.concat_dim,
        "variables": arguments.variables,
        "virtual": arguments.virtual,
        "allow": arguments.allow,
        "unpack": arguments.unpack,
        "format": arguments.format,
        "source_group": arguments.source_group,
        "reader_options": _reader_options(arguments),
        "compound": arguments.compound,
        "engine": automatic if arguments.engine == "auto" else arguments.engine,
    }


#: The exit status of an ingest that left files out because of problems.
LEFT_OUT: Final = 4
#: The number of notes, and of files that were left out, that are printed; `--inspect` prints more.
_NOTES: Final = 10


def summary(result: Any) -> str:
    """Return the result of an ingest in a few lines."""
    report = result.report
    bad = len(report.bad)
    if result.done_before:
        text = f"nothing to do: {report.unchanged:,} of {len(report.urls):,} files are ingested and unchanged"
        return "\n".join([text, *_left_out(report)])
    text = f"{result.snapshot_id}: {counted(len(report.urls) - bad - report.unchanged, 'file')}"
    text += f", {report.unchanged:,} ingested before" if report.unchanged else ""
    text += f", {bad:,} left out because of problems" if bad else ""
    return "\n".join([text, *notes(result)])


def notes(result: Any) -> list[str]:
    """Return the files that were left out, the chunks of new arrays, and the first notes, as lines."""
    report = result.report
    chunks = [f"chunks: {each}" for each in report.chunk_lines()[:_NOTES]]
    return [*_left_out(report), *chunks, *(f"note: {each}" for each in report.notes[:_NOTES])]


def _left_out(report: Any) -> list[str]:
    first = {each.url: each for each in reversed(report.fatal()) if each.url is not None}
    lines = [f"left out: {url}: {first[url].kind}: {first[url].message}" for url in report.bad[:_NOTES]]
    more = len(report.bad) - len(lines)
    return [*lines, *([f"left out: {counted(more, 'more file')}: `--inspect` lists them"] if more else [])]


def report_document(report: Any) -> dict[str, Any]:
    """Return a report on files in the form that JSON has."""
    problems = [
        {"file": each.url, "kind": str(each.kind), "fatal": each.fatal, "text": each.message}
        for each in report.problems
    ]
    return {
        "files": len(report.urls),
        "dimension": report.concat_dim,
        "unchanged": report.unchanged,
        "problems": problems,
        "chunks": [
            {"array": each.array, "shape": each.shape, "bytes": each.bytes, "reason": each.reason}
            for each in report.chunks
        ],
    }


def result_document(result: Any) -> dict[str, Any]:
    """Return the result of an ingest in the form that JSON has."""
    return {
        "snapshot": result.snapshot_id,
        "done_before": bool(result.done_before),
        "left_out": list(result.quarantined),
        **report_document(result.report),
    }
