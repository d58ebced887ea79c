"""Object ids, 12 bytes for snapshots, manifests and chunks, 8 bytes for nodes, and the keys of files.

Inside Frazil an id is ``bytes``, and many ids are a uint8 matrix of shape (n, 12) or (n, 8). In file names
and in the public API an id is text in Crockford base32: upper case, no padding, zero bits appended on the
right. Spec version 1 has no ``repo``, but ``refs/branch.main/ref.json``, ``refs/tag.v1.0/ref.json`` (and
``ref.json.deleted`` in the same folder for a deleted tag), and ``config.yaml`` for a saved configuration.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError

OBJECT_ID_BYTES: Final = 12
NODE_ID_BYTES: Final = 8
_TEXT_LENGTH: Final = {OBJECT_ID_BYTES: 20, NODE_ID_BYTES: 13}
#: The number of characters of an object id as text.
ID_TEXT_LENGTH: Final = _TEXT_LENGTH[OBJECT_ID_BYTES]
#: How many first characters of an id are needed, at least, to name the whole id.
SHORTEST_ID_START: Final = 4

_RFC: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_CROCKFORD: Final = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TO_RFC: Final = bytes.maketrans(_CROCKFORD, _RFC)
_READ_AS: Final = bytes.maketrans(b"abcdefghijklmnopqrstuvwxyzILO", b"ABCDEFGH1JK1MN0PQRSTUVWXYZ110")
_DIGITS: Final = np.frombuffer(_CROCKFORD, np.uint8)
_NO_DIGIT: Final = 32
_VALUES: Final = np.full(256, _NO_DIGIT, np.uint8)
_VALUES[_DIGITS] = np.arange(32, dtype=np.uint8)
_HALF: Final = np.uint64(32)
#: The characters of each number of ten bits, two bytes in one number.
_PAIRS: Final = np.stack(np.broadcast_arrays(_DIGITS[:, None], _DIGITS), axis=2).reshape(-1).view(np.uint16)

_PAIR_TEXTS: Final = [bytes(pair).decode() for pair in _PAIRS.view(np.uint8).reshape(-1, 2)]


def id_to_text(id_: bytes) -> str:
    """Return the text form of an id."""
    size = len(id_)
    pairs = -(-size * 8 // 10)
    number = int.from_bytes(id_) << (10 * pairs - 8 * size)
    digits = [_PAIR_TEXTS[number >> shift & 1023] for shift in range(10 * pairs - 10, -1, -10)]
    return "".join(digits)[: -(-size * 8 // 5)]


def id_from_text(text: str, size: int = OBJECT_ID_BYTES) -> bytes:
    """Return the id for a text.

    As in Crockford base32, lower case is accepted, I and L are read as 1, and O as 0.
    """
    raw = text.encode(errors="replace").translate(_READ_AS)
    if len(raw) == _TEXT_LENGTH[size] and not raw.translate(None, _CROCKFORD):
        padded = raw.translate(_TO_RFC) + b"=" * (-len(raw) % 8)
        id_ = base64.b32decode(padded)
        if id_to_text(id_).encode() == raw:
            return id_
    raise InvalidInputError(
        f"invalid id {text!r}: expected {_TEXT_LENGTH[size]} characters of Crockford base32 (0 to 9 and A "
        f"to Z without I, L, O and U), got {len(text)}",
        ErrorKind.INVALID_SNAPSHOT_ID,
    )


def prefix_bounds(text: str) -> tuple[bytes, bytes] | None:
    """Return the smallest and the largest object id whose text begins with ``text``; None if no id does."""
    raw = text.encode(errors="replace").translate(_READ_AS)
    if len(raw) > ID_TEXT_LENGTH or raw.translate(None, _CROCKFORD):
        return None
    # 32 digits decode to 20 bytes. The id is the first 12 of them.
    padded = [raw.ljust(32, digit).translate(_TO_RFC) for digit in (b"0", b"Z")]
    first, last = (base64.b32decode(digits)[:OBJECT_ID_BYTES] for digits in padded)
    return first, last


def is_id_text(text: str, size: int = OBJECT_ID_BYTES) -> bool:
    """Return whether a text has the form of ``id_to_text``.

    Files with other names belong to other programs.
    """
    try:
        return id_to_text(id_from_text(text, size)) == text
    except InvalidInputError:
        return False


def ids_to_text(ids: NDArray[np.uint8]) -> list[str]:
    """Return the text forms of a matrix of ids of shape (n, size)."""
    count, size = ids.shape
    # One text of all ids is split, which is twice as fast as the conversion of an array of texts.
    lines = np.full((count, _TEXT_LENGTH[size] + 1), ord(" "), np.uint8)
    lines[:, :-1] = id_characters(ids)
    return lines.tobytes().decode().split()


def id_texts(ids: NDArray[np.uint8]) -> NDArray[np.str_]:
    """Return the text forms of a matrix of ids of shape (n, size), as an array of texts."""
    digits = id_characters(ids).astype(np.uint32)
    texts: NDArray[np.str_] = digits.view(f"U{digits.shape[1]}").reshape(len(ids))
    return texts


def id_characters(ids: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the characters of the text forms, uint8 of shape (n, length)."""
    count, size = ids.shape
    length = _TEXT_LENGTH[size]
    pairs = (length + 1) // 2
    padded = np.zeros((count, size + 2), np.uint16)
    padded[:, :size] = ids
    # The ten bits of two characters lie in the two bytes from bit `start`.
    start = np.arange(pairs) * 10
    first = start >> 3
    words = padded.take(first, axis=1) << 8 | padded.take(first + 1, axis=1)
    numbers = (words >> (6 - (start & 7)).astype(np.uint16)) & 1023
    characters: NDArray[np.uint8] = _PAIRS.take(numbers).view(np.uint8)
    return characters[:, :length]


def ids_from_text(
    texts: Sequence[str], size: int = OBJECT_ID_BYTES
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the ids of many texts, shape (k, size), and which of the n texts are ids, bool (n,)."""
    length = _TEXT_LENGTH[size]
    good = np.fromiter(map(len, texts), np.int64, len(texts)) == length
    good &= np.fromiter(map(str.isascii, texts), bool, len(texts))
    chosen = "".join(compress(texts, good.tolist())).encode()
    ids, clean = ids_from_characters(np.frombuffer(chosen, np.uint8).reshape(-1, length), size)
    good[np.flatnonzero(good)[~clean]] = False
    return ids, good


def ids_from_characters(
    characters: NDArray[np.uint8], size: int = OBJECT_ID_BYTES
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the ids of rows of characters, and which of the rows are ids."""
    values = _VALUES[characters]
    bits = np.unpackbits(values[:, :, None], axis=2)[:, :, 3:].reshape(len(values), -1)
    clean = (values < _NO_DIGIT).all(axis=1) & ~bits[:, size * 8 :].any(axis=1)
    return np.packbits(bits[clean, : size * 8], axis=1), clean


def id_matrix(ids: list[bytes], size: int = OBJECT_ID_BYTES) -> NDArray[np.uint8]:
    """Return ids as a matrix of shape (n, size)."""
    return np.frombuffer(b"".join(ids), np.uint8).reshape(len(ids), size)


def id_list(ids: NDArray[np.uint8]) -> list[bytes]:
    r"""Return the rows of a matrix of ids, each as bytes."""
    rows, size = ids.shape
    if not size:
        return [b""] * rows
    items: list[bytes] = np.ascontiguousarray(ids).view(f"V{size}")[:, 0].tolist()
    return items


def id_keys(ids: NDArray[np.uint8]) -> NDArray[Any]:
    """Return ids as fixed-width byte strings, which sort and search in the order of the specification."""
    rows, size = ids.shape
    return np.ascontiguousarray(ids).view(f"S{size}").reshape(rows)


def id_order(ids: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the stable order of object ids. A sort of numbers is several times as fast as one of bytes."""
    words = np.ascontiguousarray(ids).view(">u4").reshape(len(ids), OBJECT_ID_BYTES // 4)
    first = words[:, 0].astype(np.uint64)
    first <<= _HALF
    first |= words[:, 1]
    order: NDArray[np.int64] = np.argsort(first, kind="stable")
    first, last = first[order], words[order, 2]
    if ((first[1:] == first[:-1]) & (last[1:] < last[:-1])).any():
        order = np.argsort(id_keys(ids), kind="stable")
    return order


def distinct_ids(ids: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the distinct ids, sorted."""
    return ids[np.unique(id_keys(ids), return_index=True)[1]]


def ids_among(ids: NDArray[np.uint8], others: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return which of the ids are among the others. ``np.isin`` takes three times as long for ids."""
    if not len(ids) or not len(others):
        return np.zeros(len(ids), np.bool_)
    targets, keys = id_keys(ids), id_keys(others)
    if not (keys[1:] >= keys[:-1]).all():
        keys = np.sort(keys)
    places = np.minimum(np.searchsorted(keys, targets), len(keys) - 1)
    hits: NDArray[np.bool_] = keys[places] == targets
    return hits


#: The first snapshot of every repository: ``1CECHNKREP0F1RSTCMT0``.
INITIAL_SNAPSHOT_ID: Final = bytes.fromhex("0b1cc8d6787580f0e33a6534")


REPO: Final = "repo"
SNAPSHOTS: Final = "snapshots"
MANIFESTS: Final = "manifests"
TRANSACTIONS: Final = "transactions"
CHUNKS: Final = "chunks"
#: Statistics of chunks. The specification does not know the folder.
STATISTICS: Final = "statistics"
OVERWRITTEN: Final = "overwritten"
REFS: Final = "refs"
CONFIG: Final = "config.yaml"

#: 3000-01-01T00:00:00Z in milliseconds. Backups count down from it, so that a listing is newest first.
_YEAR_3000_MS: Final = 32_503_680_000_000


def _key(folder: str, id_: bytes) -> str:
    return f"{folder}/{id_to_text(id_)}"


#: Return the keys of the files with an id. A transaction log has the id of its snapshot, and a file with
#: statistics the id of its manifest.
snapshot_key: Final = partial(_key, SNAPSHOTS)
manifest_key: Final = partial(_key, MANIFESTS)
transaction_key: Final = partial(_key, TRANSACTIONS)
chunk_key: Final = partial(_key, CHUNKS)
statistics_key: Final = partial(_key, STATISTICS)


def transaction_keys(snapshot_ids: Sequence[bytes]) -> list[str]:
    """Return the keys of the transaction logs of many snapshots, faster than one by one."""
    return list(map(f"{TRANSACTIONS}/".__add__, ids_to_text(id_matrix(list(snapshot_ids)))))


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
