"""The read of one metadata file: its content, and the rules that it breaks."""

from __future__ import annotations

from collections.abc import Buffer, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from frazil.errors import ErrorKind, IcechunkError
from frazil.format.rules.violation import Violation
from frazil.maintenance.verification.findings import Finding
from frazil.maintenance.verification.requests import problem
from frazil.repository.catalog.files import FileKind
from frazil.storage.base import Storage
from frazil.storage.outages import is_outage, require_whole


@dataclass(frozen=True, slots=True, eq=False)
class CheckedFile[T]:
    """A metadata file. ``value`` is None if it is missing or cannot be read.

    ``outage`` is the error of a storage that did not return the file.
    """

    value: T | None = None
    data: Buffer = b""
    findings: list[Finding] = field(default_factory=list)
    is_missing: bool = False
    outage: IcechunkError | None = None


def read_check(error: IcechunkError) -> str:
    """Return the name of the check that the error of a read belongs to."""
    if is_outage(error):
        return "unavailable"
    return "missing" if error.kind == ErrorKind.OBJECT_NOT_FOUND else "unreadable"


def read_finding(error: IcechunkError, key: str) -> Finding:
    """Return the finding for a file that cannot be read. Readers refuse a file that is not unavailable."""
    check = read_check(error)
    return Finding(check, key, detail=error.message, is_unreadable=check != "unavailable")


def check_file[T](
    storage: Storage, key: str, decode: Callable[[Any], T], violations: Callable[[Any], Iterable[Violation]]
) -> CheckedFile[T]:
    """Read a file. Damage becomes findings: the broken rules, or ``unreadable`` if no rule explains it.

    ``decode`` raises an ``IcechunkError`` for a file that readers refuse.
    """
    try:
        data = storage.get(key)
    except IcechunkError as error:
        check = read_check(error)
        findings = [Finding(check, key, detail=error.message)]
        outage = error if check == "unavailable" else None
        return CheckedFile(findings=findings, is_missing=check == "missing", outage=outage)
    broken = list(violations(data))
    try:
        return CheckedFile(decode(data), data, findings_of(broken, key))
    except IcechunkError as error:
        if (short := problem(partial(require_whole, storage, key, data))) is not None:
            return CheckedFile(findings=[read_finding(short, key)], outage=short)
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
