"""The command, as a module of the package."""

from __future__ import annotations

import subprocess
import sys

from tests.support.patience import patience

import frazil


def test_the_package_is_the_command() -> None:
    texts = [
        subprocess.run(
            [sys.executable, "-m", module, "--version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=patience(60),
        ).stdout
        for module in ("frazil", "frazil.cli")
    ]
    assert texts[0] == texts[1]
    assert frazil.__version__ in texts[0]
