"""Compaction by tasks does what compaction in one process does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import zarr
from pyspark.sql import SparkSession
from tests.maintenance.compaction.test_operation import CONFIG, LIMITS, read, small_files

import frazil
from frazil.pipeline import (
    Inline,
    Local,
    Progress,
    RepositoryPart,
    clone_repository,
    compact,
    export_zarr,
)
from frazil.spark import OnSpark


@pytest.mark.sample(1)
@pytest.mark.parametrize("engine", [Inline(), Local(2)])
def test_the_same_as_in_one_process(engine: object, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    repo = small_files(frazil.local_filesystem_storage(str(tmp_path)))
    values = read(repo)
    plan = compact(repo, "merge", branch="main", limits=LIMITS, dry_run=True, engine=engine)
    with Progress("compact", 0, sys.stdout) as bar:
        report = compact(repo, "merge", branch="main", limits=LIMITS, engine=engine, progress=bar)
    assert (len(plan.files), plan.bytes_moved) == (len(report.files), report.bytes_moved) == (8, 2048)
    assert "compact 100%" in capsys.readouterr().out
    repo = frazil.Repository.open(repo.storage, CONFIG)
    assert read(repo) == values
    assert repo.upkeep.verify("checksum").ok
    assert repo.upkeep.compact("merge", branch="main", limits=LIMITS).is_empty


@pytest.mark.deep
@pytest.mark.spark
def test_compaction_clones_and_exports_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    repo = small_files(frazil.local_filesystem_storage(str(tmp_path / "repo")))
    values, engine = read(repo), OnSpark(spark)
    assert compact(repo, "merge", branch="main", limits=LIMITS, engine=engine).new_files == 1
    clone = frazil.local_filesystem_storage(str(tmp_path / "clone"))
    clone_repository(repo, clone, part=RepositoryPart(newest_only=True), engine=engine)
    export_zarr(repo, frazil.local_filesystem_storage(str(tmp_path / "plain")), engine=engine)
    assert read(repo) == read(frazil.Repository.open(clone)) == values
    assert zarr.open_array(str(tmp_path / "plain" / "t"), mode="r")[:, 0].tolist() == values
    assert frazil.Repository.open(clone).upkeep.verify("checksum").ok
