"""Inputs that all processes of a run read. The first process that needs an input makes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: The environment variable with the folder of the inputs.
INPUTS: Final = "BENCH_INPUTS"


def shared_input(name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder with this name. Make it if it is missing."""
    path = Path(os.environ[INPUTS]) / name
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        unfinished.mkdir()
        make(unfinished)
        unfinished.rename(path)
    return path
