"""The decoders of files, each called once for the same bytes.

A decoder is a function of the bytes, and its result is immutable. All clients of a run read the same files,
so most of the work of a simulation would be decoding. `test_decoders.py` checks that the results stay the
same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from frazil.format.repo_info import RepoInfo, decode_repo_info
from frazil.repository.catalog import assets as files

_KINDS = (
    files.SNAPSHOT,
    files.SNAPSHOT_ENTRY,
    files.MANIFEST,
    files.MANIFEST_CHUNK_FILES,
    files.TRANSACTION_LOG,
)

#: The most results. With more, all are forgotten.
_MOST = 10_000
_results: dict[tuple[Any, bytes, str, bool], Any] = {}


def _store(key: tuple[Any, bytes, str, bool], result: Any) -> Any:
    if len(_results) >= _MOST:
        _results.clear()
    _results[key] = result
    return result


def remembering(decode: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decoder that remembers its results, also those of earlier runs. Errors are not remembered.

    A verification passes a list for broken rules. These are also functions of the bytes.
    """

    def decoded(data: Any, name: str, broken: list[Any] | None = None) -> Any:
        key = (decode, bytes(data), name, broken is None)
        result = _results.get(key)
        if result is None:
            rules: list[Any] = []
            value = decode(data, name) if broken is None else decode(data, name, rules)
            result = _store(key, (value, rules))
        if broken is not None:
            broken += result[1]
        return result[0]

    return decoded


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
    try:
        yield
    finally:
        for kind, decoder in zip(_KINDS, decoders, strict=True):
            object.__setattr__(kind, "decode", decoder)
        for module in modules:
            module.decode_repo_info = decode_repo_info
