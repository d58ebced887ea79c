"""Repositories written by every generation of the reference, kept outside this project.

They are looked for where ``FRAZIL_FIXTURES`` points, else in ``../shared/fixtures`` beside the
repository. A test that needs one skips without it, and says so.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
BESIDE = REPOSITORY.parent / "shared" / "fixtures"


def fixtures_root() -> Path | None:
    """The folder of fixtures, or None. A ``FRAZIL_FIXTURES`` that names no folder is an error."""
    named = os.environ.get("FRAZIL_FIXTURES")
    if named is None:
        return BESIDE if BESIDE.is_dir() else None
    if not Path(named).is_dir():
        raise NotADirectoryError(f"FRAZIL_FIXTURES: expected a folder, found {named!r}")
    return Path(named)


def fixture_path(*parts: str) -> Path:
    """A file or folder among the fixtures: ``fixture_path("v2-2.3.0", "basic", "repo")``.

    Skips the test that calls it if there are no fixtures here; a missing part is a failure.
    """
    root = fixtures_root()
    if root is None:
        pytest.skip("no fixtures: FRAZIL_FIXTURES is not set, and there is no ../shared/fixtures")
    path = root.joinpath(*parts)
    assert path.exists(), f"the fixtures are here, but not {'/'.join(parts)}"
    return path


def fixture_folders(pattern: str) -> list[Path]:
    """Folders that match, for ``parametrize``: ``fixture_folders("v2-*/*")``. Empty without fixtures."""
    root = fixtures_root()
    return sorted(path for path in root.glob(pattern) if path.is_dir()) if root else []


#: Where the virtual chunks of the fixtures were, on the machine that wrote them.
ORIGINAL_FILES = "/srv/icechunk-fixtures/"


def hide_original_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read virtual chunks from the copy of a test, also on a machine that has the original files.

    Frazil looks for a local file at its location first, and below the container's folder second.
    """
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: not _is_original(path) and exists(path))


def _is_original(path: object) -> bool:
    return isinstance(path, str) and path.startswith(ORIGINAL_FILES)
