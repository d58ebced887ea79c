"""Options of the object store client: time-outs, retries and headers."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from frazil.about import user_agent
from frazil.storage.option_names import CLIENT_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import ClientConfig, RetryConfig

    from frazil.storage.settings import StorageSettings

#: A read without progress fails after this number of seconds. It is the reference's default.
DEFAULT_STREAM_TIMEOUT: Final = 60
#: Limit for one try, also for the upload of a large part over a slow network. The client's default is 30 s.
_ATTEMPT_TIMEOUT: Final = timedelta(minutes=10)
#: The client has an option for this header.
_USER_AGENT: Final = "user-agent"
#: Limit for one request with all its retries. The client signs every retry again.
_RETRY_TIMEOUT: Final = timedelta(minutes=5)

#: Options of the HTTP client. All other options belong to the store.
_CLIENT_OPTIONS: Final = CLIENT_OPTIONS | {
    "allow_http",
    "allow_invalid_certificates",
    "default_content_type",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "user_agent",
}


def _milliseconds(value: int | None, default: timedelta) -> timedelta:
    return default if value is None else timedelta(milliseconds=value)


def client_options(
    settings: StorageSettings, headers: Mapping[str, str], stream_timeout: int | None = None
) -> ClientConfig:
    """Return options of the HTTP client. Times are ``timedelta``."""
    timeouts = settings.timeouts
    stream = DEFAULT_STREAM_TIMEOUT if stream_timeout is None else stream_timeout
    client: ClientConfig = {"user_agent": user_agent(), "timeout": _ATTEMPT_TIMEOUT}
    if stream:
        client["read_timeout"] = timedelta(seconds=stream)
    plain_headers = {name: value for name, value in headers.items() if name.lower() != _USER_AGENT}
    if len(plain_headers) < len(headers):
        client["user_agent"] = next(v for name, v in headers.items() if name.lower() == _USER_AGENT)
    if plain_headers:
        client["default_headers"] = plain_headers
    if timeouts is not None:
        client["timeout"] = _milliseconds(timeouts.operation_attempt_timeout_ms, _ATTEMPT_TIMEOUT)
        if timeouts.connect_timeout_ms is not None:
            client["connect_timeout"] = timedelta(milliseconds=timeouts.connect_timeout_ms)
        if timeouts.read_timeout_ms is not None:
            client["read_timeout"] = timedelta(milliseconds=timeouts.read_timeout_ms)
    return client


def retry_config(settings: StorageSettings) -> RetryConfig:
    """Return how often a client repeats a request, and how long it waits before."""
    retries, timeouts = settings.retries, settings.timeouts
    total = None if timeouts is None else timeouts.operation_timeout_ms
    tries = 10 if retries is None or retries.max_tries is None else retries.max_tries
    first = 100 if retries is None else retries.initial_backoff_ms
    longest = 180_000 if retries is None else retries.max_backoff_ms
    return {
        "max_retries": tries - 1,
        "retry_timeout": _milliseconds(total, _RETRY_TIMEOUT),
        "backoff": {
            "init_backoff": _milliseconds(first, timedelta(milliseconds=100)),
            "max_backoff": _milliseconds(longest, timedelta(minutes=3)),
        },
    }


def split_options(
    options: Mapping[str, str], settings: StorageSettings, headers: Mapping[str, str]
) -> tuple[ClientConfig, dict[str, Any]]:
    """Return the options of the HTTP client, and the options of the store."""
    client: dict[str, Any] = dict(client_options(settings, headers))
    client |= {name: value for name, value in options.items() if name in _CLIENT_OPTIONS}
    store = {name: value for name, value in options.items() if name not in _CLIENT_OPTIONS}
    return client, store  # type: ignore[return-value]  # a TypedDict, built by key
