"""The same work on a standalone cluster and through Spark Connect, on files and on an object store.

On files each case loses an executor in the middle (through Connect, a worker). It makes the commits that it
should, with the right data. The cases are in ``cases``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
import pytest
from tests.spark import column_types
from tests.spark.cases import CASES, batches_are_published, pipelines
from tests.spark.driver import Case, Driver, describe, driver
from tests.support import ceph, servers
from tests.support.judge import same_by_reference
from tests.support.patience import patience
from tests.support.servers import RunningServer

import frazil
from frazil.testing.spark_cluster import HOSTS, SparkCluster, spark_cluster

pytestmark = pytest.mark.interop

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with spark_cluster() as running:
        yield running
        left = [*running.workers.values(), *running.executors()]
    assert not any(is_alive(pid) for pid in left)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def on_cluster(cluster: SparkCluster) -> Iterator[Driver]:
    with driver(cluster.environment, "executor") as started:
        assert started.call(describe) == (pyspark.__version__, "pyspark.sql.session", ())
        yield started


@pytest.fixture(scope="module")
def connected() -> Iterator[Driver]:
    # SPARK_TESTING: any free port instead of 15002
    with driver({"SPARK_REMOTE": "local[2,4]", "SPARK_TESTING": "1"}, "worker") as started:
        assert started.call(describe) == (pyspark.__version__, "pyspark.sql.connect.session", ())
        yield started


@pytest.fixture(scope="module")
def s3() -> Iterator[RunningServer]:
    with servers.ceph() if ceph.is_installed() else servers.ministack() as server:
        yield server


def on_files(where: Driver, case: Case, directory: Path) -> None:
    path = directory / "repo"
    storage = frazil.local_filesystem_storage(str(path))
    repo = frazil.Repository.create(storage)
    case.check(repo, where.run(case, storage, directory))
    assert len(list(repo.ancestry(branch="main"))) == 1 + case.commits
    assert (directory / "marks" / "second").exists()  # it was lost
    same_by_reference(path)


@pytest.mark.sample(1, 1)
@pytest.mark.cluster
@each_case
def test_cluster(on_cluster: Driver, cluster: SparkCluster, case: Case, tmp_path: Path) -> None:
    before = cluster.executors(at_least=2, seconds=patience(60))
    on_files(on_cluster, case, tmp_path)
    assert not before.keys() <= cluster.executors().keys()


@pytest.mark.sample(1, 1)
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


@pytest.mark.cluster
def test_a_host_is_lost(on_cluster: Driver, cluster: SparkCluster, tmp_path: Path) -> None:
    """The last test of the cluster: its worker does not come back."""
    case = next(each for each in CASES if each.name == "write_blocks")
    path = tmp_path / "repo"
    storage = frazil.local_filesystem_storage(str(path))
    repo = frazil.Repository.create(storage)
    before = cluster.executors(at_least=2, seconds=patience(60))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(on_cluster.run, case, storage, tmp_path, losing=False)
        while not running.done() and not any((path / "chunks").glob("*")):
            time.sleep(0.01)
        cluster.kill_worker(HOSTS[1])
        case.check(repo, running.result())
    assert len(list(repo.ancestry(branch="main"))) == 1 + case.commits
    # what is left goes on, and replaces an executor that it loses
    lost = cluster.kill_executor()
    assert lost in before
    case = next(each for each in CASES if each.name == "job")
    again = tmp_path / "again"
    again.mkdir()
    case.check(repo, on_cluster.run(case, storage, again, losing=False))
    assert set(cluster.executors().values()) == {cluster.workers[HOSTS[0]]}
    same_by_reference(path)


@pytest.mark.sample(1, 1)
@pytest.mark.connect
@each_case
def test_connect(connected: Driver, case: Case, tmp_path: Path) -> None:
    on_files(connected, case, tmp_path)


@pytest.mark.weekly  # each change has the same table on a classic session
@pytest.mark.connect
def test_values_come_back_through_connect(connected: Driver, tmp_path: Path) -> None:
    storage = frazil.local_filesystem_storage(str(tmp_path / "repo"))
    frazil.Repository.create(storage)
    case = Case("types", column_types.differences, lambda repo, found: None)
    assert connected.run(case, storage, tmp_path, losing=False) == {}


@pytest.mark.weekly
@pytest.mark.connect
def test_pipelines_of_batches_through_connect(connected: Driver, tmp_path: Path) -> None:
    """Their functions run in a process of the server."""
    path = tmp_path / "repo"
    storage = frazil.local_filesystem_storage(str(path))
    repo = frazil.Repository.create(storage)
    case = Case("pipelines", pipelines, lambda repo, _: batches_are_published(repo))
    case.check(repo, connected.run(case, storage, tmp_path, losing=False))
    same_by_reference(path)
