"""The rules for the header and the payload of a metadata file.

Specification: *Binary File Format*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from frazil.errors import FormatError
from frazil.format.envelope import HEADER_BYTES, MAGIC, FileType, open_envelope
from frazil.format.flatbuffer import Buffer, Tables
from frazil.format.rules.violation import Violation

_SPEC_VERSIONS: Final = (1, 2)
_COMPRESSIONS: Final = (0, 1)


def header_violations(data: Any, expected: FileType, spec_version: int) -> Iterator[Violation]:
    """Yield the broken rules of the header of a file.

    ``spec_version`` is that of the repository. Its files have this version or an earlier one.

    >>> [each.check for each in header_violations(b"ICE", FileType.SNAPSHOT, 2)]
    ['file-header']
    """
    raw = bytes(memoryview(data)[:HEADER_BYTES])
    if len(raw) < HEADER_BYTES or not raw.startswith(MAGIC):
        yield Violation("file-header", f"a file must begin with {MAGIC!r}, got {raw[:12]!r}")
        return
    version, file_type, compression = raw[36:]
    if version not in _SPEC_VERSIONS or version > spec_version:
        yield Violation("file-spec-version", f"the spec version must be 1 to {spec_version}, got {version}")
    if file_type != expected:
        yield Violation("file-type", f"the file type must be {expected.value}, got {file_type}")
    if compression not in _COMPRESSIONS:
        yield Violation("file-compression", f"the compression must be 0 or 1, got {compression}")


def violations_of(
    data: Any,
    expected: FileType,
    spec_version: int,
    rules: Callable[[Tables, int], Iterator[Violation]],
) -> list[Violation]:
    """Return the broken rules of a file: of its header, of its payload, and those that ``rules`` yields.

    ``rules`` takes the root table and the spec version of the file.
    """
    broken = list(header_violations(data, expected, spec_version))
    with suppress(FormatError):
        header, payload = _opened(data, expected, broken)
        broken += rules(Buffer(payload).root(), header.spec_version)
    return broken


def _opened(data: Any, expected: FileType, broken: list[Violation]) -> Any:
    try:
        return open_envelope(data, expected)
    except FormatError as error:
        if not broken:
            broken.append(Violation("file-payload", error.message))
        raise


__all__ = ["header_violations", "violations_of"]
