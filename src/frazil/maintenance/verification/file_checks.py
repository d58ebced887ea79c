"""The read of one metadata file: its content, and the rules that it breaks."""

from __future__ import annotations

from collections.abc import Buffer, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from frazil.errors import ErrorKind, IcechunkError
from frazil.format.rules.violation import Violation
from frazil.repository.catalog.files import FileKind
from frazil.repository.catalog.findings import Finding
from frazil.storage.base import Storage


@dataclass(frozen=True, slots=True, eq=False)
class CheckedFile[T]:
    """A metadata file. ``value`` is None if it is missing or cannot be read."""

    value: T | None = None
    data: Buffer = b""
    findings: list[Finding] = field(default_factory=list)
    is_missing: bool = False


def check_file[T](
    storage: Storage, key: str, decode: Callable[[Any], T], violations: Callable[[Any], Iterable[Violation]]
) -> CheckedFile[T]:
    """Read a file. Damage becomes findings: the broken rules, or ``unreadable`` if no rule explains it.

    ``decode`` raises an ``IcechunkError`` for a file that readers refuse.
    """
    try:
        data = storage.get(key)
    except IcechunkError as error:
        is_missing = error.kind == ErrorKind.OBJECT_NOT_FOUND
        check = "missing" if is_missing else "unreadable"
        return CheckedFile(findings=[Finding(check, key, detail=error.message)], is_missing=is_missing)
    broken = list(violations(data))
    try:
        return CheckedFile(decode(data), data, findings_of(broken, key))
    except IcechunkError as error:
        findings = findings_of(broken, key, is_unreadable=True)
        return CheckedFile(
            None, data, findings or [Finding("unreadable", key, detail=error.message, is_unreadable=True)]
        )


def check_kind[T: Any](
    storage: Storage, kind: FileKind[T], id_: bytes, violations: Callable[[Any], Iterable[Violation]]
) -> CheckedFile[T]:
    """Read a file that is named by an id."""
    key = kind.key(id_)
    return check_file(storage, key, lambda data: kind.decoded(data, id_), violations)


def findings_of(broken: Iterable[Violation], key: str, *, is_unreadable: bool = False) -> list[Finding]:
    """Return the findings for the rules that a file breaks."""
    return [
        Finding(each.check, key, each.node, each.coordinates, each.detail, is_unreadable) for each in broken
    ]
