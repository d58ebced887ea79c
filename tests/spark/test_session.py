"""The local session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from frazil.errors import SessionStateError
from frazil.spark import get_spark, settings
from frazil.spark.session import ATTEMPTS, find_java_home


def java_in(place: Path) -> Path:
    java = place / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(0o755)
    return place


def test_java_home_goes_first_then_path_then_usual_places(tmp_path: Path) -> None:
    told, on_path = java_in(tmp_path / "told"), java_in(tmp_path / "path")
    java_in(tmp_path / "usual" / "java-17")
    newest = java_in(tmp_path / "usual" / "java-21")
    usual = (str(tmp_path / "usual"),)
    path = str(on_path / "bin")
    assert find_java_home({"JAVA_HOME": str(told), "PATH": path}, usual) == told
    assert find_java_home({"JAVA_HOME": str(tmp_path / "gone"), "PATH": path}, usual) == on_path
    assert find_java_home({"PATH": str(tmp_path)}, usual) == newest
    with pytest.raises(SessionStateError, match="Java 17 or newer"):
        find_java_home({"PATH": str(tmp_path)}, ())


@pytest.mark.spark
def test_an_active_session_is_taken_as_it_is(spark: SparkSession) -> None:
    assert get_spark(cores=1) is spark


@pytest.mark.spark
def test_settings_arrive_and_the_environment_is_left_alone(spark: SparkSession) -> None:
    for name, value in settings("local").items():
        assert str(spark.conf.get(name)).endswith(value)  # Spark puts Java options of its own before ours
    assert spark.sparkContext.master == f"local[2,{ATTEMPTS}]"
    assert "PYTHONPATH" not in os.environ or os.environ["PYTHONPATH"].count("site-packages") == 0
