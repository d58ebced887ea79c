"""``frazil ingest``: many files become one dataset."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from frazil.cli.command import Command
from frazil.cli.wording import for_terminal
from frazil.errors import InvalidInputError
from frazil.extras import needs
from frazil.repository.handle.repository import Repository
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.url_parts import COMMON_URLS
from frazil.storage.urls import parse_url, storage_from_url

MODES: Final = ("create", "append", "insert", "upsert", "backfill")
ENGINES: Final = ("auto", "inline", "local", "spark")


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", nargs="+", help="files, or globs in quotes: 'data/*.nc'")
    parser.add_argument("repository", metavar="REPOSITORY", help=f"{COMMON_URLS}; created if it is not there")
    parser.add_argument(
        "--inspect", action="store_true", help="only say what is in the files, and what is wrong"
    )
    parser.add_argument("--mode", choices=MODES, default="create", help="what may be there already (create)")
    parser.add_argument("--branch", default="main", help="the branch to commit to (main)")
    parser.add_argument("--group", default="/", help="the group in the repository (/)")
    parser.add_argument("--concat-dim", metavar="DIM", help="the dimension in which files follow each other")
    parser.add_argument("--variables", metavar="A,B", type=_names, help="the data variables to take (all)")
    parser.add_argument("--chunks", metavar="DIM=N,...", type=_sizes, default={}, help="chunk sizes; -1: all")
    parser.add_argument(
        "--virtual", action="store_true", help="refer to the bytes in the files, copy only coordinates"
    )
    parser.add_argument(
        "--container",
        metavar="PREFIX",
        action="append",
        type=_container,
        default=[],
        help="file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://account/container/prefix, to "
        "which the repository may refer",
    )
    parser.add_argument(
        "--unpack", action="store_true", help="store values of packed data (scale_factor, add_offset)"
    )
    parser.add_argument("--format", help="of the files; found out if not given")
    parser.add_argument("--source-group", default="/", metavar="GROUP", help="the group in the files (/)")
    parser.add_argument(
        "--filter-by-keys",
        metavar="KEY=VALUE,...",
        type=_keys,
        default={},
        help="fields of GRIB to take: typeOfLevel=surface,stepType=instant (all)",
    )
    parser.add_argument(
        "--reader-option",
        metavar="KEY=VALUE",
        action="append",
        type=_option,
        default=[],
        help="an option of the reader of the format, VALUE as JSON or text: squeeze=false, page=2",
    )
    parser.add_argument(
        "--on-problem",
        choices=("fail", "skip", "quarantine"),
        default="fail",
        help="files that are wrong (fail)",
    )
    parser.add_argument(
        "--on-change",
        choices=("fail", "ignore", "rewrite"),
        default="fail",
        help="files that have changed since they were ingested (fail)",
    )
    parser.add_argument(
        "--allow",
        metavar="KIND,...",
        type=_names,
        default=(),
        help="problems to tolerate: values, unordered, overlap, duplicate, hole",
    )
    parser.add_argument("--message", help="of the commit")
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="where tasks run: in this process, in others of this machine, on Spark (auto: inline for a few "
        "small files, else local)",
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _sizes(text: str) -> dict[str, int]:
    """
    >>> _sizes("time=24,lat=-1")
    {'time': 24, 'lat': -1}
    """
    pairs = [each.partition("=") for each in _names(text)]
    try:
        return {name.strip(): int(size) for name, _, size in pairs}
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected DIM=NUMBER,..., found {text!r}") from None


def _option(text: str) -> tuple[str, Any]:
    """
    >>> _option("squeeze=false"), _option('time_dims=["valid_time"]'), _option("name=t2m")
    (('squeeze', False), ('time_dims', ['valid_time']), ('name', 't2m'))
    """
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, found {text!r}")
    return name.strip(), _json_or_text(value.strip())


def _keys(text: str) -> dict[str, Any]:
    """
    >>> _keys("typeOfLevel=heightAboveGround,level=2")
    {'typeOfLevel': 'heightAboveGround', 'level': 2}
    """
    return dict(map(_option, _names(text)))


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def _reader_options(arguments: argparse.Namespace) -> dict[str, Any]:
    options = dict(arguments.reader_option)
    if arguments.filter_by_keys:
        options["filter_by_keys"] = arguments.filter_by_keys
    return options


def _run(arguments: argparse.Namespace) -> int:
    with needs("ingest", extra="pipeline"):
        from frazil.pipeline import Progress, Target, inspect_files
        from frazil.pipeline.ingest.operation import inspect_for_new_group, run_ingest
        from frazil.pipeline.ingest.options import IngestRequest, Settings

    options = _options(arguments)
    if arguments.inspect:
        # What would be the repository may be one more file: nothing is written anyway.
        report = inspect_files(arguments.source, **options)
        print(for_terminal(str(report)))
        return 1 if report.fatal() else 0
    progress = Progress("ingest", 0)
    settings = Settings(
        mode=arguments.mode,
        chunks=arguments.chunks,
        containers=arguments.container,
        on_problem=arguments.on_problem,
        on_change=arguments.on_change,
        message=arguments.message,
        progress=progress,
        **options,
    )
    request = IngestRequest.of(arguments.source, settings)
    storage = storage_from_url(arguments.repository)
    with progress:
        inspection = None
        if arguments.on_problem == "fail" and not Repository.exists(storage):
            # before the repository is created: a refusal leaves none
            inspection = inspect_for_new_group(request, settings.run)
        repo = Repository.open_or_create(storage)
        if arguments.branch not in repo.list_branches():
            repo.create_branch(arguments.branch, repo.lookup_branch("main"))
        target = Target(repo, arguments.branch, arguments.group)
        result = run_ingest(request, target, settings.run, inspection)
    print(summary(result))
    return 0


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that an inspection and an ingest have in common."""
    with needs("ingest", extra="pipeline"):
        from frazil.pipeline.ingest.size import is_small

    # before the repository: nothing is made for files that are not there
    small = is_small(arguments.source)
    automatic = "inline" if small else "local"
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


#: So many notes are printed; `--inspect` prints more.
_NOTES: Final = 10


def summary(result: Any) -> str:
    """What an ingest has done, in a line or two."""
    report = result.report
    if result.done_before:
        return f"nothing to do: {report.unchanged:,} of {len(report.urls):,} files are there, as they are now"
    bad = len(report.bad)
    text = f"{result.snapshot_id}: {len(report.urls) - bad - report.unchanged:,} files"
    text += f", {report.unchanged:,} were there" if report.unchanged else ""
    text += f", {bad:,} left out (`--inspect` tells why)" if bad else ""
    return "\n".join([text, *(f"note: {each}" for each in report.notes[:_NOTES])])


def _container(prefix: str) -> VirtualChunkContainer:
    """
    >>> _container("file:///data/era5").url_prefix
    'file:///data/era5/'
    """
    try:
        url = parse_url(prefix)
        if "://" in prefix:
            return VirtualChunkContainer(url.chunk_location.rstrip("/") + "/", url.store_config())
    except InvalidInputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    raise argparse.ArgumentTypeError(f"expected a prefix of URLs, such as {url.url}, found {prefix!r}")


INGEST: Final = Command(
    "ingest",
    help="make one dataset of many NetCDF, HDF5, Zarr, GRIB or GeoTIFF files",
    description="""\
Write many files into one dataset, in one commit. All files are looked at first: what is wrong with them is
told by name, and nothing is written. A second run with the same files does nothing; a run with more files
writes what is new.""",
    epilog="""\
examples:
  frazil ingest 'era5/*.nc' ice --inspect                what is in the files, and what is wrong with them
  frazil ingest 'era5/*.nc' ice --chunks time=24         one dataset of them
  frazil ingest 'era5/*.nc' ice --mode append            what has come since
  frazil ingest 'gfs/*.grib2' ice --filter-by-keys typeOfLevel=isobaricInhPa
                                                         one kind of level of GRIB files""",
    declare=_declare,
    run=_run,
)
