"""The decoders of files, each called once for the same bytes.

A decoder is a function of the bytes, and its result is immutable. All clients of a run read the same files,
so most of the work of a simulation would be decoding. `test_decoders.py` checks that the results stay the
same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import frazil.maintenance.verification.backups
import frazil.maintenance.verification.manifests
import frazil.maintenance.verification.state
import frazil.maintenance.verification.versions
from frazil.format.repo_info import RepoInfo, decode_repo_info
from frazil.repository.catalog import files

_KINDS = (
    files.SNAPSHOT,
    files.SNAPSHOT_ENTRY,
    files.MANIFEST,
    files.MANIFEST_CHUNK_FILES,
    files.TRANSACTION_LOG,
)

#: The rules of files, which a verification tests: also functions of the bytes.
_RULES = (
    (frazil.maintenance.verification.versions, "snapshot_violations"),
    (frazil.maintenance.verification.versions, "transaction_log_violations"),
    (frazil.maintenance.verification.manifests, "manifest_violations"),
    (frazil.maintenance.verification.state, "repo_info_violations"),
    (frazil.maintenance.verification.backups, "repo_info_violations"),
)

#: The most results. With more, all are forgotten.
_MOST = 10_000
_results: dict[tuple[Any, bytes, str], Any] = {}


def _store(key: tuple[Any, bytes, str], result: Any) -> Any:
    if len(_results) >= _MOST:
        _results.clear()
    _results[key] = result
    return result


def remembering(decode: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Return a decoder that remembers its results, also those of earlier runs. Errors are not remembered."""

    def decoded(data: Any, name: str) -> Any:
        key = (decode, bytes(data), name)
        result = _results.get(key)
        return _store(key, decode(data, name)) if result is None else result

    return decoded


def _remembering_rules(violations: Callable[..., Iterable[Any]]) -> Callable[..., list[Any]]:
    """Return a function that remembers the violations of rules. Its options are ids, numbers and flags."""

    def remembered(data: Any, **options: Any) -> list[Any]:
        key = (violations, bytes(data), repr(options))
        result: list[Any] | None = _results.get(key)
        return _store(key, list(violations(data, **options))) if result is None else result

    return remembered


def forget_decoded() -> None:
    """Forget all results."""
    _results.clear()


@cache
def _users(count: int) -> list[Any]:
    return [
        module
        for key, module in list(sys.modules.items())
        if (key.startswith(("frazil.", "tests.simulation.")) and key != __name__)
        and vars(module).get("decode_repo_info") is decode_repo_info
        and key != "frazil.format.repo_info"
    ]


@contextmanager
def shared_results() -> Iterator[None]:
    """Let all decoders remember their results during a block."""
    modules = _users(len(sys.modules))
    decoders = [kind.decode for kind in _KINDS]
    repo_info: Callable[[Any, str], RepoInfo] = remembering(decode_repo_info)
    for kind in _KINDS:
        object.__setattr__(kind, "decode", remembering(kind.decode))
    for module in modules:
        module.decode_repo_info = repo_info
    rules = [getattr(module, name) for module, name in _RULES]
    for (module, name), violations in zip(_RULES, rules, strict=True):
        setattr(module, name, _remembering_rules(violations))
    try:
        yield
    finally:
        for kind, decoder in zip(_KINDS, decoders, strict=True):
            object.__setattr__(kind, "decode", decoder)
        for module in modules:
            module.decode_repo_info = decode_repo_info
        for (module, name), violations in zip(_RULES, rules, strict=True):
            setattr(module, name, violations)
