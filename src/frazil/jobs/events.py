"""Events of runs: START, and COMPLETE, FAIL or ABORT, as the JSON of OpenLineage (``RunEvent``).

The variable ``FRAZIL_EVENTS`` names where they go: places (folders, URLs, profiles) and the word
``openlineage``, with commas between them. A place gets one file of JSON Lines for each run. The client of
OpenLineage sends the events as its own configuration says. A thread delivers them: a place that fails is a
warning in the log, and a place that hangs delays the end of a run by five seconds at most.

The facet ``frazil_run`` always has the same fields, so that engines of SQL infer one schema from all files.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from datetime import datetime
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

from frazil import host
from frazil.about import __version__
from frazil.errors import FormatError, InvalidInputError
from frazil.extras import needs
from frazil.jobs.job import LOCAL, Input, Metrics, Target
from frazil.jobs.task_failures import failure_of
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.clock import from_datetime, utc_text
from frazil.storage.base import Storage, storage_label
from frazil.storage.option_names import shown_url
from frazil.storage.profiles import storage_of_location
from frazil.threads import Purpose, map_bounded

#: The client of OpenLineage, and its classes of events.
openlineage: Any = ModuleOnDemand("openlineage.client")
event_v2: Any = ModuleOnDemand("openlineage.client.event_v2")

_log = logging.getLogger(__name__)

#: The facet with what only Frazil knows of a run.
FACET: Final = "frazil_run"
_OPENLINEAGE: Final = "openlineage"
LONGEST_WAIT_S: Final = 5.0
#: The largest number of inputs and of outputs of an event.
_MOST: Final = 200
_SPECIFICATION: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/"
_PRODUCER: Final = f"urn:frazil:{__version__}"
#: Kind of a storage -> the namespace of its datasets, by the naming rules of OpenLineage.
_NAMESPACES: Final = {
    "S3": "s3://{bucket}",
    "GCS": "gs://{bucket}",
    "Azure": "abfss://{container}@{account}.dfs.core.windows.net",
}
_URL: Final = re.compile(r"\b(?!file:)[\w+.-]+://[^\s'\"`<>]+")
#: The folders of an absolute path. The group is the folder at the root.
_FOLDERS: Final = re.compile(r"(?:\bfile://|(?<![\w:/.]))(/[^/\s'\"`]+)/(?:[^/\s'\"`]+/)*(?=[^/\s'\"`])")

type _Event = dict[str, Any]


@dataclass(slots=True)
class Run:
    """One run of a job, or of a publication with its jobs. The caller sets what it learns during the run."""

    name: str
    target: Target
    inputs: Sequence[Input] = ()
    writes: Sequence[str] = ()
    job_id: str | None = None
    engine: str = ""
    metrics: Metrics = field(default_factory=Metrics)
    result: Any = None
    id: str = ""
    started_at: str = ""
    started: float = field(default_factory=host.monotonic_seconds)
    parent: Run | None = None

    def set_result[R](self, result: R) -> R:
        """Set and return the result, which has a version."""
        self.result = result
        return result

    def seconds(self) -> float:
        """Return the time since the start of the run."""
        return host.monotonic_seconds() - self.started


_current: Final = ContextVar[Run | None]("run", default=None)


@contextmanager
def run_events(run: Run) -> Iterator[Run]:
    """Send the events of a run, which is the block. Runs inside of the block have it as their parent.

    An exception that is not an ``Exception``, such as ``KeyboardInterrupt``, means ABORT.
    """
    places = [place for each in os.environ.get("FRAZIL_EVENTS", "").split(",") if (place := each.strip())]
    if not places:
        yield run
        return
    now, digits = host.time_us(), host.random_bytes(9).hex()
    time = f"{now // 1000:012x}"  # the begin of a UUID of version 7: they sort by time
    run.id = f"{time[:8]}-{time[8:]}-7{digits[:3]}-8{digits[3:6]}-{digits[6:]}"
    run.started_at, run.parent, queue = utc_text(now), _current.get(), SimpleQueue[_Event | None]()
    thread = Thread(target=_deliver, name="frazil-events", args=(run, places, queue), daemon=True)

    def send(kind: str, error: BaseException | None = None) -> None:
        try:
            if kind == "START":
                thread.start()
            queue.put(_event(run, kind, error))
        except Exception as problem:  # the job has its result, or its own error
            _log.warning("the run %s of %s has no event %s: %s", run.id, run.name, kind, problem)

    before = _current.set(run)
    try:
        send("START")
        yield run
    except BaseException as error:
        send("FAIL" if isinstance(error, Exception) else "ABORT", error)
        raise
    else:
        send("COMPLETE")
    finally:
        _current.reset(before)
        queue.put(None)
        if thread.is_alive():
            thread.join(LONGEST_WAIT_S)
        if thread.is_alive():
            _log.warning("the events of the run %s are not delivered after %d s", run.id, LONGEST_WAIT_S)


def _deliver(run: Run, places: Sequence[str], events: SimpleQueue[_Event | None]) -> None:
    """Send events to places until None comes. The first error of a place is a warning in the log."""
    lines, failed = b"", set[str]()
    for event in iter(events.get, None):
        lines += json.dumps(event).encode() + b"\n"
        for place in places:
            try:
                if place == _OPENLINEAGE:
                    _emit(event)
                else:
                    storage_of_location(place).put(f"day={run.started_at[:10]}/{run.id}.jsonl", lines)
            except Exception as error:
                if place not in failed:
                    message = "the events of the run %s do not reach `%s`: %s"
                    _log.warning(message, run.id, shown_url(place), error)
                failed.add(place)


def _emit(event: _Event) -> None:
    """Send an event with the client of OpenLineage."""
    with needs("`openlineage` in FRAZIL_EVENTS", extra="lineage"):
        client, v2 = openlineage.OpenLineageClient(), event_v2
    values = {name: event[name] for name in ("eventTime", "producer")}
    values |= {"run": v2.Run(**event["run"]), "job": v2.Job(**event["job"])}
    values["inputs"] = [v2.InputDataset(**each) for each in event["inputs"]]
    values["outputs"] = [v2.OutputDataset(**each) for each in event["outputs"]]
    client.emit(v2.RunEvent(eventType=v2.RunState[event["eventType"]], **values))
    client.close(LONGEST_WAIT_S)


def _event(run: Run, kind: str, error: BaseException | None) -> _Event:
    address = storage_label(run.target.repo.storage)
    namespace, place = (_dataset(address)[name] for name in ("namespace", "name"))
    snapshot_id = run.result.version.snapshot_id if run.result is not None else ""
    failure = None if error is None else failure_of(error)
    message = "" if failure is None else _without_folders(failure.text or failure.type, place)
    facets: dict[str, _Event] = {
        "processing_engine": {"name": "frazil", "version": __version__},
        FACET: {
            "job_id": run.job_id or "",
            "repository": f"{namespace}/{place}" if "://" in namespace else place,
            "branch": run.target.branch,
            "snapshot_id": snapshot_id,
            "engine": run.engine,
            "started_at": run.started_at,
            "run_seconds": round(run.seconds(), 3),
            "done_before": run.result is not None and run.result.done_before,
            "error_kind": "" if failure is None else failure.kind or failure.type,
            "error": message,
            "host": socket.gethostname() if os.environ.get("FRAZIL_EVENTS_HOST") else "",
            **asdict(run.metrics),
        },
    }
    if failure is not None:
        facets["errorMessage"] = {"message": message, "programmingLanguage": "PYTHON"}
    if run.parent is not None:
        facets["parent"] = {"run": {"runId": run.parent.id}, "job": _job(run.parent)}
    inputs = [
        _dataset(each.repository, path, each.snapshot or each.digest)
        for each in run.inputs
        for path in (each.paths if each.snapshot else (", ".join(each.paths),))  # files are one dataset
    ][:_MOST]
    outputs = [_dataset(address, path, snapshot_id) for path in run.writes[:_MOST]]
    read = {"size": run.metrics.bytes_read}
    written = {"rowCount": run.metrics.rows, "size": run.metrics.bytes_written}
    for datasets, name, values in ((inputs, "input", read), (outputs, "output", written)):
        if len(datasets) == 1:  # the metrics are those of the run
            datasets[0][f"{name}Facets"] = _facets({f"{name}Statistics": values})
    job_type = {"processingType": "BATCH", "integration": "FRAZIL", "jobType": "JOB"}
    return {
        "eventType": kind,
        "eventTime": utc_text(host.time_us()),
        "producer": _PRODUCER,
        "schemaURL": f"{_SPECIFICATION}RunEvent",
        "run": {"runId": run.id, "facets": _facets(facets)},
        "job": {**_job(run), "facets": _facets({"jobType": job_type})},
        "inputs": inputs,
        "outputs": outputs,
    }


def _job(run: Run) -> _Event:
    return {"namespace": os.environ.get("OPENLINEAGE_NAMESPACE") or "default", "name": run.name}


def _facets(values: dict[str, _Event]) -> _Event:
    common = {"_producer": _PRODUCER, "_schemaURL": f"{_SPECIFICATION}BaseFacet"}
    return {name: {**common, **value} for name, value in values.items()}


def _dataset(address: str, path: str = "", version: str = "") -> _Event:
    """Return a node of a repository as a dataset, with the names that OpenLineage defines."""
    kind, *parts = address.split(", ")
    values = dict(each.split(" ", 1) for each in parts if " " in each)
    namespace, place, url = kind, values.get("prefix", ""), urlsplit(kind)
    if address.startswith(LOCAL):
        namespace, place = "file", address.removeprefix(LOCAL).removesuffix(", flush False")
    elif url.netloc:
        namespace, place = f"{url.scheme}://{url.netloc}", url.path[1:]
    elif template := _NAMESPACES.get(kind.partition(" ")[0]):
        # without a key, if it stands before the bucket
        namespace = template.format_map({name: text.rpartition("@")[2] for name, text in values.items()})
    name = "/".join(filter(None, [place.rstrip("/"), path.strip("/")])) or "/"
    facets = _facets({"version": {"datasetVersion": version}} if version else {})
    return {"namespace": namespace, "name": name, "facets": facets}


def _without_folders(text: str, place: str) -> str:
    """Return the text of an error without secrets in URLs, and without local folders outside of a place.

    A path is local if its first folder is one of this machine: nodes of repositories have paths too.
    """

    def without_local(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith(f"{place}/") or not os.path.lexists(match[1]) else ""

    return _FOLDERS.sub(without_local, _URL.sub(lambda match: shown_url(match[0]), text))


def read_runs(storage: Storage, since: datetime | None = None) -> list[_Event]:
    """Return the last event of each run of an event log, the newest run first.

    Raises ``InvalidInputError`` for a place without an event.
    """
    first = "" if since is None else utc_text(from_datetime(since))
    names = [each.key for each in storage.list("") if each.key.endswith(".jsonl")]
    if not names:
        raise InvalidInputError(
            f"expected the events of runs, found none in {storage.label()}. Correct the place, or run a job "
            "with this place in FRAZIL_EVENTS first"
        )
    keys = sorted((key for key in names if key >= f"day={first[:10]}"), reverse=True)

    def last_event(key: str) -> _Event:
        try:
            event: _Event = json.loads(bytes(storage.get(key)).splitlines()[-1])
            return event if event["run"]["facets"][FACET]["started_at"] >= first else {}
        except (ValueError, LookupError, TypeError) as error:
            raise FormatError(f"`{key}` must be a file of an event log, got {error!r}") from error

    return list(filter(None, map_bounded(Purpose.STAGED_READS, last_event, keys)))
