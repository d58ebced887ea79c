"""The rows of versions, beside the repository."""

from __future__ import annotations

import numpy as np
import pytest
from tests.history import layout
from tests.history.layout import Changes

import frazil


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
        model = layout.apply(model, changes)
        np.testing.assert_array_equal(layout.read(repo.readonly_session("main").store), model)
