"""Programs in a Python where some packages are not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.program_runner import WARNINGS

#: Python imports this module when it starts: worker processes do, too.
_SITE = """\
import sys
for name in {packages!r}:
    sys.modules[name] = None
"""

#: Each program runs in a process that is forked from one that has imported nothing but the package itself.
_EACH = """\
import json, os, sys
import frazil
for packages, program in json.load(sys.stdin):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        continue
    sys.modules.update(dict.fromkeys(packages))
    try:
        exec(program, {})
        print("no error", flush=True)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(0)
"""


def _python(
    arguments: Sequence[str], place: Path, text: str, packages: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    site = place / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(_SITE.format(packages=tuple(packages)))
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    unset = ("ICECHUNK", "SPARK_REMOTE", "SPARK_MASTER")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(unset)}
    return subprocess.run(
        [sys.executable, *WARNINGS, *arguments],
        cwd=place,
        env=environment | {"PYTHONPATH": path},
        input=text,
        capture_output=True,
        text=True,
    )


def run(program: str, packages: Sequence[str], place: Path) -> subprocess.CompletedProcess[str]:
    """The end of a program that runs in ``place``, without ``packages``, as its worker processes do."""
    (place / "program.py").write_text(program)
    return _python(["program.py"], place, "", packages)


def errors(programs: Sequence[tuple[Sequence[str], str]], place: Path) -> list[str]:
    """The error that ends each of some ``(packages, program)``: its class and its text."""
    done = _python(["-c", _EACH], place, json.dumps(programs), ())
    assert done.stderr == ""
    return done.stdout.splitlines()
