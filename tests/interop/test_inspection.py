"""``inspect_*`` says the same of every file, whoever wrote it. `turns` compares files of both writers."""

from __future__ import annotations

import shutil
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import icechunk
import pytest
import zarr
from tests.fixtures import fixture_folders
from tests.interop.both import LOGS, OPENED, Side, check_same_files, sides

import frazil

pytestmark = pytest.mark.interop

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.zip")))
def test_golden_repositories(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    check_same_files(*(side.open() for side in sides(tmp_path / "repo")))


@pytest.mark.parametrize("folder", fixture_folders("v2-*/*"), ids=lambda folder: folder.name)
def test_fixtures(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "repo", tmp_path / "repo")
    check_same_files(*(side.open() for side in sides(tmp_path / "repo")))


def test_a_lost_log_of_an_expired_snapshot_is_named(tmp_path: Path) -> None:
    ours, theirs = sides(tmp_path / "repo")
    repo = ours.create().repo
    lost = []
    for n in range(3):
        with repo.transaction("main", message=str(n)) as store:
            zarr.create_group(store, path=f"g{n}")
        lost.append(repo.lookup_branch("main"))
    repo.expire_snapshots(datetime.now(UTC))
    (tmp_path / "repo" / "transactions" / lost[0]).unlink()
    mine = repo.inspect_transaction_log(lost[2])
    assert mine == theirs.open().repo.inspect_transaction_log(lost[2])
    assert mine["synthetic_composite"]["missing_tx_logs"] == lost[:1]
    assert mine["synthetic_composite"]["merged_pruned_ancestor_tx_logs"] == lost[1:2]


@pytest.mark.parametrize("method", [*OPENED.values(), *LOGS.values()])
def test_what_is_missing(method: str, tmp_path: Path) -> None:
    """The reference says "retry later" of a snapshot that does not exist; Frazil says that."""
    raised = []
    for package in (frazil, icechunk):
        side = Side(package.__name__, package, tmp_path / package.__name__).create()
        with pytest.raises(package.IcechunkError) as error:
            getattr(side.repo, method)("ZZZZZZZZZZZZZZZZZZZ0")
        raised.append((type(error.value).__name__, str(error.value.kind)))
    of_storage = ("StorageError", "object-not-found")
    mine = of_storage if "manifest" in method else ("SnapshotNotFoundError", "snapshot-not-found")
    assert raised == [mine, of_storage]
