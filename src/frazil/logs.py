"""What Frazil tells while it works: log records, and spans for OpenTelemetry. Both are off until asked for.

Records go to Python's ``logging``, under ``frazil`` and the names of its modules, so a program that
configures ``logging`` has them. For others there are filters in the words of the reference: directives with
commas between, each ``target=level``, or only a level for everything::

    frazil::storage=debug,warn

A target is a module with ``::`` or dots; ``icechunk`` is read as ``frazil``. Levels are ``off``, ``error``,
``warn``, ``info``, ``debug``, ``trace``, or 0 to 5. Records then go to standard error, unless the program has
handlers of its own.

Spans (commits, updates of the repository, maintenance) are exported if an endpoint is named and the packages
``opentelemetry-sdk`` and ``opentelemetry-exporter-otlp-proto-grpc`` are there. Settings are read from the
environment when Frazil is imported, of each pair the first that is set:

==========================================================  ==========================================
``FRAZIL_LOG``, ``ICECHUNK_LOG``                            the filter
``FRAZIL_LOG_TO_STDOUT``, ``ICECHUNK_LOG_TO_STDOUT``        to standard output instead (any value)
``ICECHUNK_OTLP_ENDPOINT``, ``OTEL_EXPORTER_OTLP_ENDPOINT`` where spans go; none are made without
``ICECHUNK_OTEL_SERVICE_NAME``, ``OTEL_SERVICE_NAME``       as what; ``frazil`` if not set
==========================================================  ==========================================
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

TRACE: Final = 5
_ROOT: Final = "frazil"
_LEVELS: Final = {
    "off": logging.CRITICAL + 10,
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": TRACE,
}
_NUMBERS: Final = dict(enumerate(_LEVELS.values()))
_DIRECTIVE: Final = re.compile(r"(?:(?P<target>[\w.:]+)=)?(?P<level>[\w.:]*)")
#: Seconds after which one request to a storage, or one commit, is worth a warning.
SLOW: Final = 30.0

logging.addLevelName(TRACE, "TRACE")
_root = logging.getLogger(_ROOT)
_root.addHandler(logging.NullHandler())


class _Printed(logging.StreamHandler[Any]):
    """Prints records, unless the program prints them itself."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


_printed: _Printed | None = None
#: Loggers that have a level from the last filter.
_filtered: list[logging.Logger] = []


def initialize_logs() -> None:
    """Read the settings from the environment; happens when Frazil is imported. See ``frazil.logs``."""
    if _environment("FRAZIL_LOG", "ICECHUNK_LOG") is not None:
        set_logs_filter(None)
    if _environment(*_ENDPOINT) is not None:
        _start_telemetry()


def set_logs_filter(log_filter_directive: str | None) -> None:
    """Choose which log records are printed; None: as the environment says, or none. See ``frazil.logs``.

    What is no directive is ignored, and said so on standard error.

    >>> set_logs_filter("warn,frazil::storage=debug")
    >>> logging.getLogger("frazil.storage").level == logging.DEBUG
    True
    >>> set_logs_filter("")
    """
    global _printed
    if log_filter_directive is not None and not isinstance(log_filter_directive, str):
        raise TypeError(
            f"log_filter_directive: expected text or None, found {type(log_filter_directive).__name__}"
        )
    if log_filter_directive is None:
        log_filter_directive = _environment("FRAZIL_LOG", "ICECHUNK_LOG") or ""
    if _printed is None:
        to_stdout = _environment("FRAZIL_LOG_TO_STDOUT", "ICECHUNK_LOG_TO_STDOUT") is not None
        _printed = _Printed(sys.stdout if to_stdout else sys.stderr)
        _printed.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        _root.addHandler(_printed)
    for logger in _filtered:
        logger.setLevel(logging.NOTSET)
    _filtered.clear()
    for name, level in _parsed(log_filter_directive):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        _filtered.append(logger)


def _parsed(text: str) -> Iterator[tuple[str, int]]:
    """Logger and level of each directive that is one."""
    for directive in filter(None, map(str.strip, text.split(","))):
        match = _DIRECTIVE.fullmatch(directive)
        target, word = (match["target"], match["level"].lower()) if match else (None, "")
        level = _NUMBERS.get(int(word)) if word.isdecimal() else _LEVELS.get(word)
        if level is None and match and target is None and _our_logger(word):
            target, level = word, TRACE  # a target alone: all of it
        if level is None:
            expected = ", ".join(_LEVELS)
            print(
                f"ignoring `{directive}`: expected a level ({expected}, or 0 to 5) or target=level",
                file=sys.stderr,
            )
        elif name := _our_logger(target or _ROOT):
            yield name, level


def _our_logger(target: str) -> str | None:
    """Return the logger that a target of a filter means, if it is one of ours."""
    first, *rest = target.replace("::", ".").split(".")
    return ".".join([_ROOT, *rest]) if first in (_ROOT, "icechunk") else None


def _environment(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


@contextmanager
def timed(logger: logging.Logger, what: str) -> Iterator[None]:
    """Log how long the block took: at the debug level, and as a warning if it was slow; or why it failed."""
    start = time.perf_counter()
    try:
        yield
    except Exception as error:
        logger.info("%s failed after %.3f s: %s", what, time.perf_counter() - start, error)
        raise
    seconds = time.perf_counter() - start
    logger.log(logging.WARNING if seconds > SLOW else logging.DEBUG, "%s took %.3f s", what, seconds)


# OpenTelemetry

_ENDPOINT: Final = ("ICECHUNK_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_tracer: Any = None
_provider: Any = None
_nothing: AbstractContextManager[Any] = nullcontext()


def span(name: str, **attributes: str | int) -> AbstractContextManager[Any]:
    """Return a span around a block, if spans are exported; nothing otherwise."""
    if _tracer is None:
        return _nothing
    spanning: AbstractContextManager[Any] = _tracer.start_as_current_span(name, attributes=attributes)
    return spanning


def _start_telemetry() -> None:
    global _provider, _tracer
    if _provider is not None:
        return
    try:
        sdk = importlib.import_module("opentelemetry.sdk.trace")
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        resources = importlib.import_module("opentelemetry.sdk.resources")
        otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.grpc.trace_exporter")
    except ImportError as error:
        _root.warning(
            '%s is set, but spans cannot be exported: %s: pip install "frazil[telemetry]"',
            " or ".join(_ENDPOINT),
            error,
        )
        return
    service = _environment("ICECHUNK_OTEL_SERVICE_NAME", "OTEL_SERVICE_NAME") or _ROOT
    _provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": service}))
    exporter = otlp.OTLPSpanExporter(endpoint=_environment(*_ENDPOINT))
    _provider.add_span_processor(export.BatchSpanProcessor(exporter))
    _tracer = _provider.get_tracer(_ROOT)
    atexit.register(shutdown_telemetry)


def shutdown_telemetry() -> None:
    """Export the spans that wait, and make no more. Happens at the end of the program; harmless twice."""
    global _provider, _tracer
    provider, _provider, _tracer = _provider, None, None
    if provider is not None:
        with contextlib.suppress(Exception):  # at the end of a program nobody can do anything about it
            provider.shutdown()


initialize_logs()
