"""Each rule for written files reports a repository that breaks it, and no right one."""

from __future__ import annotations

from pathlib import Path

import icechunk_kit.cases  # noqa: F401 - registers lines
import pytest
from icechunk_kit.cases.repositories import Builder
from icechunk_kit.checks import RULES, check

#: Two commits. The second one moves nodes. The time in the name of the backup is that of the first commit.
BACKUP = "repo.30736454400000.ZZZZZZZZZZZZZZZZZZZ0"
GRID = "4,4/2,2 0,0=00 0,1=01 1,0=10 1,1=11 split=[[(0,1),(0,2)],[(1,2),(0,2)]]"
RIGHT = f"""
snapshot one: /a 4/2 0=0102 1=native:0304; /b {GRID}; /f
forget updates
tag one v w
branch one dev
update BranchCreatedUpdate name=dev
write
copy repo overwritten/{BACKUP}
"""
LAST = f"""snapshot two 'metadata={{"a": 1, "b": 2}}': /a 4/2 0=0506 1=native:0304 'attributes={{"x": 1}}'; \
/c {GRID} origin=/b; /d 4/2 0=01 1=02; /e; /g origin=/f"""
DETAILS = [f"edit Repo latest_updates.1 backup_path={BACKUP}", 'edit Repo . \'deleted_tags=["x", "y"]\'']
ROWS = [line.split(" | ") for line in (Path(__file__).parent / "broken.txt").read_text().splitlines()[2:]]


def build(folder: Path, change: str = "") -> list[str]:
    """Write the repository with a change, and return what breaks a rule."""
    builder = Builder(folder, "2.0")
    for line in RIGHT.strip().splitlines():
        builder.perform(line)
    builder.perform(LAST, DETAILS if change[:1] in ("", "+") else [*DETAILS, change])
    builder.perform("write", [])
    if change.startswith("+ "):
        builder.perform(change[2:])
    return check(folder, RULES)


def test_a_right_repository_breaks_no_rule(tmp_path: Path) -> None:
    assert build(tmp_path) == []


def test_each_rule_has_a_repository_that_breaks_it() -> None:
    assert [name for name, _ in ROWS] == list(RULES)


@pytest.mark.parametrize(("name", "change"), ROWS)
def test_a_rule_reports_a_repository_that_breaks_it(name: str, change: str, tmp_path: Path) -> None:
    assert any(text.startswith(f"{name}: ") for text in build(tmp_path, change))
