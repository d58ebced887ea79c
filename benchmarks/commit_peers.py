"""Implementations that commit to a local disk: repositories with and without flushes, and SQLite.

A commit in SQLite is one `INSERT` of the same document, with `synchronous=FULL`: a commit is durable when it
returns, as in Frazil.
"""

from __future__ import annotations

import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any

from workload import FRAZIL, REFERENCE

NO_FLUSH = "frazil, no flush"
WAL, JOURNAL = "SQLite, WAL", "SQLite, journal"
_JOURNALS = {WAL: "wal", JOURNAL: "delete"}

PACKAGES_OF_COMMITS = {NO_FLUSH: FRAZIL, WAL: "sqlite3", JOURNAL: "sqlite3"}
DURABLE = (FRAZIL, REFERENCE, WAL, JOURNAL)


def module_and_storage(implementation: str, root: str) -> tuple[Any, Any]:
    """Return the package and the storage of an implementation with repositories."""
    package = import_module(PACKAGES_OF_COMMITS.get(implementation, implementation))
    options = {"flush": False} if implementation == NO_FLUSH else {}
    return package, package.local_filesystem_storage(root, **options)


def connection(implementation: str, root: str) -> sqlite3.Connection | None:
    """Open the database of SQLite, or return None for an implementation with repositories."""
    mode = _JOURNALS.get(implementation)
    if mode is None:
        return None
    database = sqlite3.connect(Path(root) / "commits.db", timeout=600, isolation_level=None)
    database.execute(f"PRAGMA journal_mode={mode}")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE IF NOT EXISTS commits (message TEXT, document BLOB)")
    return database


def insert(database: sqlite3.Connection, message: str, document: bytes) -> None:
    """Make one commit."""
    database.execute("INSERT INTO commits VALUES (?, ?)", (message, document))


def messages(database: sqlite3.Connection) -> list[str]:
    """Return the messages of all commits."""
    return [row[0] for row in database.execute("SELECT message FROM commits")]
