"""What a command imports before it prints: every package costs time at each start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.patience import patience

#: Packages and rooms that the help and the history do not need.
UNNEEDED = (
    *("asyncio", "email", "obstore", "pyspark", "ssl", "urllib.request", "xarray", "yaml", "zarr"),
    *("frazil.chunks", "frazil.jobs", "frazil.maintenance", "frazil.repository.session"),
    "frazil.handle",
)

PROGRAM = """
import sys
from frazil.cli.main import main

main(["--help"])
help_alone = set(sys.modules)
main(["log", "ice"])
main(["refs", "ice"])
print("HELP", *sorted(help_alone & set(sys.argv[1:])))
print("LOG", *sorted(set(sys.modules) & set(sys.argv[1:])))
for words in ("status ice", "ops ice", "ls ice", "tree ice", "show ice", "du ice", "info ice"):
    main(words.split())
packages = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
print("LOOK", *sorted(name for name in packages if not name.startswith("_")))
print("LOADED", *sorted({"asyncio", "ssl", "sqlite3", "yaml"} & set(sys.modules)))
"""


def test_help_and_history_import_little(beside: Path) -> None:
    arguments = [sys.executable, "-c", PROGRAM, "numpy", *UNNEEDED]
    run = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=patience(60))
    assert "Rename the title" in run.stdout
    words = ("HELP", "LOG", "LOOK", "LOADED")
    lines = [line for line in run.stdout.splitlines() if line.startswith(words)]
    assert lines == ["HELP", "LOG numpy", "LOOK click frazil google_crc32c numpy zstandard", "LOADED"]
