"""Both upgrade a copy of the same repository of spec version 1, and make the same of it."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import icechunk
import pytest
import zarr
from tests.fixtures import fixture_folders
from tests.interop.both import Side, check_same, sides, state_of

import frazil
from frazil.format.repo_info import RepoInfo

pytestmark = [pytest.mark.deep, pytest.mark.interop]

PACKAGES = (frazil, icechunk)
FIXTURES = [path for folder in fixture_folders("v1-*/*") for path in sorted(folder.glob("repo*"))]


def upgraded(package: Any, path: Path, copy: Path, **how: Any) -> Side:
    """A copy, upgraded by one of the two, opened by Frazil."""
    shutil.copytree(path, copy)
    repo = package.Repository.open(package.local_filesystem_storage(str(copy)))
    package.upgrade_icechunk_repository(repo, dry_run=True)
    assert not (copy / "repo").exists()
    package.upgrade_icechunk_repository(repo, dry_run=False, **how)
    return sides(copy)[0].open()


def all_of(side: Side) -> Any:
    """All that ``repo`` says but the time of the upgrade, and the names of all files."""
    info: RepoInfo = side.repo._info()
    ops = [info.ops.entry(row) for row in range(len(info.ops))]
    assert ops[0].versions == (1, 2)
    # `repo#0` is the lock file of local storages. Frazil updates `repo` once more than icechunk.
    files = sorted(
        str(file.relative_to(side.path))
        for file in side.path.rglob("*")
        if file.is_file() and file.name != "repo#0"
    )
    snapshots = sorted(map(str, (info.table.entry(row) for row in range(len(info.table)))))
    return {
        "refs": (info.branches, info.tags, info.deleted_tags),
        "snapshots": snapshots,
        "rest": (info.status, info.metadata, info.config, info.repo_before_updates, info.enabled_flags),
        "ops": ops[1:],
        "files": [name.partition(".")[0] if name.startswith("overwritten") else name for name in files],
    }


def check(path: Path, tmp_path: Path, **how: Any) -> Side:
    ours, theirs = (
        upgraded(package, path, tmp_path / f"by-{package.__name__}", **how) for package in PACKAGES
    )
    mine, wanted = all_of(ours), all_of(theirs)
    for part in wanted:
        assert mine[part] == wanted[part], part
    assert state_of(ours.repo) == state_of(sides(ours.path)[1].open().repo)
    return ours


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: "/".join(path.parts[-3:]))
def test_fixtures(path: Path, tmp_path: Path) -> None:
    check(path, tmp_path)


@pytest.mark.sample(4, 4)
@pytest.mark.parametrize("seed", range(6))
def test_random_histories(seed: int, tmp_path: Path) -> None:
    """Snapshots that only a tag leads to, refs on the first one, deleted tags, detached snapshots."""
    chance = random.Random(seed)
    ours, theirs = sides(tmp_path / "r", spec=1)
    repos = [ours.create(ours.config(inline_chunk_threshold_bytes=9)).repo, theirs.open().repo]
    ids = [repos[0].lookup_branch("main")]
    for number in range(14):
        repo = chance.choice(repos)
        session = repo.writable_session(chance.choice(sorted(repo.list_branches())))
        zarr.group(session.store, overwrite=False).attrs["n"] = number
        end = session.flush if chance.random() < 0.15 else session.commit
        ids.append(end(f"commit {number}", metadata={"n": number}))
        if chance.random() < 0.4:
            repo.create_branch(f"b{number}", chance.choice(ids))
        for name in "xy"[: chance.randrange(3)]:
            repo.create_tag(f"{name}{number}", chance.choice(ids))
        if chance.random() < 0.3 and repo.list_tags():
            repo.delete_tag(chance.choice(sorted(repo.list_tags())))
        if chance.random() < 0.3:
            repo.reset_branch(chance.choice(sorted(repo.list_branches())), chance.choice(ids))
    repos[0].save_config()
    done = check(ours.path, tmp_path, delete_unused_v1_files=seed % 2 == 0)
    assert not list(done.path.glob("refs/**/*.json")) or seed % 2
    seen = check_same(done, Side("icechunk", icechunk, done.path).open())
    assert seen["ops"][0]["kind"].startswith("RepoMigrated")
    with done.repo.transaction("main", message="and on it goes") as store:
        zarr.open_group(store).attrs["n"] = 100
    assert next(iter(sides(done.path)[1].open().repo.ancestry(branch="main"))).message == "and on it goes"
