"""Many snapshots of a repo info as values, and the same one by one."""

from dataclasses import replace

import numpy as np
import pytest

from frazil.errors import FormatError
from frazil.format.columns import Ragged
from frazil.format.repo_info import SnapshotEntry, SnapshotTable


def table():
    """A chain of 40 snapshots in two trees, with all that a snapshot can have."""
    rng = np.random.default_rng(3)
    ids = [rng.bytes(12) for _ in range(40)]
    return SnapshotTable.of(
        [
            SnapshotEntry(
                id_,
                None if number in (0, 20) else ids[number - 1],
                number,
                f"Änderung {number}" * (number % 3),
                {"n": number, "list": [1, {"deep": None}]} if number % 2 else {},
                tuple(ids[: number % 4]),
            )
            for number, id_ in enumerate(ids)
        ]
    )


@pytest.mark.parametrize("rows", [[], [7], [0], [39, 3, 3, 17], list(range(40))])
def test_many_are_the_same_as_one_by_one(rows):
    snapshots = table()
    assert list(snapshots.entries(np.array(rows, np.int64))) == [snapshots.entry(row) for row in rows]


def test_of_rows_that_share_their_bytes_one_at_a_time_is_read():
    snapshots = table()
    message = np.frombuffer(b"the same for all", np.uint8)
    shared = Ragged(message, np.zeros(40, np.int64), np.full(40, len(message)))
    snapshots = replace(snapshots, _messages=shared)
    entries = snapshots.entries(np.arange(40))
    assert not isinstance(entries, list)
    assert {entry.message for entry in entries} == {"the same for all"}


def test_damage_names_the_file():
    snapshots = table()
    bad = np.frombuffer(b"\xff" * 40, np.uint8)
    snapshots = replace(
        snapshots, _messages=Ragged(bad, np.arange(40), np.ones(40, np.int64)), _source="the file"
    )
    with pytest.raises(FormatError, match="the file"):
        list(snapshots.entries(np.arange(3)))


def test_rows_that_mention_a_name() -> None:
    metadata = [{}, {"k": 1}, {"a": 1, "k": None}, {"kk": {"k": 1}}]
    ids = [bytes([n]) * 12 for n in range(4)]
    table = SnapshotTable.of(
        [SnapshotEntry(i, None, n, "", m) for n, (i, m) in enumerate(zip(ids, metadata, strict=True))]
    )
    assert table.mentioning(np.arange(4), "k").tolist() == [1, 2]
    assert table.mentioning(np.array([3, 2, 0]), "k").tolist() == [2]
    assert table.mentioning(np.arange(4), "none").tolist() == []
