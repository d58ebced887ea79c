"""The same work on a standalone cluster and through Spark Connect, on files and on an object store.

On files each case loses an executor in the middle (through Connect, a worker). It makes the commits that it
should, with the right data. The cases are in ``cases``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from tests.spark.cases import CASES
from tests.spark.driver import Case, Driver, describe, driver
from tests.spark.reference import same_by_reference

import frazil
from frazil.testing import servers
from frazil.testing.servers import RunningServer
from frazil.testing.spark_cluster import SparkCluster, spark_cluster

pytestmark = pytest.mark.interop

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with spark_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def on_cluster(cluster: SparkCluster) -> Iterator[Driver]:
    with driver(cluster.environment, "executor") as started:
        assert started.call(describe) == (pyspark.__version__, "pyspark.sql.session")
        yield started


@pytest.fixture(scope="module")
def connected() -> Iterator[Driver]:
    # SPARK_TESTING: any free port instead of 15002
    with driver({"SPARK_REMOTE": "local[2,4]", "SPARK_TESTING": "1"}, "worker") as started:
        assert started.call(describe) == (pyspark.__version__, "pyspark.sql.connect.session")
        yield started


@pytest.fixture(scope="module")
def s3() -> Iterator[RunningServer]:
    with servers.ceph() if servers.ceph_is_installed() else servers.ministack() as server:
        yield server


def on_files(where: Driver, case: Case, directory: Path) -> None:
    path = directory / "repo"
    storage = frazil.local_filesystem_storage(str(path))
    repo = frazil.Repository.create(storage)
    case.check(repo, where.run(case, storage, directory))
    assert len(list(repo.ancestry(branch="main"))) == 1 + case.commits
    assert (directory / "marks" / "second").exists()  # it was lost
    same_by_reference(path)


@pytest.mark.cluster
@each_case
def test_cluster(on_cluster: Driver, cluster: SparkCluster, case: Case, tmp_path: Path) -> None:
    before = cluster.executors(at_least=2)
    on_files(on_cluster, case, tmp_path)
    assert not before.keys() <= cluster.executors().keys()


@pytest.mark.cluster
@each_case
def test_cluster_and_object_store(on_cluster: Driver, s3: RunningServer, case: Case, tmp_path: Path) -> None:
    bucket = f"b{os.urandom(6).hex()}"
    s3.make_bucket(bucket)
    storage = s3.storage(bucket, "repo")
    repo = frazil.Repository.create(storage)
    case.check(repo, on_cluster.run(case, storage, tmp_path, losing=False))
    assert len(list(repo.ancestry(branch="main"))) == 1 + case.commits
    same_by_reference((s3, bucket), repo)


@pytest.mark.connect
@each_case
def test_connect(connected: Driver, case: Case, tmp_path: Path) -> None:
    on_files(connected, case, tmp_path)
