"""The rows of versions, beside the repository."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from tests.histories import layout
from tests.histories.layout import Changes

import frazil


def require_arrays(store: frazil.IcechunkStore, row: layout.Row, journal: list[int]) -> None:
    """Compare a row with what zarr reads."""
    arrays = {
        name: np.asarray(zarr.open_array(store, path=name, mode="r")[:])
        for name in ("slots", "left", "right", "journal")
    }
    assert (arrays["slots"] == row[: layout.LEFT, None]).all()
    np.testing.assert_array_equal(arrays["left"], row[layout.LEFT : layout.RIGHT])
    np.testing.assert_array_equal(arrays["right"], row[layout.RIGHT : layout.LENGTH])
    assert arrays["journal"].tolist() == journal
    assert row[layout.LENGTH] == len(journal)
    assert list(zarr.open_group(store, path="names", mode="r").group_keys()) == [str(row[layout.NAME])]


@pytest.mark.parametrize("packs", [True, False])
def test_the_model_of_a_version_is_what_readers_get(packs: bool) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage(), layout.config(packs=packs))
    layout.create(repo)
    model = layout.first_row()
    for number in range(3, 7):
        changes = Changes({number: number}, {number % 4: number}, (number - 3, number))
        with repo.transaction("main", message="changes") as store:
            assert layout.journal_length(store) == number - 3
            layout.write(store, changes)
        session = repo.rearrange_session("main")
        renaming = Changes({}, {}, name=number)
        layout.rename(session, renaming)
        session.commit("a name")
        model = layout.apply(layout.apply(model, changes), renaming)
        store = repo.readonly_session("main").store
        np.testing.assert_array_equal(layout.read(store), model)
        require_arrays(store, model, list(range(3, number + 1)))
