"""The command ``frazil ingest``: many files become one dataset."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from frazil.cli.changes import emit_tip, writable_storage
from frazil.cli.command import verb
from frazil.cli.ingest_arguments import ingest_arguments
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.display import counted
from frazil.extras import needs
from frazil.repository.handle.repository import Repository

_DESCRIPTION: Final = """\
Write many files into one dataset, in one commit. The command inspects all files first. If some files do not
fit, it prints their names and problems, and does not write. A second run with the same files does not write
either; a run with more files writes the new files.

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


@verb("ingest", description=_DESCRIPTION, examples=_EXAMPLES)
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
        repo = Repository.open_or_create(storage)
        if arguments.branch not in repo.list_branches():
            repo.create_branch(arguments.branch, repo.lookup_branch("main"))
        target = Target(repo, arguments.branch, arguments.group)
        result = run_ingest(request, target, settings.run, inspection)
    if arguments.dry_run and not result.done_before:
        version = repo.lookup_snapshot(repo.lookup_branch(arguments.branch))
        before = version.parent_id
        emit_tip(output, repo, arguments.branch, before, dry_run=True, further=notes(result))
        return 0
    output.emit(result_document(result), [summary(result)])
    return 0


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
        "engine": automatic if arguments.engine == "auto" else arguments.engine,
    }


#: The number of notes that are printed; `--inspect` prints more.
_NOTES: Final = 10


def summary(result: Any) -> str:
    """Return the result of an ingest in a few lines."""
    report = result.report
    if result.done_before:
        return f"nothing to do: {report.unchanged:,} of {len(report.urls):,} files are ingested and unchanged"
    bad = len(report.bad)
    text = f"{result.snapshot_id}: {counted(len(report.urls) - bad - report.unchanged, 'file')}"
    text += f", {report.unchanged:,} ingested before" if report.unchanged else ""
    text += f", {bad:,} skipped (`--inspect` shows the problems)" if bad else ""
    return "\n".join([text, *notes(result)])


def notes(result: Any) -> list[str]:
    """Return the first notes of an ingest, such as changed data types, as lines."""
    return [f"note: {each}" for each in result.report.notes[:_NOTES]]


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
    }


def result_document(result: Any) -> dict[str, Any]:
    """Return the result of an ingest in the form that JSON has."""
    return {
        "snapshot": result.snapshot_id,
        "done_before": bool(result.done_before),
        **report_document(result.report),
    }
