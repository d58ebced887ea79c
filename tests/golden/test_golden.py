"""The golden repositories hold what the wheel that wrote them read in them (see PROVENANCE.md)."""

from __future__ import annotations

import asyncio
import json
import os
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zarr
from tests.expected import array_at, check_repository, check_snapshot, diff_text

import frazil
from frazil.credentials import LocalFileSystemAccess
from frazil.format.envelope import FileType, open_envelope

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.zip"))
MODIFIED = datetime(2026, 11, 1, 12, tzinfo=UTC).timestamp()


class Golden:
    """One golden repository, unpacked."""

    def __init__(self, name: str, folder: Path) -> None:
        with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
            archive.extractall(folder)
        self.folder = folder
        self.expected: dict[str, Any] = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        os.utime(folder / "virtual" / "data.bin", (MODIFIED, MODIFIED))

    @property
    def storage(self) -> frazil.Storage:
        return frazil.local_filesystem_storage(str(self.folder / "repo"))

    def opened(self) -> frazil.Repository:
        """With the container of relative locations where the files are now."""
        prefix = f"file://{self.folder}/virtual/"
        store = frazil.local_filesystem_store(str(self.folder / "virtual"))
        config = frazil.RepositoryConfig()
        config.set_virtual_chunk_container(frazil.VirtualChunkContainer(prefix, store, "golden"))
        return frazil.Repository.open(self.storage, config, {prefix: LocalFileSystemAccess})


def test_all_repositories_exist() -> None:
    assert NAMES == ["expired", "rectilinear", "split", "story", "virtual"]
    assert sum(path.stat().st_size for path in FOLDER.glob("*.zip")) < 300_000


@pytest.mark.parametrize("name", NAMES)
def test_the_repository(name: str, tmp_path: Path) -> None:
    golden = Golden(name, tmp_path)
    repo, expected = golden.opened(), golden.expected
    check_repository(repo, expected)
    for ref, wanted in expected["diffs"].items():
        chain = list(repo.ancestry(branch=ref.removeprefix("branch:")))
        diff = repo.diff(from_snapshot_id=chain[-1].id, to_snapshot_id=chain[0].id)
        assert diff_text(diff) == wanted
    with zarr.config.set({"array.rectilinear_chunks": True}):
        sessions = [repo.readonly_session(snapshot_id=id_) for id_ in expected["snapshots"]]
        assert sum(check_snapshot(each, expected["snapshots"][each.snapshot_id]) for each in sessions)
    assert [repo.lookup_snapshot(id_).id for id_ in expected["snapshots"]] == list(expected["snapshots"])


def test_the_saved_configuration(tmp_path: Path) -> None:
    saved = frazil.Repository.fetch_config(Golden("split", tmp_path).storage)
    assert saved is not None
    assert saved.inline_chunk_threshold_bytes == 24
    assert saved.manifest is not None
    assert saved.manifest.splitting is not None
    dims = frazil.ManifestSplitDimCondition
    rules: dict[Any, Any] = {
        frazil.ManifestSplitCondition.name_matches("^/big$"): {dims.DimensionName("t"): 3, dims.Axis(1): 2},
        frazil.ManifestSplitCondition.AnyArray(): {dims.Any(): 4},
    }
    assert saved.manifest.splitting == frazil.ManifestSplittingConfig.from_dict(rules)


def test_locations_were_compressed_with_a_dictionary(tmp_path: Path) -> None:
    """And what points to one object 1,200 times reads from where that is now."""
    golden = Golden("virtual", tmp_path)
    files = sorted((golden.folder / "repo" / "manifests").iterdir())
    bodies = [bytes(open_envelope(file.read_bytes(), FileType.MANIFEST)[1]) for file in files]
    assert len(files) == 2
    assert all(body.count(b"station-") < 100 for body in bodies)
    session = golden.opened().readonly_session("main")
    locations = session.all_virtual_chunk_locations()
    assert len(locations) == 2400
    assert "s3://golden/year=2019/station-029.nc" in locations
    assert f"file://{golden.folder}/virtual/data.bin" in locations
    content = (golden.folder / "virtual" / "data.bin").read_bytes()
    assert bytes(array_at(session, "/rel")[:75].tolist()) == content
    assert asyncio.run(_count(session)) == 1200


async def _count(session: frazil.Session) -> int:
    return len([at async for at in session.chunk_coordinates("/many")])
