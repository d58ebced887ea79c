"""Functions of blocks, which workers import."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np


def killed_once(values: Any, mark: str) -> Any:
    """Kill the worker of the first block that gets here. The values are those given."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return values
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def refused(values: Any) -> Any:
    """Fail for the values above 6."""
    if np.max(values) > 6:
        raise ValueError("a value above 6")
    return values
