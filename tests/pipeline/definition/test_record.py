"""The definition that a run stores in its repository, for readers who have no file of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.pipeline.definition.feed import day, feed, is_up_to_date, objects, opened

import frazil
from frazil.pipeline import Exists, PipelineDerived, PipelineIngest, Range, validate
from frazil.pipeline.definition.record import record_of
from frazil.pipeline.publishing import operation as publishing


def records(folder: Path, snapshot_id: str | None = None) -> dict[str, Any]:
    """Return the records of a version, by default of the branch of readers, by their groups."""
    repo = opened(folder)
    session = repo.readonly_session(snapshot_id=snapshot_id or repo.lookup_branch("main"))
    root = zarr.open_group(session.store, mode="r")
    place = "/.frazil/pipeline"
    return {
        path.removesuffix(place): dict(node.attrs)
        for path, node in root.members(max_depth=None)
        if path.endswith(place)
    }


def test_a_stranger_reads_the_definition(tmp_path: Path) -> None:
    day(tmp_path, 0)
    pipeline = replace(feed(tmp_path), tag="feed-%Y", versions=9)
    pipeline.run()
    [record] = records(tmp_path).values()
    assert (record["version"], record["name"], record["owners"]) == (1, "feed", ["Ada"])
    assert (record["branch"], record["tag"], record["versions"]) == ("main", "feed-%Y", 9)
    [files] = record["ingest"]
    assert (files["files"], files["groups"], files["options"]["concat_dim"]) == (
        ["t2m_*.nc"],
        ["/weather"],
        "time",
    )
    daily, climatology = record["derived"]
    assert (daily["operation"], daily["sources"], daily["to"]) == ("coarsen", ["/weather/t2m"], "/daily")
    assert daily["arguments"]["factors"] == {"time": 4}
    assert climatology["sources"] == ["/daily/weather/t2m"]
    assert record["rules"] == [{"rule": "Range", "path": "/weather/t2m", "min": 180, "max": 340}]
    assert str(tmp_path) not in json.dumps(record)


def test_a_record_has_no_secrets_no_folders_and_is_json() -> None:
    urls = ["https://ada:secret@host/x_*.nc?sig=secret", "s3://bucket/day_*.nc", "file:///home/ada/y_*.nc"]
    ingest = PipelineIngest([*urls, "/home/ada/z_*.nc"], "/a", {"storage_options": {"key": "secret"}})
    rules = [Range("/a/t", min=float("-inf"), max=float(np.float32(0.1)))]
    derived = [PipelineDerived("coarsen", "/a/t", "/b", {"factors": {"x": 2}})]
    record = record_of("feed", [ingest], derived, rules, {"owners": ("Ada",), "days": float("inf")})
    text = json.dumps(record, allow_nan=False)
    assert record["ingest"][0]["files"][1:] == ["s3://bucket/day_*.nc", "y_*.nc", "z_*.nc"]
    assert "secret" not in text
    assert "home" not in text
    assert record["days"] == {"$": "number", "text": "inf"}


def test_each_version_has_the_definition_that_made_it(tmp_path: Path) -> None:
    day(tmp_path, 0)
    pipeline = feed(tmp_path)
    other = replace(pipeline, rules=(*pipeline.rules, Exists("/weather/t2m")))
    versions = [pipeline.run().snapshot_id]
    before = objects(tmp_path)
    assert other.run().outcome == "unchanged"  # new rules are checked with the next data
    assert objects(tmp_path) == before
    for number, each in enumerate((other, pipeline, pipeline), 1):
        day(tmp_path, number)
        versions.append(each.run().snapshot_id)
    rules = [len(records(tmp_path, version)["weather"]["rules"]) for version in versions]
    assert rules == [1, 2, 1, 1]
    messages = [each.message for each in opened(tmp_path).ancestry(branch="main")]
    assert sum("definition" in message for message in messages) == 3
    is_up_to_date(tmp_path, 0, 1, 2, 3)


def test_a_record_follows_the_first_table(tmp_path: Path) -> None:
    day(tmp_path, 0)
    day(tmp_path, 0, "rain")
    pipeline = feed(tmp_path)
    rain = PipelineIngest("rain_*.nc", "/rain", {"concat_dim": "time"})
    pipeline.run()
    assert list(records(tmp_path)) == ["weather"]
    replace(pipeline, ingest=(rain, *pipeline.ingest)).run()
    [(group, record)] = records(tmp_path).items()
    assert (group, len(record["ingest"])) == ("rain", 2)


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_second_pipeline_publishes_its_first_version_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec_version: int
) -> None:
    repo = frazil.Repository.create(str(tmp_path / "ice"), spec_version=spec_version)
    with repo.transaction("main", message="the root") as store:
        zarr.create_group(store)
    day(tmp_path, 0)
    day(tmp_path, 0, "rain")
    pipeline = feed(tmp_path)
    rain = replace(
        pipeline,
        name="rain",
        ingest=[PipelineIngest("rain_*.nc", "/rain", {"concat_dim": "time"})],
        derived=(),
        rules=(),
    )
    outcomes = list[str]()

    def late(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(publishing, "validate", validate)
        outcomes.append(rain.run().outcome)
        return validate(*args, **options)

    monkeypatch.setattr(publishing, "validate", late)
    assert pipeline.run().outcome == "published"
    assert outcomes == ["published", "unchanged"]  # the rules are checked again on its version
    assert sorted(records(tmp_path)) == ["rain", "weather"]
    is_up_to_date(tmp_path, 0)
