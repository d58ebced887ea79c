"""The state of a verification: which pieces of work are done, so that a second run skips them.

The state is a database of SQLite: a file, or in memory. It has one row for each piece that is done and has no
finding. The key is a hash of everything that the result depends on: the storage, the id of an immutable file,
and sizes and times of the files below it. So a piece with other files has another key, and is done again.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.lazy_names import ModuleOnDemand

if TYPE_CHECKING:
    import sqlite3
else:
    sqlite3 = ModuleOnDemand("sqlite3")


_TABLE: Final = "CREATE TABLE IF NOT EXISTS pieces (key BLOB PRIMARY KEY, result BLOB NOT NULL) WITHOUT ROWID"


class VerificationState:
    """The pieces of a verification that are done.

    Args:
        path: The file of the state, which is created if it does not exist. Default: in memory.

    Raises:
        InvalidInputError: ``invalid-argument`` if the file is not the state of a verification.
        TypeError: ``path`` is neither a path nor None.

    Examples:
        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> state = frazil.VerificationState()
        >>> repo.upkeep.verify("exists", state=state).ok, len(state)
        (True, 0)
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._lock = Lock()
        self._path = ":memory:" if path is None else _path("path", path, "a path or None")
        try:
            self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._database.close)
            self._database.execute("PRAGMA synchronous = OFF")
            self._database.execute(_TABLE)
            self._database.execute("SELECT key, result FROM pieces LIMIT 1").fetchall()
        except sqlite3.Error as error:
            raise InvalidInputError(
                f"state must be a new file or the state of a verification, got {self._path!r}: {error}. Use "
                "another file, or delete this one",
                ErrorKind.INVALID_ARGUMENT,
            ) from error

    def __len__(self) -> int:
        row = self._fetch("SELECT count(*) FROM pieces")
        return 0 if row is None else int(row[0])

    def __repr__(self) -> str:
        return f"<frazil.VerificationState {self._path}: {len(self)} pieces>"

    def find_result(self, key: bytes) -> bytes | None:
        """Return the result of a piece, or None if the piece is not done.

        Args:
            key: The key, as `piece_key` makes it.

        Returns:
            The bytes that were stored.

        Examples:
            >>> VerificationState().find_result(piece_key("manifest")) is None
            True
        """
        row = self._fetch("SELECT result FROM pieces WHERE key = ?", key)
        return None if row is None else bytes(row[0])

    def store_result(self, key: bytes, result: bytes) -> None:
        """Record that a piece is done.

        Args:
            key: The key, as `piece_key` makes it.
            result: The result of the piece.

        Examples:
            >>> state = VerificationState()
            >>> state.store_result(piece_key("manifest"), b"done")
            >>> state.find_result(piece_key("manifest"))
            b'done'
        """
        with self._lock:
            self._database.execute("INSERT OR REPLACE INTO pieces VALUES (?, ?)", (key, result))

    def close(self) -> None:
        """Close the file.

        Examples:
            >>> VerificationState().close()
        """
        with self._lock:
            self._database.close()

    def _fetch(self, query: str, *values: bytes) -> tuple[Any, ...] | None:
        with self._lock:
            row: tuple[Any, ...] | None = self._database.execute(query, values).fetchone()
            return row


def state_at(state: VerificationState | str | os.PathLike[str] | None) -> VerificationState | None:
    """Return the state of a file, or a given state. Raises ``InvalidInputError`` for another file."""
    if state is None or isinstance(state, VerificationState):
        return state
    return VerificationState(_path("state", state, "a VerificationState, a path or None"))


def _path(name: str, value: object, expected: str) -> str:
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise TypeError(f"{name} must be {expected}, got {type(value).__name__}")
    if not path or "\0" in path:
        raise InvalidInputError(
            f"{name} must be the path of a file, got {path!r:.80}", ErrorKind.INVALID_ARGUMENT
        )
    return path


def piece_key(*parts: bytes | str | int) -> bytes:
    """Return the key of a piece: a hash of everything that its result depends on.

    >>> piece_key("manifest", b"id", 1) == piece_key("manifest", b"id", 2)
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()


__all__ = ["VerificationState", "piece_key", "state_at"]
