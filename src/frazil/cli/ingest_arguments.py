"""The arguments of ``frazil ingest``."""

from __future__ import annotations

import argparse
from typing import Final

from frazil.cli.argument_types import chunk_sizes, comma_separated, container, filter_keys, reader_option
from frazil.storage.url_parts import COMMON_URLS

MODES: Final = ("create", "append", "insert", "upsert", "backfill")
ENGINES: Final = ("auto", "inline", "local", "spark")


def declare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``frazil ingest`` to a parser, in the order in which the help shows them."""
    _declare_places(parser)
    _declare_content(parser)
    _declare_format(parser)
    _declare_problems(parser)
    _declare_run(parser)


def _declare_places(parser: argparse.ArgumentParser) -> None:
    """Declare the files, and the place of their data."""
    parser.add_argument("source", metavar="SOURCE", nargs="+", help="files, or globs in quotes: 'data/*.nc'")
    parser.add_argument(
        "repository", metavar="REPOSITORY", help=f"{COMMON_URLS}; created if it does not exist"
    )
    parser.add_argument(
        "--inspect", action="store_true", help="only print the contents and the problems of the files"
    )
    parser.add_argument(
        "--mode", choices=MODES, default="create", help="how the files relate to existing data (create)"
    )
    parser.add_argument("--branch", default="main", help="the branch to commit to (main)")
    parser.add_argument("--group", default="/", help="the group in the repository (/)")


def _declare_content(parser: argparse.ArgumentParser) -> None:
    """Declare which data are ingested, and in what form."""
    parser.add_argument("--concat-dim", metavar="DIM", help="the dimension along which the files are joined")
    parser.add_argument(
        "--variables", metavar="A,B", type=comma_separated, help="the data variables to ingest (all)"
    )
    parser.add_argument(
        "--chunks",
        metavar="DIM=N,...",
        type=chunk_sizes,
        default={},
        help="chunk lengths; -1 is the whole dimension",
    )
    parser.add_argument(
        "--virtual", action="store_true", help="refer to the bytes in the files, and copy only coordinates"
    )
    parser.add_argument(
        "--container",
        metavar="PREFIX",
        action="append",
        type=container,
        default=[],
        help="a prefix that virtual chunks may refer to: file:///folder, s3://bucket/prefix, "
        "gs://bucket/prefix or az://account/container/prefix",
    )
    parser.add_argument(
        "--unpack", action="store_true", help="store packed data (scale_factor, add_offset) as values"
    )


def _declare_format(parser: argparse.ArgumentParser) -> None:
    """Declare how the files are read."""
    parser.add_argument("--format", help="the format of the files (recognised from each file)")
    parser.add_argument("--source-group", default="/", metavar="GROUP", help="the group in the files (/)")
    parser.add_argument(
        "--filter-by-keys",
        metavar="KEY=VALUE,...",
        type=filter_keys,
        default={},
        help="the GRIB fields to ingest: typeOfLevel=surface,stepType=instant (all)",
    )
    parser.add_argument(
        "--reader-option",
        metavar="KEY=VALUE",
        action="append",
        type=reader_option,
        default=[],
        help="an option of the reader of the format, VALUE as JSON or text: squeeze=false, page=2",
    )


def _declare_problems(parser: argparse.ArgumentParser) -> None:
    """Declare what happens to files that do not fit, or that have changed."""
    parser.add_argument(
        "--on-problem",
        choices=("fail", "skip", "quarantine"),
        default="fail",
        help="what happens to files with problems (fail)",
    )
    parser.add_argument(
        "--on-change",
        choices=("fail", "ignore", "rewrite"),
        default="fail",
        help="what happens to files that changed since they were ingested (fail)",
    )
    parser.add_argument(
        "--allow",
        metavar="KIND,...",
        type=comma_separated,
        default=(),
        help="problems to tolerate: values, unordered, overlap, duplicate, hole",
    )


def _declare_run(parser: argparse.ArgumentParser) -> None:
    """Declare how the ingest runs."""
    parser.add_argument("--message", help="the message of the commit")
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="where tasks run: in this process (inline), in processes of this machine (local), on Spark "
        "(auto: inline for a few small files, else local)",
    )
