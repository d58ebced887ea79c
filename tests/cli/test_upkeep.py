"""Every command that looks after a repository, or moves data; ``--dry-run`` writes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zarr

import frazil


def messages(repo: frazil.Repository) -> list[str]:
    return [each.message for each in repo.ancestry(branch="main")]


def test_expire(repo: frazil.Repository, run: Any) -> None:
    repo.delete_tag("v2")
    plan = json.loads(run("expire ice --last 1 --dry-run --json"))
    assert [row["message"] for row in plan["removed"]] == ["Correct the first step"]
    assert "Remove 1 version from the history?" in run("expire ice --last 1", status=3)
    assert len(messages(repo)) == 4
    assert "removed 1 version; 4 versions" in run("expire ice --last 1 --yes")
    assert messages(repo) == ["Rename the title", "Create the arrays", "Repository initialized"]
    assert run("expire ice --newer-than 1d").startswith("removed 0 versions")  # nothing is lost: no question
    assert "name a rule" in run("expire ice", status=2)


def test_gc(repo: frazil.Repository, run: Any) -> None:
    with repo.transaction("dev", message="large") as store:
        array = zarr.create_array(store, name="large", shape=(4000,), dtype="f8", compressors=None)
        array[:] = range(4000)
    repo.delete_branch("dev")
    repo.upkeep.retain(frazil.Retention(last=1))
    plan = json.loads(run("collect ice --older-than 0s --dry-run --json"))
    chunks = [row["key"] for row in plan["files"] if row["key"].startswith("chunks/")]
    assert len(chunks) == 1
    assert chunks[0] in run("collect ice --older-than 0s --dry-run")
    assert f"Delete {len(plan['files'])} files" in run("collect ice --older-than 0s", status=3)
    assert repo.storage.head(chunks[0]) is not None
    assert "1 chunks" in run("collect ice --older-than 0s -y")
    assert repo.storage.head(chunks[0]) is None
    assert "--older-than" in run("collect ice", status=2)
    assert run("collect ice --older-than 1d") == "deleted nothing (0 B)\n"


def test_lease(repo: frazil.Repository, run: Any, tmp_path: Path) -> None:
    assert run("lease ice") == "no leases\n"
    fork = repo.writable_session("main", name="import").fork()
    assert "fork `import`" in (line := run("lease ice"))
    assert f"process {os.getpid()} runs" in line
    assert run("lease ice --stale") == "no stale leases\n"
    (lease,) = repo.upkeep.leases()
    assert lease.running
    assert "A collection may then delete" in run(f"lease ice --end {lease.id}", status=3)
    assert repo.upkeep.leases() == [lease]
    assert "not-allowed" in run("lease ice --end nobody", status=1)
    assert json.loads(run(f"lease ice --end {lease.id} --yes --json")) == {"ended": [lease.id]}
    assert repo.upkeep.leases() == []
    assert fork.fork is not None


_KILLED = """
import os, sys, frazil
repo = frazil.Repository.open(frazil.local_filesystem_storage("ice"))
fork = repo.writable_session("main", name="killed").fork()
os._exit(0)
"""


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="the system does not name its processes")
def test_a_lease_of_a_process_that_has_ended(repo: frazil.Repository, run: Any) -> None:
    subprocess.run([sys.executable, "-c", _KILLED], check=True)
    (lease,) = repo.upkeep.leases()
    assert lease.is_stale
    assert json.loads(run("lease ice --json"))[0]["stale"]
    assert "stale" in run("status ice")
    assert [each.check for each in repo.upkeep.doctor().findings] == ["stale-lease"]
    # The same content from another machine, and the lease of a job that can be continued, are not stale.
    content = json.loads(bytes(repo.storage.get(f"leases/{lease.id}")))
    repo.storage.put("leases/elsewhere", json.dumps({**content, "machine": "another"}).encode())
    repo.storage.put("leases/job.monday", json.dumps(content).encode())
    assert run("lease ice --stale") == "ended 1 lease\n"
    assert {each.id: each.running for each in repo.upkeep.leases()} == {
        "elsewhere": None,
        "job.monday": False,
    }


def test_compact(repo: frazil.Repository, run: Any) -> None:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    config.packing = frazil.PackingConfig(enabled=False)
    with repo.reopen(config).transaction("main", message="small files") as store:
        zarr.create_array(store, name="s", shape=(16,), chunks=(1,), dtype="i4", compressors=None)[:] = 7
    assert "would write 16 chunk files to 1" in run("compact ice --dry-run")
    report = json.loads(run("compact ice -m Packs --json"))
    assert (report["files"], report["new_files"]) == (16, 1)
    assert messages(repo)[0] == "Packs"
    assert run("compact ice") == "nothing to do\n"


def test_forget(repo: frazil.Repository, run: Any) -> None:
    assert "pass --all-versions" in run("forget ice:era5/t 0", status=2)
    plan = json.loads(run("forget ice:era5/t 0:2 time=3 --dry-run --json"))
    assert plan["what"] == ["/era5/t[0:2]", "/era5/t[3,:]"]
    assert (plan["branches"], plan["tags"], len(plan["versions"])) == (["dev", "main"], ["v1", "v2"], 4)
    tip = repo.lookup_branch("main")
    assert "4 versions" in run("forget ice:era5/t 0:2 time=3 --all-versions", status=3)
    assert repo.lookup_branch("main") == tip
    (certificate,) = json.loads(run("forget ice:era5/t 0:2 time=3 --all-versions -y --json"))
    assert certificate["snapshots"][tip] == repo.lookup_branch("main")
    assert certificate["left"] == []
    assert frazil.read(repo.readonly_session(tag="v1"), "era5/t").tolist() == [
        *[[0, 0, 0]] * 2,
        [6, 7, 8],
        [0, 0, 0],
    ]
    lines = run("forget ice --check")
    assert f"{tip} -> {repo.lookup_branch('main')}" in lines
    assert "no stored byte is left" in lines
    assert "no version has a group or array at `/none`" in run("forget ice:none --dry-run", status=1)


def test_hold(repo: frazil.Repository, run: Any) -> None:
    def rows() -> list[list[float]]:
        return frazil.read(repo.readonly_session("main"), "era5/t").tolist()  # type: ignore[no-any-return]

    before, tip = rows(), repo.lookup_branch("main")
    assert run("hold ice") == "no hold-backs\n"
    assert "pass --until and --name" in run("hold ice:era5/t 0:2 --until 2199-06-01", status=2)
    command = "hold ice:era5/t 0:2 time=3 --until 2199-06-01 --name season"
    plan = json.loads(run(f"{command} --dry-run --json"))["hold"]
    assert (plan["what"], plan["chunks"]) == (["/era5/t[0:2]", "/era5/t[3,:]"], 3)
    assert plan["visible"] == ["branch `dev`", "tag `v1`", "tag `v2`"]
    assert (repo.lookup_branch("main"), rows()) == (tip, before)
    lines = run(f"{command} --author Ada").splitlines()
    assert lines[0].endswith("Hold back /era5/t[0:2], /era5/t[3,:]")
    assert "tag `v2` shows the data" in lines
    assert repo.lookup_snapshot(repo.lookup_branch("main")).metadata["author"] == "Ada"
    assert rows() == [[0, 0, 0], [0, 0, 0], before[2], [0, 0, 0]]
    assert run("hold ice") == "season  main  2199-06-01 00:00:00  /era5/t[0:2], /era5/t[3,:]\n"
    (document,) = json.loads(run("hold ice --json"))
    assert (document["tag"], document["until"]) == ("hold.season.1", "2199-06-01T00:00:00Z")
    run("set ice:era5/t 1,1 55")
    error = run("hold ice --end season", status=1)
    assert "both sides changed 1 element in 1 of 1 chunk differently: [1, 1]" in error
    assert "--conflicts keep keeps what others have written there, --conflicts restore replaces it" in error
    run("hold ice --end season --conflicts keep --dry-run")
    assert rows()[1] == [0, 55, 0]
    assert "Replace what others have written" in run("hold ice --end season --conflicts restore", status=3)
    assert "End the hold-back season" in run("hold ice --end season --conflicts restore -y")
    assert rows() == before
    assert "the repository has no hold-back `season`" in run("hold ice --end season", status=1)
    assert "Did you mean `hold`?" in run("embargo ice", status=2)


def test_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    monkeypatch.chdir(tmp_path)
    run("init old --spec-version 1")
    run("upgrade old --dry-run")
    assert "Upgrade to spec version 2?" in run("upgrade old", status=3)
    assert frazil.Repository.fetch_spec_version(frazil.local_filesystem_storage("old")) == 1


Run = Callable[..., str]


@pytest.mark.deep
def test_exports(own: Path, run: Run) -> None:
    pytest.importorskip("xarray")
    assert run("export ice plain.zarr --dry-run").startswith("would write 2 arrays, 5 chunks (")
    assert not (own / "plain.zarr").exists()
    run("export ice@dev:era5 part.zarr")
    assert sorted(zarr.open_group(str(own / "part.zarr"), path="era5", mode="r")) == ["p", "t", "time"]
    run("export ice@v1 plain.zarr.zip")
    assert "--overwrite" in run("export ice plain.zarr.zip", status=1)
    assert "local file" in run("export ice s3://bucket/plain.zip", status=1)
    run("export ice:era5 era5.nc")
    assert "--overwrite" in run("export ice:era5 era5.nc", status=1)
    run("export ice:era5 era5.nc --overwrite")


def test_ingest_and_import(own: Path, run: Run) -> None:
    xr = pytest.importorskip("xarray")
    xr.Dataset({"a": ("x", [1.0, 2.0])}, {"x": [0, 1]}).to_netcdf("a.nc", engine="scipy")
    assert "+ array /a  1 chunk\n" in run("ingest a.nc new --dry-run")
    assert not (own / "new").exists()
    assert "  * a (x: 2) >f8" in run("ingest a.nc new --inspect").splitlines()
    run("init empty --dry-run")
    assert not (own / "empty").exists()
    assert "`frazil ingest a.nc REPOSITORY` writes the data" in run("import a.nc new", 2)
    run("ingest a.nc new")
    assert "nothing to do" in run("ingest a.nc new --dry-run")
    assert run("tree new").splitlines() == ["/", "├── a  float64 (x: 2)", "└── x  int32 (x: 2)"]
    assert ".frazil" in run("tree new --all")
    assert ".frazil/" in run("ls new -a")
    assert ".frazil" not in run("ls new")
    assert "job      ingest" in run("show new")
