"""Log records, their filters, and spans."""

from __future__ import annotations

import logging
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import zarr

import frazil
from frazil import logs
from frazil.extras import install_command


@pytest.fixture(autouse=True)
def _quiet_again() -> Iterator[None]:
    yield
    frazil.set_logs_filter("")


@pytest.mark.deep
def test_frazil_is_quiet_unless_asked() -> None:
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("frazil").handlers)
    run = _program("import frazil; frazil.Repository.create(frazil.in_memory_storage())")
    assert run.stderr + run.stdout == ""


@pytest.mark.parametrize(
    ("directives", "levels"),
    [
        ("debug", {"frazil": logging.DEBUG}),
        ("frazil::storage=debug,warn", {"frazil": logging.WARNING, "frazil.storage": logging.DEBUG}),
        ("icechunk=trace", {"frazil": logs.TRACE}),
        ("icechunk::storage::local", {"frazil.storage.local": logs.TRACE}),
        ("OFF", {"frazil": logging.CRITICAL + 10}),
        ("3", {"frazil": logging.INFO}),
        ("tokio=debug", {"frazil": logging.NOTSET}),
        (" frazil=error , ", {"frazil": logging.ERROR}),
    ],
)
def test_filters(directives: str, levels: dict[str, int], capsys: pytest.CaptureFixture[str]) -> None:
    frazil.set_logs_filter(directives)
    assert {name: logging.getLogger(name).level for name in levels} == levels
    assert capsys.readouterr().err == ""
    frazil.set_logs_filter("")
    assert {logging.getLogger(name).level for name in levels} == {logging.NOTSET}


@pytest.mark.parametrize("directive", ["nonsense=???", "a=b=c", "=", "frazil=7", "8", "loud"])
def test_what_is_no_directive_is_ignored_and_named(
    directive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    frazil.set_logs_filter(f"{directive},info")
    assert f"ignoring the log directive `{directive}`" in capsys.readouterr().err
    assert logging.getLogger("frazil").level == logging.INFO


@pytest.mark.deep
@pytest.mark.parametrize("name", ["FRAZIL_LOG", "ICECHUNK_LOG"])
def test_the_environment_is_read_on_import(name: str) -> None:
    code = "import frazil; frazil.Repository.create(frazil.in_memory_storage()).writable_session('main')"
    code += ".commit('m', allow_empty=True)"
    run = _program(code, **{name: "debug"})
    assert "DEBUG frazil.repository.session.session: commit on 'main' took" in run.stderr
    assert run.stdout == ""
    run = _program(code, **{name: "debug", "ICECHUNK_LOG_TO_STDOUT": "1"})
    assert "commit on 'main' took" in run.stdout


@pytest.mark.deep
def test_a_program_that_logs_prints_records_once() -> None:
    code = (
        "import logging; logging.basicConfig(level='DEBUG'); import frazil; frazil.set_logs_filter('debug')"
    )
    code += "; logging.getLogger('frazil.x').debug('once')"
    assert _program(code).stderr.count("once") == 1


def test_conflicts_and_retries_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "frazil")
    repo = frazil.Repository.create(frazil.in_memory_storage())
    late = repo.writable_session("main")
    zarr.create_group(late.store)
    with repo.transaction("main", message="first") as store:
        zarr.create_group(store)
    with pytest.raises(frazil.ConflictError):
        late.commit("second")
    messages = [record.message for record in caplog.records]
    assert any("commit on 'main' took" in message for message in messages)
    assert any("commit on 'main' failed" in message and "parent" in message for message in messages)


def test_slow_work_is_a_warning(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SLOW", -1.0)
    with logs.timed(logging.getLogger("frazil.x"), "block", "this"):
        pass
    assert caplog.records[0].levelname == "WARNING"


class _Recorder:
    """Stands in for the packages of OpenTelemetry: they are optional."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            return self

        return call

    def __enter__(self) -> None:
        self.calls.append(("entered", (), {}))

    def __exit__(self, *error: object) -> None:
        self.calls.append(("left", (), {}))


def test_spans_are_exported_to_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = _Recorder()
    for name in ("sdk.trace", "sdk.trace.export", "sdk.resources", "exporter.otlp.proto.grpc.trace_exporter"):
        module = types.ModuleType(f"opentelemetry.{name}")
        for class_name in ("TracerProvider", "BatchSpanProcessor", "Resource", "OTLPSpanExporter"):
            value = recorder if class_name == "Resource" else getattr(recorder, class_name)
            setattr(module, class_name, value)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("ICECHUNK_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "weather")
    frazil.initialize_logs()
    try:
        repo = frazil.Repository.create(frazil.in_memory_storage())
        repo.writable_session("main").commit("m", allow_empty=True)
    finally:
        frazil.shutdown_telemetry()
    calls = [(name, args, kwargs) for name, args, kwargs in recorder.calls]
    names = [name for name, _, _ in calls]
    assert ("OTLPSpanExporter", (), {"endpoint": "http://127.0.0.1:9"}) in calls
    assert ("create", ({"service.name": "weather"},), {}) in calls
    assert ("start_as_current_span", ("commit",), {"attributes": {}}) in calls
    assert names.index("entered") < names.index("left") < names.index("shutdown")
    frazil.shutdown_telemetry()
    assert names.count("shutdown") == 1


def test_without_the_packages_a_warning_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(logs._root, "warning", lambda text, *args: warnings.append(text % args))
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    frazil.initialize_logs()
    assert [install_command("telemetry") in text for text in warnings] == [True]


def _program(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": "/usr/bin"}
    return subprocess.run(
        [sys.executable, "-c", code], env=paths | environment, capture_output=True, text=True, check=True
    )
