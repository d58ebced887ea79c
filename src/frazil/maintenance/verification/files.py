"""The read of one file: its content, the rules that it breaks, and errors as findings."""

from __future__ import annotations

from collections.abc import Buffer, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from frazil.errors import ErrorKind, FormatError, IcechunkError
from frazil.format.envelope import spec_version_of
from frazil.format.manifest import ChunkTable, VirtualRef
from frazil.format.violations import Violation
from frazil.maintenance.verification.findings import Finding
from frazil.repository.catalog.files import FileKind
from frazil.storage.base import Storage
from frazil.storage.foreign.base import is_foreign_outage
from frazil.storage.outages import is_outage, require_whole

#: The checks of foreign objects, by the kinds of errors of their reads.
_VIRTUAL: Final = {
    ErrorKind.VIRTUAL_CHUNK_MODIFIED: "virtual-modified",
    ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER: "virtual-unauthorized",
    ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK: "virtual-unauthorized",
}


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


@contextmanager
def noted(findings: list[Finding], key: str) -> Iterator[None]:
    """Turn an error of a read in the block into a finding: some columns are decoded when they are used."""
    try:
        yield
    except IcechunkError as error:
        findings.append(read_finding(error, key))


def check_file[T](storage: Storage, key: str, decode: Callable[[Any, list[Violation]], T]) -> CheckedFile[T]:
    """Read a file. Damage becomes findings: the broken rules, or ``unreadable`` if no rule explains it.

    ``decode`` adds broken rules to a list, and raises an ``IcechunkError`` for a file that readers refuse.
    """
    try:
        data = storage.get(key)
    except IcechunkError as error:
        check = read_check(error)
        findings = [Finding(check, key, detail=error.message)]
        outage = error if check == "unavailable" else None
        return CheckedFile(findings=findings, is_missing=check == "missing", outage=outage)
    broken: list[Violation] = []
    value, is_refused = None, False
    try:
        value = decode(data, broken)
    except IcechunkError as error:
        try:
            require_whole(storage, key, data)
        except IcechunkError as short:
            return CheckedFile(findings=[read_finding(short, key)], outage=short)
        is_refused = True
        check = error.check if isinstance(error, FormatError) and error.check else "unreadable"
        broken.append(Violation(check, error.message))
    findings = [
        Finding(each.check, key, each.node, each.coordinates, each.detail, is_refused) for each in broken
    ]
    return CheckedFile(value, data, findings)


def check_kind[T: Any](storage: Storage, kind: FileKind[T], id_: bytes, spec_version: int) -> CheckedFile[T]:
    """Read a file that is named by an id, in a repository of a spec version."""

    def decode(data: Any, broken: list[Violation]) -> T:
        value = kind.decoded(data, id_, broken)
        if (version := spec_version_of(data)) > spec_version:
            detail = f"the spec version must be 1 to {spec_version}, got {version}"
            broken.append(Violation("file-spec-version", detail))
        return value

    return check_file(storage, kind.key(id_), decode)


def virtual_check(error: IcechunkError) -> str:
    """Return the name of the check that the error of a foreign read belongs to.

    An error of the network or of a permission says nothing about the object: it could not be read.
    """
    other = "virtual-unavailable" if is_foreign_outage(error) else "virtual-unreadable"
    return _VIRTUAL.get(error.kind, other)


def virtual(table: ChunkTable, row: int, offset: int, length: int) -> VirtualRef:
    """Return a reference to a range of the foreign object ``row`` of a table, with its checksum."""
    foreign = table.foreign
    etag, modified = foreign.etags.text(row) or None, int(foreign.modified[row]) or None
    return VirtualRef(foreign.locations.text(row), offset, length, etag, modified)
