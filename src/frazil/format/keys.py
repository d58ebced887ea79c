"""Where things live: the layout of a repository's files (specification, "File Layout").

repo                                    repo info, the only file that changes
overwritten/repo.30729294865234.S0CH…   earlier versions of it
snapshots/1CECHNKREP0F1RSTCMT0          also manifests/, transactions/, chunks/
"""

from __future__ import annotations

from typing import Final

from frazil.format.ids import id_to_text

REPO: Final = "repo"
SNAPSHOTS: Final = "snapshots"
MANIFESTS: Final = "manifests"
TRANSACTIONS: Final = "transactions"
CHUNKS: Final = "chunks"
OVERWRITTEN: Final = "overwritten"

#: 3000-01-01T00:00:00Z in milliseconds: backups count down from it, so that a listing is newest first.
_YEAR_3000_MS: Final = 32_503_680_000_000


def snapshot_key(id_: bytes) -> str:
    return f"{SNAPSHOTS}/{id_to_text(id_)}"


def manifest_key(id_: bytes) -> str:
    return f"{MANIFESTS}/{id_to_text(id_)}"


def transaction_key(snapshot_id: bytes) -> str:
    return f"{TRANSACTIONS}/{id_to_text(snapshot_id)}"


def chunk_key(id_: bytes) -> str:
    return f"{CHUNKS}/{id_to_text(id_)}"


def backup_name(now_ms: int, random: bytes) -> str:
    """File name of a backup of ``repo``, without the ``overwritten/`` before it.

    >>> backup_name(1774385134766, bytes(12))
    'repo.30729294865234.00000000000000000000'
    """
    return f"repo.{_YEAR_3000_MS - now_ms:014d}.{id_to_text(random)}"


def backup_key(name: str) -> str:
    return f"{OVERWRITTEN}/{name}"
