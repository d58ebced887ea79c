"""The command `icechunk-kit`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import icechunk_kit.cases  # noqa: F401 - registers the cases
from icechunk_kit.case import CASES, LEVELS, VERSIONS, Case, KitError
from icechunk_kit.report import badge, comparison, description, document, export, table, tap
from icechunk_kit.runner import Adapter, Result, run


def selection(options: argparse.Namespace) -> list[Case]:
    cases = [
        case
        for id, case in sorted(CASES.items())
        if fnmatch(id, options.only)
        and LEVELS.index(case.level) <= LEVELS.index(options.level)
        and case.version in (options.version or VERSIONS)
    ]
    if not cases:
        raise KitError(f"no case of this level and version has a name that matches {options.only!r}")
    return cases


def run_cases(options: argparse.Namespace) -> int:
    try:
        adapters = [Adapter(shlex.split(command)) for command in options.adapter]
    except ValueError as error:
        raise KitError(f"the command of the adapter is wrong: {options.adapter}: {error}") from None
    results: list[Result] = []
    try:
        for result in run(adapters, selection(options), options.patience):
            results.append(result)
            if not options.tap:
                text = f"{result.outcome:12}{result.seconds:6.2f} s  {result.case.id}  {result.detail}"
                print(text, flush=True)
    finally:
        for adapter in adapters:
            adapter.stop()
    content = document(options.name or options.adapter[0], results, partial=options.only != "*")
    print("\n".join(tap(content["results"])) if options.tap else "\n" + table(content))
    if options.json:
        options.json.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    if options.badge:
        options.badge.write_text(badge(content))
    if all(each.outcome == "unsupported" for each in results):
        raise KitError("the adapter supports none of these cases")
    return int(any(each.outcome == "failed" for each in results))


def list_cases(options: argparse.Namespace) -> int:
    print(json.dumps([description(case) for case in selection(options)], indent=1, ensure_ascii=False))
    return 0


def export_cases(options: argparse.Namespace) -> int:
    export(selection(options), options.folder)
    return 0


def compare(options: argparse.Namespace) -> int:
    print(comparison([json.loads(path.read_text()) for path in options.file]), end="")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("icechunk-kit", description="Conformance tests for the Icechunk format.")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--only", default="*", metavar="PATTERN", help="cases whose identifier matches")
    common.add_argument("--level", choices=LEVELS, default=LEVELS[-1], help="cases up to this level")
    common.add_argument(
        "--version", choices=VERSIONS, action="append", help="cases of this version of the format"
    )
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run", parents=[common], help="run the cases with an adapter")
    command.add_argument(
        "adapter", nargs="+", help="the command of an adapter, as one argument; a second one takes turns"
    )
    command.add_argument("--name", help="the name of the implementation in the results")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    command.add_argument("--badge", type=Path, metavar="FILE", help="write a badge as SVG")
    command.add_argument("--tap", action="store_true", help="print the Test Anything Protocol")
    command.add_argument("--patience", type=float, default=1, metavar="FACTOR", help="multiplies time limits")
    command.set_defaults(action=run_cases)
    command = commands.add_parser("list", parents=[common], help="print the cases as JSON")
    command.set_defaults(action=list_cases)
    command = commands.add_parser(
        "export", parents=[common], help="write the files and the steps of the cases"
    )
    command.add_argument("folder", type=Path)
    command.set_defaults(action=export_cases)
    command = commands.add_parser("compare", help="print a page with the results of several implementations")
    command.add_argument("file", nargs="+", type=Path, help="what `run --json` wrote")
    command.set_defaults(action=compare)
    options = parser.parse_args(arguments)
    try:
        result: int = options.action(options)
    except KitError as error:
        print(f"icechunk-kit: {error}", file=sys.stderr)
        return 2
    return result


if __name__ == "__main__":
    sys.exit(main())
