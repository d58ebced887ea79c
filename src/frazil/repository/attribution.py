"""Attribution: labels for the ``User-Agent`` header of every request to the storage."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from frazil.about import user_agent
from frazil.arguments import check_fields
from frazil.display import Record, Shown, call, literal
from frazil.errors import ErrorKind, InvalidInputError

_MAX_BYTES: Final = 128
_TOKEN: Final = r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+"
_PRODUCT: Final = re.compile(f"{_TOKEN}(/{_TOKEN})?")
# The characters that a comment of the header can hold: all but ( ) ; = " and backslash.
_LABEL: Final = re.compile(r"[ !#$%&'*+,\-./0-9:<>?@A-Z\[\]^_`a-z{|}~]*")


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Attribution(Record, shown_as="Attribution"):
    """Labels of a repository's requests, which appear in the access logs of the storage.

    Each label has at most 128 bytes. ``InvalidInputError`` (``storage-config``), which is a ``ValueError``,
    is raised for other values.

    Attributes:
        client: The program, as ``name`` or ``name/version`` in token characters of HTTP.
        workload: What the program does: printable ASCII without ``( ) ; = "`` and backslash.
        principal: For whom the program works: printable ASCII without ``( ) ; = "`` and backslash.

    Examples:
        >>> Attribution(client="ingest/1.2", workload="nightly").client
        'ingest/1.2'
    """

    client: str | None = None
    workload: str | None = None
    principal: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name, value in self._values():
            if value is not None and len(value.encode()) > _MAX_BYTES:
                raise _invalid(name, f"at most {_MAX_BYTES} bytes long", f"{len(value.encode())} bytes")
        if self.client is not None and not _PRODUCT.fullmatch(self.client):
            raise _invalid("client", "`name` or `name/version` in token characters", repr(self.client))
        for name, value in (("workload", self.workload), ("principal", self.principal)):
            if value is not None and not _LABEL.fullmatch(value):
                raise _invalid(name, 'printable ASCII without ( ) ; = " or backslash', repr(value))

    def user_agent(self) -> str:
        """Return the ``User-Agent`` header of the requests.

        Returns:
            The client, Frazil with its version, and the other labels as a comment.

        Examples:
            >>> labels = Attribution(client="ingest/1.2", workload="nightly")
            >>> labels.user_agent().replace(user_agent(), "frazil")
            'ingest/1.2 frazil (workload=nightly)'
        """
        labels = [f"{name}={value}" for name, value in self._values()[1:] if value]
        parts = (self.client, user_agent(), f"({'; '.join(labels)})" if labels else None)
        return " ".join(filter(None, parts))

    def _values(self) -> tuple[tuple[str, str | None], ...]:
        return (("client", self.client), ("workload", self.workload), ("principal", self.principal))

    def __repr__(self) -> str:
        return call(self._title(), self._values())

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        return ((name, literal(value)) for name, value in self._values())


def current_user() -> str:
    """Return the name of the user of this process. Empty if the host does not know it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def _invalid(name: str, expected: str, actual: str) -> InvalidInputError:
    return InvalidInputError(
        f"attribution `{name}` must be {expected}, got {actual}", ErrorKind.STORAGE_CONFIG
    )
