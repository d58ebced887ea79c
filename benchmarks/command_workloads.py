"""The workloads of the command line and of imports."""

from __future__ import annotations

from typing import Final

from workload import FRAZIL, REFERENCE, Workload, at_most

#: Files of text stand for arrays.
COMMANDS = (FRAZIL, "git")

CLASSES = (
    "about 270 modules of Frazil, and the methods of their 280 dataclasses, which Python compiles at each "
    "start (half of the own part)"
)

STARTS: Final = (
    Workload(
        "The import of the library",
        "imports.start",
        {},
        {},
        targets=(
            *at_most(
                REFERENCE,
                {"import, processor s": 0.8, "import and Repository, processor s": 0.8},
                {"import and Repository, processor s": CLASSES},
            ),
            *at_most(
                None,
                {
                    "own part of Repository and store, processor s": 0.1,
                    "import frazil.spark, processor s": 0.4,
                },
                {"own part of Repository and store, processor s": CLASSES},
            ),
        ),
        rounds=3,
    ),
    Workload("The start of a command", "commands.start", {}, {}, COMMANDS, compare=(COMMANDS,), rounds=2),
    Workload(
        "The command log of 100,000 commits",
        "commands.log",
        {"number": 100_000},
        {"number": 20},
        COMMANDS,
        compare=(COMMANDS,),
        rounds=1,
    ),
    Workload(
        "The command ls of 100,000 arrays",
        "commands.ls",
        {"arrays": 100_000},
        {"arrays": 20},
        COMMANDS,
        compare=(COMMANDS,),
        rounds=1,
    ),
    Workload(
        "Blame of a million chunks, and bisection, over 10,000 commits",
        "commands.origins",
        {"side": 1000, "number": 10_000, "chunks": 300},
        {"side": 4, "number": 20, "chunks": 3},
        COMMANDS,
        compare=(COMMANDS,),
        rounds=1,
    ),
)
