"""Log records, and spans for OpenTelemetry. By default, both are off.

Frazil writes records to Python's ``logging``, under ``frazil`` and the names of its modules. A filter is one
or more directives with commas between them: ``frazil::storage=debug,warn``. A directive is ``target=level``,
or a level for all modules. A target is a module, with ``::`` or dots; ``icechunk`` means ``frazil``. Levels
are ``off``, ``error``, ``warn``, ``info``, ``debug``, ``trace``, or 0 to 5. With a filter, Frazil prints the
records to standard error, unless the program has configured handlers.

The import reads ``FRAZIL_LOG`` (the filter), ``FRAZIL_LOG_TO_STDOUT`` (any value: print to standard output),
``OTEL_EXPORTER_OTLP_ENDPOINT`` (export spans) and ``OTEL_SERVICE_NAME``, and their names of the reference:
``ICECHUNK_LOG``, ``ICECHUNK_LOG_TO_STDOUT``, ``ICECHUNK_OTLP_ENDPOINT``, ``ICECHUNK_OTEL_SERVICE_NAME``.
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

from frazil.extras import install_command

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
#: A storage request or a commit that takes more than this number of seconds logs a warning.
SLOW: Final = 30.0

logging.addLevelName(TRACE, "TRACE")
_root = logging.getLogger(_ROOT)
_root.addHandler(logging.NullHandler())


_printed: logging.Handler | None = None
#: The loggers whose level the last filter has set.
_filtered: list[logging.Logger] = []


def initialize_logs() -> None:
    """Configure logs and spans from the environment variables.

    The import of Frazil calls this function. The module ``frazil.logs`` lists the variables.

    Examples:
        >>> import os
        >>> os.environ["FRAZIL_LOG"] = "info"
        >>> initialize_logs()
        >>> logging.getLogger("frazil").level == logging.INFO
        True
        >>> del os.environ["FRAZIL_LOG"]
        >>> set_logs_filter(None)
    """
    if _environment("FRAZIL_LOG", "ICECHUNK_LOG") is not None:
        set_logs_filter(None)
    if _environment(*_ENDPOINT) is not None:
        _start_telemetry()


def set_logs_filter(log_filter_directive: str | None) -> None:
    """Select the log records that Frazil prints.

    An invalid directive is ignored, with a message on standard error.

    Args:
        log_filter_directive: Directives with commas between them, such as ``"warn,frazil::storage=debug"``;
            the module ``frazil.logs`` describes them. An empty text prints no records. None uses the
            environment variable ``FRAZIL_LOG`` or ``ICECHUNK_LOG``.

    Raises:
        TypeError: The filter is not text or None.

    Examples:
        >>> set_logs_filter("warn,frazil::storage=debug")
        >>> logging.getLogger("frazil.storage").level == logging.DEBUG
        True
        >>> set_logs_filter("")
    """
    global _printed
    if log_filter_directive is not None and not isinstance(log_filter_directive, str):
        raise TypeError(
            f"log_filter_directive must be text or None, got {type(log_filter_directive).__name__}"
        )
    if log_filter_directive is None:
        log_filter_directive = _environment("FRAZIL_LOG", "ICECHUNK_LOG") or ""
    if _printed is None:
        to_stdout = _environment("FRAZIL_LOG_TO_STDOUT", "ICECHUNK_LOG_TO_STDOUT") is not None
        _printed = logging.StreamHandler(sys.stdout if to_stdout else sys.stderr)
        _printed.addFilter(lambda _: not logging.getLogger().handlers)  # unless the program has handlers
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
    """Yield the logger and the level of each valid directive."""
    for directive in filter(None, map(str.strip, text.split(","))):
        match = _DIRECTIVE.fullmatch(directive)
        target, word = (match["target"], match["level"].lower()) if match else (None, "")
        level = _NUMBERS.get(int(word)) if word.isdecimal() else _LEVELS.get(word)
        if level is None and match and target is None and _our_logger(word):
            target, level = word, TRACE  # a target without a level selects all its records
        if level is None:
            expected = ", ".join(_LEVELS)
            print(
                f"ignoring the log directive `{directive}`: it must be a level ({expected}, or 0 to 5) or "
                "target=level",
                file=sys.stderr,
            )
        elif name := _our_logger(target or _ROOT):
            yield name, level


def _our_logger(target: str) -> str | None:
    """Return the name of the logger for a target of a filter, or None if it is not a logger of Frazil."""
    first, *rest = target.replace("::", ".").split(".")
    return ".".join([_ROOT, *rest]) if first in (_ROOT, "icechunk") else None


def _environment(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


@contextmanager
def timed(logger: logging.Logger, name: str, what: str) -> Iterator[None]:
    """Log the duration of a block at the debug level, a slow block as a warning, a failure at info.

    The block is a span ``name`` if spans are exported.
    """
    start = time.perf_counter()
    try:
        with _nothing if _tracer is None else _tracer.start_as_current_span(name, attributes={}):
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
            "%s is set, but spans cannot be exported: %s. Run: %s",
            " or ".join(_ENDPOINT),
            error,
            install_command("telemetry"),
        )
        return
    service = _environment("ICECHUNK_OTEL_SERVICE_NAME", "OTEL_SERVICE_NAME") or _ROOT
    _provider = sdk.TracerProvider(resource=resources.Resource.create({"service.name": service}))
    exporter = otlp.OTLPSpanExporter(endpoint=_environment(*_ENDPOINT))
    _provider.add_span_processor(export.BatchSpanProcessor(exporter))
    _tracer = _provider.get_tracer(_ROOT)
    atexit.register(shutdown_telemetry)


def shutdown_telemetry() -> None:
    """Export the waiting spans, and stop making spans.

    Frazil calls this function at the end of the program. It can be called several times.

    Examples:
        >>> shutdown_telemetry()
    """
    global _provider, _tracer
    provider, _provider, _tracer = _provider, None, None
    if provider is not None:
        with contextlib.suppress(Exception):  # the program ends: it cannot handle an error of the export
            provider.shutdown()


initialize_logs()
