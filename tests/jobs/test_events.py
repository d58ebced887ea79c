"""Events of runs: an event log that engines of SQL read, and the client of OpenLineage."""

from __future__ import annotations

import importlib
import json
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
import zarr
from tests.jobs.killed import counting

import frazil
import frazil.jobs
import frazil.pipeline as ops
from frazil import StorageError, storage_from_url
from frazil.cli.main import main
from frazil.extras import install_command
from frazil.jobs import events
from frazil.storage.base import storage_label

ENGINE = ops.Inline()
SECRETS = ("AKIAXYZ", "hunter2", "sig-of-a-url")


@pytest.fixture
def repo(tmp_path: Path) -> frazil.Repository:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "repo")))
    with repo.transaction("main", message="a row") as store:
        zarr.create_array(store, name="t", data=np.arange(4.0), dimension_names=["x"])
    return repo


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place that the variable names."""
    monkeypatch.setenv("FRAZIL_EVENTS", str(tmp_path / "log"))
    return tmp_path / "log"


def runs(log: Path) -> list[list[dict[str, Any]]]:
    """The events of each run, the oldest run first."""
    files = [[json.loads(line) for line in path.read_text().splitlines()] for path in log.rglob("*.jsonl")]
    return sorted(files, key=lambda lines: str(lines[0]["eventTime"]))


def facet_of(event: dict[str, Any]) -> dict[str, Any]:
    facet: dict[str, Any] = event["run"]["facets"]["frazil_run"]
    return facet


def failing(fork: frazil.ForkSession, shared: Any, item: Any, error: BaseException) -> ops.Outcome:
    raise error


def job_with(repo: frazil.Repository, error: BaseException, **more: Any) -> ops.Job:
    def prepare(session: frazil.Session) -> ops.Tasks:
        zarr.create_array(session.store, name="broken", shape=(4,), chunks=(2,), dtype="i4")
        return ops.Tasks([0, 2])

    return ops.Job("breaks", ops.Target(repo), prepare, partial(failing, error=error), **more)


# ---- the last event of a run ------------------------------------------------------------------------


def test_a_run_has_two_events_with_the_metrics_of_the_commit(repo: frazil.Repository, log: Path) -> None:
    result = ops.mean(repo, "t", "x", engine="inline")
    ((start, end),) = runs(log)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert start["eventTime"] <= end["eventTime"]
    assert facet_of(start).keys() == facet_of(end).keys()
    facet, (row,) = facet_of(end), ops.job_metrics(repo)
    assert facet.items() >= {name: row[name] for name in ops.Metrics.__slots__}.items()
    assert (facet["job_id"], facet["snapshot_id"], facet["branch"]) == (result.id, result.snapshot_id, "main")
    assert (facet["engine"], facet["done_before"], facet["error_kind"], facet["host"]) == (
        "Inline",
        False,
        "",
        "",
    )
    assert facet["run_seconds"] >= facet["seconds"] > 0
    (source,), (output,) = end["inputs"], end["outputs"]
    place = str(log.parent / "repo")
    assert (source["namespace"], source["name"]) == ("file", f"{place}/t")
    assert output["name"] == f"{place}/mean/t"
    (step,) = ops.lineage_graph(repo).steps
    assert source["facets"]["version"]["datasetVersion"] == step.inputs[0]["snapshot"]
    assert output["facets"]["version"]["datasetVersion"] == result.snapshot_id
    assert output["outputFacets"]["outputStatistics"]["size"] == row["bytes_written"]


def test_a_run_that_finds_its_commit_says_so(repo: frazil.Repository, log: Path) -> None:
    first, second = (ops.mean(repo, "t", "x", engine="inline") for _ in range(2))
    end = runs(log)[-1][-1]
    assert (end["eventType"], facet_of(end)["done_before"]) == ("COMPLETE", True)
    assert facet_of(end)["snapshot_id"] == first.snapshot_id == second.snapshot_id
    assert facet_of(end)["tasks"] == 0


@pytest.mark.parametrize(
    ("error", "kind", "event", "text"),
    [
        (OSError("the network failed"), "task-failed", "FAIL", "OSError: the network failed"),
        (StorageError("gone", frazil.ErrorKind.OBJECT_NOT_FOUND), "object-not-found", "FAIL", "gone"),
        (KeyboardInterrupt(), "KeyboardInterrupt", "ABORT", "KeyboardInterrupt"),
    ],
)
def test_a_run_without_a_commit_has_its_error(
    repo: frazil.Repository, log: Path, error: BaseException, kind: str, event: str, text: str
) -> None:
    with pytest.raises((frazil.TaskFailedError, KeyboardInterrupt)):
        ops.run_job(job_with(repo, error), ENGINE)
    ((_, end),) = runs(log)
    assert (end["eventType"], facet_of(end)["error_kind"]) == (event, kind)
    assert text in facet_of(end)["error"]
    assert end["run"]["facets"]["errorMessage"]["message"] == facet_of(end)["error"]
    # of the tasks that were planned, and of what the driver asked
    assert (facet_of(end)["tasks"], facet_of(end)["requests"] > 0, facet_of(end)["snapshot_id"]) == (
        2,
        True,
        "",
    )
    assert ops.job_metrics(repo) == []


def test_a_run_that_cannot_start_has_its_error(repo: frazil.Repository, log: Path) -> None:
    with pytest.raises(frazil.RefNotFoundError):
        ops.run_job(replace(counting(repo, 4), target=ops.Target(repo, "nowhere")), ENGINE)
    ((_, end),) = runs(log)
    assert (end["eventType"], facet_of(end)["error_kind"]) == ("FAIL", "ref-not-found")
    assert facet_of(end)["branch"] == "nowhere"


def test_a_job_inside_of_a_publication_has_it_as_parent(repo: frazil.Repository, log: Path) -> None:
    def work(target: ops.Target) -> ops.JobResult:
        to = ops.Target(target.repo, target.branch, "/new")
        return ops.mean(target.repo, "t", engine="inline", to=to)

    published = ops.write_audit_publish(repo, work, [ops.Exists("/new/t")], engine="inline")
    (_, outer), (_, inner) = runs(log)
    assert outer["job"]["name"] == "write_audit_publish"
    assert facet_of(outer)["snapshot_id"] == published.snapshot_id
    parent = inner["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["job"]["name"]) == (outer["run"]["runId"], outer["job"]["name"])
    assert facet_of(inner)["branch"] == "audit/main"
    assert "parent" not in outer["run"]["facets"]
    # a job after the publication has no parent
    ops.mean(repo, "t", "x", engine="inline", to=ops.Target(repo, group="/later"))
    assert "parent" not in runs(log)[-1][-1]["run"]["facets"]


def test_an_audit_that_refuses_the_data_is_a_failed_run(repo: frazil.Repository, log: Path) -> None:
    def work(target: ops.Target) -> None:
        with target.repo.transaction(target.branch, message="new data") as store:
            zarr.create_group(store, path="new")

    with pytest.raises(frazil.ValidationFailedError) as raised:
        ops.write_audit_publish(repo, work, [ops.Exists("/absent")], engine="inline", job_id="monday")
    ((_, end),) = runs(log)
    facet = facet_of(end)
    assert (end["eventType"], facet["job_id"], facet["error_kind"]) == ("FAIL", "monday", raised.value.kind)
    assert "/absent" in facet["error"]


def test_the_commit_of_a_shared_job_is_a_run(repo: frazil.Repository, log: Path) -> None:
    job = frazil.jobs.open_shared(repo, 2, job_id="monday")
    for number in range(2):
        with job.task(number) as session:
            zarr.create_group(session.store, path=f"task-{number}")
        if not number:
            with pytest.raises(frazil.SessionStateError):
                job.commit()
    result = job.commit()
    (_, failed), (_, end) = runs(log)
    assert (failed["eventType"], facet_of(failed)["error_kind"]) == ("FAIL", "commit-not-allowed")
    assert (end["eventType"], facet_of(end)["snapshot_id"]) == ("COMPLETE", result.snapshot_id)
    assert (facet_of(end)["job_id"], facet_of(end)["tasks"]) == ("monday", 2)


def test_an_ingest_names_its_files_without_their_folder(
    repo: frazil.Repository, log: Path, tmp_path: Path
) -> None:
    xarray = pytest.importorskip("xarray")
    (tmp_path / "secret" / "day").mkdir(parents=True)
    files = [tmp_path / "secret" / "day" / f"{name}.nc" for name in "ab"]
    for number, path in enumerate(files):
        data = xarray.Dataset({"v": ("time", [1.0])}, coords={"time": [number]})
        data.to_netcdf(path, engine="netcdf4")
    to, names = ops.Target(repo, group="/files"), list(map(str, files))
    with pytest.raises(frazil.InvalidInputError, match=r"secret/day/b\.nc"):
        ops.ingest(names, to, engine="inline")  # files with other times are not one dataset
    ops.ingest(names, to, concat_dim="time", engine="inline")
    (_, failed), (_, end) = runs(log)
    (source,) = end["inputs"]
    assert (source["namespace"], source["name"]) == ("files", "2 files, day/a.nc")
    assert (failed["eventType"], facet_of(failed)["error_kind"]) == ("FAIL", "bad-source")
    assert "b.nc: time has other values" in facet_of(failed)["error"]
    assert "secret" not in json.dumps([failed, end])


# ---- privacy ----------------------------------------------------------------------------------------


def test_no_secret_and_no_folder_of_this_machine_is_in_an_event(
    repo: frazil.Repository, log: Path, tmp_path: Path
) -> None:
    key, password, signature = SECRETS
    urls = f"s3://{key}:{password}@ice/a", f"https://me:{password}@host.org/a?token={signature}"
    folder = tmp_path / "elsewhere" / "data"
    error = OSError(
        f"cannot read {urls[0]} or {urls[1]}, '{folder}/b.nc', file://{folder}/c.nc; "
        f"/no-such-root/t2m of {tmp_path}/repo/chunks/A"
    )
    storages = [
        storage_from_url(urls[1]),
        storage_from_url("s3://ice/a", access_key_id=key, secret_access_key=password, region="eu-west-1"),
        storage_from_url(urls[0]),
    ]
    inputs = tuple(ops.Input(storage_label(each), None, "A", ("/t",), "00") for each in storages)
    with pytest.raises(frazil.TaskFailedError):
        ops.run_job(job_with(repo, error, inputs=inputs), ENGINE)
    ((start, end),) = runs(log)
    written = json.dumps([start, end])
    assert [secret for secret in SECRETS if secret in written] == []
    assert "elsewhere" not in written
    assert socket.gethostname() not in written
    message = facet_of(end)["error"]
    assert "'b.nc', c.nc; /no-such-root/t2m" in message
    assert f"{tmp_path}/repo/A" in message or f"{tmp_path}/repo/chunks/A" in message
    names = [(each["namespace"], each["name"]) for each in end["inputs"]]
    assert names == [("https://****@host.org", "a/t"), ("s3://ice", "a/t"), ("s3://ice", "a/t")]


@pytest.mark.parametrize(
    ("storage", "namespace", "name"),
    [
        (frazil.local_filesystem_storage("/data/a, b", flush=False), "file", "/data/a, b/t"),
        (frazil.in_memory_storage(), "in-memory", "t"),
        ("gs://ice/a/b", "gs://ice", "a/b/t"),
        ("az://me/ice/a", "abfss://ice@me.dfs.core.windows.net", "a/t"),
        ("s3://ice", "s3://ice", "t"),
        ("/data/ice", "file", "/data/ice/t"),
        ("https://host.org/a/b", "https://host.org", "a/b/t"),
    ],
)
def test_datasets_have_the_names_of_openlineage(
    repo: frazil.Repository, log: Path, storage: str | frazil.Storage, namespace: str, name: str
) -> None:
    storage = storage_from_url(storage) if isinstance(storage, str) else storage
    source = ops.Input(storage_label(storage), None, "A", ("/t",), "00")
    ops.run_job(counting(repo, 4, inputs=(source,)), ENGINE)
    ((_, end),) = runs(log)
    assert [(each["namespace"], each["name"]) for each in end["inputs"]] == [(namespace, name)]


def test_the_host_is_named_only_on_demand(
    repo: frazil.Repository, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAZIL_EVENTS_HOST", "1")
    ops.run_job(counting(repo, 4), ENGINE)
    assert facet_of(runs(log)[0][-1])["host"] == socket.gethostname()


def test_the_datasets_of_an_event_are_bounded(repo: frazil.Repository, log: Path) -> None:
    writes = tuple(f"/a/{number}" for number in range(10_000))
    ops.run_job(replace(counting(repo, 4), writes=writes), ENGINE)
    ((_, end),) = runs(log)
    assert len(end["outputs"]) == 200


# ---- places that fail -------------------------------------------------------------------------------


def test_without_the_variable_nothing_is_written(
    repo: frazil.Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FRAZIL_EVENTS", raising=False)
    monkeypatch.chdir(tmp_path)
    ops.run_job(counting(repo, 4), ENGINE)
    assert [path.name for path in tmp_path.iterdir()] == ["repo"]


@pytest.mark.parametrize("place", ["{file}", "ftp://host/log", "no-such-profile://"])
def test_a_place_that_fails_is_one_warning(
    repo: frazil.Repository,
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    place: str,
) -> None:
    (tmp_path / "file").touch()
    bad = place.format(file=tmp_path / "file")
    monkeypatch.setenv("FRAZIL_EVENTS", f"{bad}, {log}")
    with caplog.at_level(logging.WARNING):
        result = ops.run_job(counting(repo, 4), ENGINE)
    assert (result.done_before, result.metrics.tasks) == (False, 1)
    (record,) = caplog.records
    assert f"`{bad}`" in record.getMessage()
    assert [len(each) for each in runs(log)] == [2]  # the other place has the events


def test_a_place_that_hangs_does_not_hold_back_the_job(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    released = Event()

    def hang(location: str) -> frazil.Storage:
        released.wait(60)
        raise OSError("too late")

    monkeypatch.setenv("FRAZIL_EVENTS", "/log")
    monkeypatch.setattr(events, "storage_of_location", hang)
    monkeypatch.setattr(events, "LONGEST_WAIT_S", 0.01)
    with caplog.at_level(logging.WARNING):
        result = ops.run_job(counting(repo, 4), ENGINE)
    released.set()
    assert result.metrics.tasks == 1
    assert any("not delivered" in record.getMessage() for record in caplog.records)


def test_openlineage_without_its_package_is_one_warning_with_the_extra(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FRAZIL_EVENTS", "openlineage")
    monkeypatch.setitem(sys.modules, "openlineage", None)
    monkeypatch.delitem(sys.modules, "openlineage.client", raising=False)
    with caplog.at_level(logging.WARNING):
        ops.run_job(counting(repo, 4), ENGINE)
    (record,) = caplog.records
    assert install_command("lineage") in record.getMessage()


# ---- readers ----------------------------------------------------------------------------------------


def test_duckdb_reads_the_numbers_of_job_metrics(repo: frazil.Repository, log: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="needs the extra `arrow`")
    for number in range(40):  # DuckDB infers the schema from 32 files
        ops.run_job(counting(repo, 12, id=f"job-{number}"), ENGINE)
    with pytest.raises(frazil.TaskFailedError):
        ops.run_job(job_with(repo, OSError("late"), id="late"), ENGINE)
    names = ", ".join(ops.Metrics.__slots__)
    rows = duckdb.sql(
        f"""SELECT job_id, snapshot_id, {names}
        FROM (SELECT eventType, unnest(run.facets.frazil_run) FROM read_json('{log}/*/*.jsonl'))
        WHERE eventType = 'COMPLETE'"""
    ).fetchall()
    commits = ops.job_metrics(repo)
    expected = [
        (row["id"], row["snapshot_id"], *(row[name] for name in ops.Metrics.__slots__)) for row in commits
    ]
    assert sorted(rows) == sorted(expected)
    assert len(expected) == 40
    failures = duckdb.sql(
        f"""SELECT run.facets.frazil_run.job_id, run.facets.frazil_run.error_kind, day
        FROM read_json('{log}/*/*.jsonl') WHERE eventType = 'FAIL'"""
    ).fetchall()
    assert [row[:2] for row in failures] == [("late", "task-failed")]
    assert str(failures[0][2]) == runs(log)[-1][0]["eventTime"][:10]


def test_the_command_lists_runs(
    repo: frazil.Repository, log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["events"]) == 1
    assert f"found none in {log}, which does not exist" in capsys.readouterr().err
    ops.run_job(counting(repo, 12), ENGINE)
    with pytest.raises(frazil.TaskFailedError):
        ops.run_job(job_with(repo, OSError("line 1\nline 2 \x1b[31m")), ENGINE)

    def lines(*arguments: str) -> list[str]:
        assert main(["events", *arguments]) == 0
        return capsys.readouterr().out.splitlines()

    newest, oldest = lines(str(log))
    assert ("FAIL  " in newest, "breaks" in newest, "line 1 line 2 \\u001b" in newest) == (True, True, True)
    assert ("COMPLETE" in oldest, "count" in oldest, f"{log.parent}/repo@main" in oldest) == (
        True,
        True,
        True,
    )
    assert lines("--failed") == lines("--failed", "--since", "1d") != lines()
    assert lines("--since", "2999-01-01") == []
    assert len(lines("--since", "1d")) == 2
    assert len(lines("--since", facet_of(runs(log)[-1][0])["started_at"])) == 1
    documents = json.loads("\n".join(lines("--json")))
    assert documents == [each[-1] for each in reversed(runs(log))]
    # a run whose process was killed
    (path,) = [path for path in log.rglob("*.jsonl") if "COMPLETE" in path.read_text()]
    path.write_text(path.read_text().splitlines()[0])
    assert "START" in lines()[1]
    assert len(lines("--failed")) == 1
    path.write_text("[]")
    assert main(["events"]) == 1
    assert path.name in capsys.readouterr().err
    monkeypatch.delenv("FRAZIL_EVENTS")
    assert main(["events"]) == 2


# ---- the client of OpenLineage ----------------------------------------------------------------------


@contextmanager
def lineage_server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that takes events, and the events that it has."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


@pytest.fixture
def client() -> Any:
    return pytest.importorskip("openlineage.client.facet_v2", reason="needs the extra `lineage`")


@pytest.fixture
def both(repo: frazil.Repository, log: Path) -> Callable[[], None]:
    """A run that completes, and one that fails inside of a publication."""

    def run() -> None:
        ops.mean(repo, "t", "x", engine="inline")
        with pytest.raises(frazil.TaskFailedError):
            ops.write_audit_publish(
                repo, lambda target: ops.run_job(job_with(repo, OSError("no")), ENGINE), [], engine="inline"
            )

    return run


def test_the_client_sends_the_events_of_the_log_to_a_server(
    both: Callable[[], None], log: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAZIL_EVENTS", f"{log},openlineage")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "weather")
    with lineage_server() as (url, received):
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "http")
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", url)
        both()
    logged = [event for run in runs(log) for event in run]
    order = lambda event: (event["run"]["runId"], event["eventType"] != "START")  # noqa: E731
    assert len(received) == 6
    for sent, event in zip(sorted(received, key=order), sorted(logged, key=order), strict=True):
        facets = sent["run"]["facets"]
        assert facets["frazil_run"] == facet_of(event)
        assert sent["job"]["namespace"] == "weather"
        for name in ("eventType", "eventTime", "inputs", "outputs", "producer"):
            assert _without_empty(sent[name]) == _without_empty(event[name])


def _without_empty(value: Any) -> Any:
    """The client adds empty facets."""
    if isinstance(value, list):
        return [_without_empty(each) for each in value]
    return {key: each for key, each in value.items() if each} if isinstance(value, dict) else value


def test_the_file_transport_has_one_line_for_each_event(
    both: Callable[[], None], client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAZIL_EVENTS", "openlineage")
    config = {"transport": {"type": "file", "log_file_path": str(tmp_path / "lines"), "append": True}}
    (tmp_path / "openlineage.yml").write_text(json.dumps(config))
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(tmp_path / "openlineage.yml"))
    both()
    kinds = [json.loads(line)["eventType"] for line in (tmp_path / "lines").read_text().splitlines()]
    assert kinds == ["START", "COMPLETE", "START", "START", "FAIL", "FAIL"]


#: Facet -> its class in the client.
CLASSES = {
    "processing_engine": "processing_engine_run.ProcessingEngineRunFacet",
    "errorMessage": "error_message_run.ErrorMessageRunFacet",
    "jobType": "job_type_job.JobTypeJobFacet",
    "version": "dataset_version_dataset.DatasetVersionDatasetFacet",
    "inputStatistics": "input_statistics_input_dataset.InputStatisticsInputDatasetFacet",
    "outputStatistics": "output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet",
}


def test_events_are_those_that_the_client_defines(both: Callable[[], None], log: Path, client: Any) -> None:
    """Its classes refuse unknown fields, and they check ids, times and addresses."""
    both()
    v2: Any = importlib.import_module("openlineage.client.event_v2")
    found = set()
    for event in (event for run in runs(log) for event in run):
        datasets = event["inputs"] + event["outputs"]
        groups = [event["run"]["facets"], event["job"]["facets"]]
        groups += [
            each.get(name, {}) for each in datasets for name in ("facets", "inputFacets", "outputFacets")
        ]
        for name, facet in (pair for group in groups for pair in group.items()):
            found.add(name)
            assert facet["_producer"] == event["producer"]
            assert facet["_schemaURL"].startswith("https://openlineage.io/spec/")
            fields = {key: value for key, value in facet.items() if key[0] != "_"}
            if name == "parent":
                parent = client.parent_run
                parent.ParentRunFacet(parent.Run(**fields["run"]), parent.Job(**fields["job"]))
            elif name != "frazil_run":
                module, _, of = CLASSES[name].partition(".")
                getattr(getattr(client, module), of)(**fields)
        whole = v2.RunEvent(
            eventType=v2.RunState[event["eventType"]],
            eventTime=event["eventTime"],
            run=v2.Run(**event["run"]),
            job=v2.Job(**event["job"]),
            inputs=[v2.InputDataset(**each) for each in event["inputs"]],
            outputs=[v2.OutputDataset(**each) for each in event["outputs"]],
            producer=event["producer"],
        )
        assert event.keys() == {name for name in dir(whole) if name in event}
    assert found == {*CLASSES, "parent", "frazil_run"}
