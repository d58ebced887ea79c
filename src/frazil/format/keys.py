"""The keys of a repository's files.

    repo                                    repo info, the only file that changes
    overwritten/repo.30729294865234.S0CH…   earlier versions of repo
    snapshots/1CECHNKREP0F1RSTCMT0          also manifests/, transactions/, chunks/

Spec version 1 has no ``repo``, but

    refs/branch.main/ref.json               a branch; changes
    refs/tag.v1.0/ref.json                  a tag
    refs/tag.v1.0/ref.json.deleted          marks the tag as deleted
    config.yaml                             the configuration, if it was saved; changes

Specification: *File Layout*.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from frazil.format.ids import id_matrix, id_to_text, ids_to_text

REPO: Final = "repo"
SNAPSHOTS: Final = "snapshots"
MANIFESTS: Final = "manifests"
TRANSACTIONS: Final = "transactions"
CHUNKS: Final = "chunks"
OVERWRITTEN: Final = "overwritten"
REFS: Final = "refs"
CONFIG: Final = "config.yaml"

#: 3000-01-01T00:00:00Z in milliseconds. Backups count down from it, so that a listing is newest first.
_YEAR_3000_MS: Final = 32_503_680_000_000


def snapshot_key(id_: bytes) -> str:
    """Return the key of a snapshot file."""
    return f"{SNAPSHOTS}/{id_to_text(id_)}"


def manifest_key(id_: bytes) -> str:
    """Return the key of a manifest file."""
    return f"{MANIFESTS}/{id_to_text(id_)}"


def transaction_key(snapshot_id: bytes) -> str:
    """Return the key of the transaction log of a snapshot."""
    return f"{TRANSACTIONS}/{id_to_text(snapshot_id)}"


def transaction_keys(snapshot_ids: Sequence[bytes]) -> list[str]:
    """Return the keys of the transaction logs of many snapshots, faster than one by one.

    >>> transaction_keys([bytes(12)])
    ['transactions/00000000000000000000']
    """
    return list(map(f"{TRANSACTIONS}/".__add__, ids_to_text(id_matrix(list(snapshot_ids)))))


def chunk_key(id_: bytes) -> str:
    """Return the key of a chunk file."""
    return f"{CHUNKS}/{id_to_text(id_)}"


def backup_name(now_ms: int, random: bytes, of: str = REPO) -> str:
    """Return the file name of a backup of a file that changes, without ``overwritten/``.

    >>> backup_name(1774385134766, bytes(12))
    'repo.30729294865234.00000000000000000000'
    """
    return f"{of}.{_YEAR_3000_MS - now_ms:014d}.{id_to_text(random)}"


BACKUP_NAME_RULE: Final = "a backup must have the name repo.<14 digits>.<20 characters>"
#: Returns a match for a name of ``backup_name``, and None for other names.
match_backup_name: Final[Callable[[str], re.Match[str] | None]] = re.compile(
    rf"(?:{REPO}|{re.escape(CONFIG)})\.\d{{14}}\.[0-9A-Z]{{20}}"
).fullmatch


def backup_key(name: str) -> str:
    """Return the key of the backup with this name."""
    return f"{OVERWRITTEN}/{name}"
