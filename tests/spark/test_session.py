"""The local session."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.jobs import tasks

from frazil.errors import MissingExtraError, SessionStateError
from frazil.spark import OnSpark, get_spark, ready, settings
from frazil.spark.runtime import on_spark
from frazil.spark.runtime.jvm import ATTEMPTS, _defaults, _master, find_java_home
from frazil.spark.runtime.on_spark import configured_slots


def java_in(place: Path) -> Path:
    java = place / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(0o755)
    return place


def test_java_home_goes_first_then_path_then_usual_places(tmp_path: Path) -> None:
    named, on_path = java_in(tmp_path / "told"), java_in(tmp_path / "path")
    java_in(tmp_path / "usual" / "java-17")
    newest = java_in(tmp_path / "usual" / "java-21")
    usual = (str(tmp_path / "usual"),)
    path = str(on_path / "bin")
    assert find_java_home({"JAVA_HOME": str(named), "PATH": path}, usual) == named
    assert find_java_home({"JAVA_HOME": str(tmp_path / "gone"), "PATH": path}, usual) == on_path
    assert find_java_home({"PATH": str(tmp_path)}, usual) == newest
    with pytest.raises(SessionStateError, match="Java 17 or newer"):
        find_java_home({"PATH": str(tmp_path)}, ())


@pytest.mark.spark
def test_settings_arrive_and_the_environment_is_left_alone(spark: SparkSession) -> None:
    assert get_spark(cores=1) is spark
    assert ready(spark) == ()
    for name, value in settings("local").items():
        assert str(spark.conf.get(name)).endswith(value)  # Spark puts Java options of its own before ours
    assert spark.sparkContext.master == f"local[2,{ATTEMPTS}]"
    assert "PYTHONPATH" not in os.environ or os.environ["PYTHONPATH"].count("site-packages") == 0


@pytest.mark.spark
def test_large_messages_reach_the_tasks_of_their_slot(spark: SparkSession) -> None:
    """They travel as rows, three to a partition."""
    messages = [b"%d" % number * 300_000 for number in range(6)]
    assert list(OnSpark(spark, jobs=1, partitions=2).run(tasks.joined, messages, b"")) == messages


def test_the_environment_says_which_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert _defaults() == {}
    lines = "# comment", "spark.master   spark://file:7077", "spark.a=b = c", "", "spark.empty"
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    defaults = _defaults()
    assert (defaults["spark.master"], defaults["spark.a"]) == ("spark://file:7077", "b = c")
    # in the order of their rank, the lowest first
    environment: dict[str, str] = {}
    assert _master(environment, {}) is None
    for name, value, expected in [
        ("MASTER", "yarn", "spark://file:7077"),
        ("SPARK_MASTER", "spark://a:1", "spark://a:1"),
        ("PYSPARK_SUBMIT_ARGS", "--conf x=y --master 'k8s://b' pyspark-shell", "k8s://b"),
    ]:
        environment[name] = value
        assert _master(environment, defaults) == expected
    assert _master({"MASTER": "yarn"}, {}) == "yarn"


class Conf(dict[str, str]):
    """The configuration of a session, as far as it matters."""

    getAll = property(dict)  # noqa: N815

    def set(self, name: str, value: str) -> None:
        self[name] = value


def somebodys(version: str = "4.3.0", **conf: str) -> Any:
    names = {name.replace("__", "."): value for name, value in conf.items()}
    return type("Session", (), {"version": version, "conf": Conf(names)})()


def test_a_session_of_somebody_else_becomes_ready(caplog: pytest.LogCaptureFixture) -> None:
    session = somebodys(spark__master="local[8]", spark__sql__session__timeZone="Asia/Tokyo")
    caplog.set_level("WARNING", logger="frazil")  # the environment of the tests may filter warnings
    advice = ready(session)
    assert session.conf["spark.sql.execution.pyspark.udf.faulthandler.enabled"] == "true"
    assert session.conf["spark.sql.execution.arrow.pyspark.validateSchema.enabled"] == "true"
    assert session.conf["spark.sql.session.timeZone"] == "Asia/Tokyo"
    assert [sentence.split()[0] for sentence in advice] == [
        "Spark",
        "spark.python.unix.domain.socket.enabled",
    ]
    assert [record.message for record in caplog.records] == list(advice)
    caplog.clear()
    assert ready(session) == advice
    assert not caplog.records  # said once

    decided = somebodys(
        spark__sql__execution__pyspark__udf__faulthandler__enabled="false", **{"spark.task.maxFailures": "1"}
    )
    assert any("spark.task.maxFailures is 1" in sentence for sentence in ready(decided))
    assert decided.conf["spark.sql.execution.pyspark.udf.faulthandler.enabled"] == "false"
    assert ready(somebodys(spark__master="local[*, 4]", **settings("local"))) == ()


@pytest.mark.parametrize(
    ("session", "message"),
    [
        (somebodys("4.0.1"), "Spark must be 4.1 or newer for Frazil's jobs, got 4.0.1"),
        (
            somebodys(spark__sql__execution__arrow__maxRecordsPerBatch="0"),
            "spark.sql.execution.arrow.maxRecordsPerBatch must be above 0, got 0",
        ),
    ],
)
def test_a_session_that_cannot_work_is_refused(session: Any, message: str) -> None:
    with pytest.raises(SessionStateError, match=message) as caught:
        ready(session)
    assert caught.value.kind == "not-allowed"


DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}


@pytest.mark.parametrize(
    ("conf", "slots"),
    [
        ({"spark.master": "local[7,4]"}, 7),
        ({"spark.master": "local[*]"}, os.cpu_count()),
        ({"spark.master": "yarn"}, 1),
        ({"spark.executor.instances": "25", "spark.executor.cores": "8", "spark.task.cpus": "2"}, 100),
        ({**DYNAMIC, "spark.executor.instances": "9"}, 1),
        ({**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "50", "spark.executor.cores": "4"}, 200),
        (
            {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "2147483647"},
            1,
        ),
    ],
)
def test_the_slots_of_a_cluster_are_those_that_it_may_have(conf: dict[str, str], slots: int) -> None:
    assert configured_slots(conf) == slots


@pytest.mark.parametrize(("slots", "jobs"), [(2, 3), (50, 2), (100, 1)])
def test_a_spark_job_has_a_task_for_each_slot(
    slots: int, jobs: int, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two Spark jobs run at the same time: those of a third of the tasks leave slots idle."""
    engine, messages = OnSpark(spark), [bytes([number]) for number in range(90)]
    monkeypatch.setattr(OnSpark, "slots", slots)
    started: list[int] = []
    real = on_spark.partitioned

    def partitioned(session: SparkSession, rows: on_spark.Rows, limit: int) -> Any:
        started.append(len(rows))
        return real(session, rows, limit)

    monkeypatch.setattr(on_spark, "partitioned", partitioned)
    assert list(engine.run(tasks.joined, messages, b"")) == messages
    assert len(started) == jobs, started


def test_the_engine_sail_needs_a_process_without_a_jvm(spark: SparkSession) -> None:
    with pytest.raises(SessionStateError, match="without a session of Spark's JVM"):
        on_spark.sail_engine()


def test_the_engine_sail_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    monkeypatch.setitem(sys.modules, "pysail", None)
    with pytest.raises(
        MissingExtraError, match=r"the engine 'sail' needs pysail: pip install .*sail\]"
    ) as caught:
        on_spark.sail_engine()
    assert caught.value.extra == "sail"
