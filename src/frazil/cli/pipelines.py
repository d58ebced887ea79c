"""Commands for pipelines whose definition is a file: pipeline plan, run, status, backfill, show."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import click

from frazil.cli import arguments as args
from frazil.cli.command import Output, argument, option, verb
from frazil.cli.moves import LEFT_OUT
from frazil.error_kinds import ErrorKind

if TYPE_CHECKING:
    from frazil.pipeline import Pipeline

_File = Annotated[str, argument(metavar="FILE")]
#: The exit statuses of a run: of its outcomes, and of its errors.
_STATUSES: Final = {"published": 0, "left-out": LEFT_OUT, "unchanged": 5}
_ERRORS: Final[dict[str, int]] = {ErrorKind.VALIDATION_FAILED: 6, ErrorKind.BAD_SOURCE: 7}


def _pipeline(output: Output, file: str) -> Pipeline:
    import frazil.pipeline

    output.statuses = _ERRORS
    pipeline = frazil.pipeline.Pipeline.load(file)
    output.location = pipeline.repository
    return pipeline


def _emit(output: Output, result: Any) -> None:
    output.emit(asdict(result), str(result).splitlines())


@verb("pipeline plan")
def pipeline_plan(output: Output, file: _File) -> int:
    """Show what a run of a pipeline would do today, and why. Nothing is written.

    FILE is the definition of the pipeline, in TOML. The exit status is that of the run: 5 if there is nothing
    to do, 7 if the run would refuse the files.

    Examples:
        frazil pipeline plan feed.toml        files, tasks, bytes, seconds, derived arrays
    """
    plan = _pipeline(output, file).plan()
    _emit(output, plan)
    return _STATUSES["unchanged" if plan.is_empty else "published"]


@verb("pipeline run")
def pipeline_run(output: Output, file: _File) -> int:
    """Ingest new files, compute derived arrays, check the rules, and publish all in one step.

    A run that has nothing to do writes nothing, and a run that was killed is continued by the next one. The
    exit status is 0 if a version was published, 4 if it was published and files were left out, 5 if there
    was nothing to do, 6 if a rule failed and nothing was published, 7 if the files were refused.

    Examples:
        frazil pipeline run feed.toml         each morning
    """
    pipeline = _pipeline(output, file)
    with output.progress("pipeline") as bar:
        result = pipeline.run(progress=bar)
    _emit(output, result)
    return _STATUSES[result.outcome]


def _label(text: str) -> date | datetime | float:
    """Return the label of a text: a date, a time, or a number."""
    for kind in (date, datetime):
        try:
            return kind.fromisoformat(text)
        except ValueError:
            pass
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"must be a date, a time or a number, got {text!r}") from None


_Label = option(required=True, metavar="LABEL", callback=args.converted(_label))


@verb("pipeline backfill")
def pipeline_backfill(
    output: Output,
    file: _File,
    start: Annotated[Any, option("--from"), _Label],
    stop: Annotated[Any, option("--to"), _Label],
) -> int:
    """Ingest all files with labels in a span again, refresh what depends on them, and publish.

    Use it for late and corrected files of the past, and after a change of the options of an ingest. The exit
    status is that of `frazil pipeline run`.

    Args:
        start: The first label: a date, a time (UTC), or a number.
        stop: The last label. A date is the whole day.

    Examples:
        frazil pipeline backfill feed.toml --from 2026-11-01 --to 2026-11-07
    """
    pipeline = _pipeline(output, file)
    with output.progress("pipeline") as bar:
        result = pipeline.backfill(start, stop, progress=bar)
    _emit(output, result)
    return _STATUSES[result.outcome]


@verb("pipeline status")
def pipeline_status(output: Output, file: _File) -> None:
    """Show how new the published version is, the last runs, and what is left out or behind.

    Examples:
        frazil pipeline status feed.toml
    """
    _emit(output, _pipeline(output, file).status())


@verb("pipeline show")
def pipeline_show(output: Output, file: _File, mermaid: Annotated[bool, option()] = False) -> None:
    """Show the steps of a pipeline: files, groups, derived arrays, and the publication.

    Args:
        mermaid: Print a flowchart of Mermaid. GitHub and GitLab draw it between ```mermaid and ```.

    Examples:
        frazil pipeline show feed.toml
        frazil pipeline show feed.toml --mermaid > feed.mmd
    """
    graph = _pipeline(output, file).graph()
    output.emit(asdict(graph), (graph.mermaid() if mermaid else str(graph)).splitlines())
