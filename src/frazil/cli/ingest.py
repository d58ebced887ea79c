"""The command ``frazil ingest``: many files become one dataset."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from frazil.cli.arguments import (
    DryRun,
    RequiredLocation,
    chunk_sizes,
    collected,
    comma_separated,
    container,
    converted,
    key_value,
    key_values,
)
from frazil.cli.changes import emit_tip
from frazil.cli.command import argument, option, verb
from frazil.cli.moves import open_or_create
from frazil.cli.opening import storage_of
from frazil.cli.output import Output
from frazil.display import counted
from frazil.repository.handle.repository import Repository


@verb("ingest", commits=True)
def ingest(
    output: Output,
    source: Annotated[tuple[str, ...], argument(nargs=-1, required=True)],
    repository: RequiredLocation,
    dry_run: DryRun,
    inspect: bool,
    concat_dim: Annotated[str | None, option(metavar="DIM")],
    variables: Annotated[Any, option(metavar="A,B", callback=converted(comma_separated))],
    chunks: Annotated[Any, option(metavar="DIM=N,...", callback=converted(chunk_sizes, {}))],
    virtual: bool,
    container: Annotated[Any, option(metavar="PREFIX", multiple=True, callback=collected(container))],
    unpack: bool,
    format: str | None,
    filter_by_keys: Annotated[Any, option(metavar="KEY=VALUE,...", callback=converted(key_values, {}))],
    reader_option: Annotated[
        Any, option(metavar="KEY=VALUE", multiple=True, callback=collected(key_value, dict))
    ],
    allow: Annotated[Any, option(metavar="KIND,...", callback=converted(comma_separated, ()))],
    message: str | None,
    mode: Literal["create", "append", "insert", "upsert", "backfill"] = "create",
    branch: str = "main",
    group: str = "/",
    source_group: Annotated[str, option(metavar="GROUP")] = "/",
    compound: Literal["skip", "fields"] = "skip",
    on_problem: Literal["fail", "skip", "quarantine"] = "fail",
    on_change: Literal["fail", "ignore", "rewrite"] = "fail",
    engine: Literal["auto", "inline", "local", "spark"] = "auto",
) -> int:
    """Write many files into one dataset, in one commit.

    The command inspects all files first. If some files do not fit, it prints their names and problems, and
    does not write. A second run with the same files does not write either. With --mode append, a run with
    more files writes the new files. If --on-problem skip or quarantine leaves files out, the exit status is
    4, and the command lists them.

    SOURCE is a file, or a glob in quotes: 'data/*.nc'. The repository is created if it does not exist. A
    rehearsal (--dry-run) reads everything and holds the new chunks in memory.

    Args:
        inspect: Only print the contents and the problems of the files.
        concat_dim: The dimension along which the files are joined.
        variables: The data variables to ingest (all).
        chunks: Chunk lengths; -1 is the whole dimension.
        virtual: Refer to the bytes in the files, and copy only coordinates.
        container: A prefix that virtual chunks may refer to: file:///folder, s3://bucket/prefix,
            gs://bucket/prefix or az://account/container/prefix.
        unpack: Store packed data (scale_factor, add_offset) as values.
        format: The format of the files (recognised from each file).
        filter_by_keys: The GRIB fields to ingest: typeOfLevel=surface,stepType=instant (all).
        reader_option: An option of the reader of the format, VALUE as JSON or text: squeeze=false, page=2.
        allow: Problems to tolerate: values, unordered, overlap, duplicate, hole.
        message: The message of the commit.
        mode: How the files relate to existing data.
        branch: The branch to commit to.
        group: The group in the repository.
        source_group: The group in the files.
        compound: Leave out HDF5 variables of compound types, or make an array of each field.
        on_problem: What happens to files with problems.
        on_change: What happens to files that changed since they were ingested.
        engine: Where tasks run: in this process (inline), in processes of this machine (local), on Spark, or
            inline for a few small files, else local.

    Examples:
        frazil ingest 'era5/*.nc' ice --inspect                print the problems of the files
        frazil ingest 'era5/*.nc' ice --dry-run                show what the commit would change
        frazil ingest 'era5/*.nc' ice --chunks time=24         write them into one dataset
        frazil ingest 'era5/*.nc' ice --mode append            append new files
        frazil ingest 'gfs/*.grib2' ice --filter-by-keys typeOfLevel=isobaricInhPa
                                                               write one kind of level of GRIB files
    """
    from frazil.pipeline import Target, inspect_files
    from frazil.pipeline.ingest.operation import inspect_for_new_group, run_ingest
    from frazil.pipeline.ingest.options import IngestRequest, is_small

    files = list(source)
    # Missing files must not leave a new repository.
    automatic = "inline" if is_small(files) or dry_run else "local"
    common: dict[str, Any] = {
        "concat_dim": concat_dim,
        "variables": variables,
        "virtual": virtual,
        "allow": allow,
        "unpack": unpack,
        "format": format,
        "source_group": source_group,
        "reader_options": {**reader_option, **({"filter_by_keys": filter_by_keys} if filter_by_keys else {})},
        "compound": compound,
        "engine": automatic if engine == "auto" else engine,
    }
    if inspect:
        # The last argument, the repository, may be one more file: an inspection writes nothing.
        report = inspect_files(files, **common)
        output.emit(_report_document(report), [str(report)])
        return 1 if report.fatal() else 0
    storage = storage_of(repository, dry_run)
    with output.progress("ingest") as progress:
        request = IngestRequest(
            files,
            mode=mode,
            chunks=chunks,
            containers=container,
            on_problem=on_problem,
            on_change=on_change,
            message=message,
            progress=progress,
            **common,
        )
        inspection = None
        if on_problem == "fail" and not Repository.exists(storage):
            # An inspection that fails must not leave a new repository.
            inspection = inspect_for_new_group(request)
        repo = open_or_create(storage)
        if branch not in repo.list_branches():
            repo.create_branch(branch, repo.lookup_branch("main"))
        result = run_ingest(request, Target(repo, branch, group), inspection)
    if dry_run and not result.done_before:
        before = repo.lookup_snapshot(repo.lookup_branch(branch)).parent_id
        emit_tip(output, repo, branch, before, dry_run=True, further=_notes(result))
    else:
        output.emit(_result_document(result), [_summary(result)])
    return LEFT_OUT if result.quarantined else 0


#: The exit status of an ingest that left files out because of problems.
LEFT_OUT: Final = 4
#: The number of notes, and of files that were left out, that are printed; `--inspect` prints more.
_NOTES: Final = 10


def _summary(result: Any) -> str:
    """Return the result of an ingest in a few lines."""
    report = result.report
    bad = len(report.bad)
    if result.done_before:
        text = f"nothing to do: {report.unchanged:,} of {len(report.urls):,} files are ingested and unchanged"
        return "\n".join([text, *_left_out(report)])
    text = f"{result.snapshot_id}: {counted(len(report.urls) - bad - report.unchanged, 'file')}"
    text += f", {report.unchanged:,} ingested before" if report.unchanged else ""
    text += f", {bad:,} left out because of problems" if bad else ""
    return "\n".join([text, *_notes(result)])


def _notes(result: Any) -> list[str]:
    """Return the files that were left out, the chunks of new arrays, and the first notes, as lines."""
    report = result.report
    chunks = [f"chunks: {each}" for each in report.chunk_lines()[:_NOTES]]
    return [*_left_out(report), *chunks, *(f"note: {each}" for each in report.notes[:_NOTES])]


def _left_out(report: Any) -> list[str]:
    first = {each.url: each for each in reversed(report.fatal()) if each.url is not None}
    lines = [f"left out: {url}: {first[url].kind}: {first[url].message}" for url in report.bad[:_NOTES]]
    more = len(report.bad) - len(lines)
    return [*lines, *([f"left out: {counted(more, 'more file')}: `--inspect` lists them"] if more else [])]


def _report_document(report: Any) -> dict[str, Any]:
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


def _result_document(result: Any) -> dict[str, Any]:
    """Return the result of an ingest in the form that JSON has."""
    return {
        "snapshot": result.snapshot_id,
        "done_before": bool(result.done_before),
        "left_out": list(result.quarantined),
        **_report_document(result.report),
    }
