"""The command `icechunk-kit`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from fnmatch import fnmatch

import icechunk_kit.cases  # noqa: F401 - registers the cases
from icechunk_kit.case import CASES, LEVELS
from icechunk_kit.runner import Adapter, run


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("icechunk-kit", description="Conformance tests for the Icechunk format.")
    parser.add_argument("adapter", nargs="+", help="the command of an adapter, as one argument")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="cases whose identifier matches")
    parser.add_argument("--level", choices=LEVELS, default=LEVELS[-1], help="cases up to this level")
    options = parser.parse_args(arguments)
    cases = [
        case
        for id, case in sorted(CASES.items())
        if fnmatch(id, options.only) and LEVELS.index(case.level) <= LEVELS.index(options.level)
    ]
    adapters = [Adapter(shlex.split(command)) for command in options.adapter]
    failures = 0
    try:
        for result in run(adapters, cases):
            failures += result.outcome == "failed"
            print(
                f"{result.outcome:12}{result.seconds:6.2f} s  {result.case.id}  {result.detail}", flush=True
            )
    finally:
        for adapter in adapters:
            adapter.stop()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
