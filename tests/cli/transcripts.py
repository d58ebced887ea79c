"""Transcripts of the pages about the command line: they run again, with a fixed clock and fixed ids.

A line ``$ frazil ...`` of a block ``console`` has its output below, and ``# exit status N`` unless N is 0.
``python -m tests.cli.transcripts`` writes the output of all pages anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shlex
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from frazil.cli.main import main
from frazil.host import Host, replace_host

_CHECKOUT = Path(__file__).parents[2]
PAGES = tuple(
    _CHECKOUT / name for name in ("docs/command-line.md", "docs/command-data.md", "scripts/site/commands.md")
)
#: The page about data imports this repository from the folder `old`.
_OLD = _CHECKOUT / "examples" / "how_to" / "old_repository.zip"
_BLOCK = re.compile(r"```(python|console)\n(.*?)```", re.DOTALL)
_START_US = 1_793_491_200_000_000  # 2026-11-01


class FixedHost(Host):
    """A clock that goes on by a minute at each look, and the same random numbers each time."""

    def __init__(self) -> None:
        self.looks = 0
        self.draws = 0

    def time_us(self) -> int:
        self.looks += 1
        return _START_US + self.looks * 60_000_000

    def random_bytes(self, count: int) -> bytes:
        self.draws += 1
        return hashlib.sha256(str(self.draws).encode()).digest()[:count]


def replayed(text: str) -> str:
    """The text of a page with the output of each command as it is now. Run it in an empty folder."""
    parts = []
    end = 0
    names = {"__name__": "page"}
    zipfile.ZipFile(_OLD).extractall("old")
    with replace_host(FixedHost()):
        for block in _BLOCK.finditer(text):
            if block[1] == "python":
                exec(compile(block[2], "page", "exec"), names)
                continue
            parts += [text[end : block.start(2)], *_outputs(block[2])]
            end = block.end(2)
    return "".join((*parts, text[end:]))


def _outputs(block: str) -> Iterator[str]:
    for line in block.splitlines():
        if line.startswith("$ "):
            yield f"{line}\n{output_of(line)}"


def output_of(line: str) -> str:
    """The output and the errors of one command, and its exit status if it is not 0."""
    command, *arguments = shlex.split(line.removeprefix("$ "), comments=True)
    assert command == "frazil", line
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = main(arguments)
    text = output.getvalue().replace(os.getcwd(), "/data")
    return text + (f"# exit status {status}\n" if status else "")


def update() -> None:
    """Write the pages anew."""
    os.environ["COLUMNS"] = "110"
    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            os.environ["FRAZIL_PROFILES"] = str(Path(folder) / "none.toml")
            text = replayed(page.read_text())
        page.write_text(text)


if __name__ == "__main__":
    update()
