"""The simulation notices defects: each mutant of Frazil breaks a promise in one of the runs."""

from __future__ import annotations

import pytest
from tests.simulation.mutants import MUTANTS, Mutant, applied

from frazil.repository.clock import new_object_id


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutant_fits_the_code(mutant: Mutant) -> None:
    """A mutant whose text is not in the code any more would test nothing."""
    with applied(mutant):
        pass


def test_the_code_is_as_before_after_a_mutant() -> None:
    mutant = next(each for each in MUTANTS if each.name == "ids are not random")
    with applied(mutant):
        assert new_object_id() == bytes(12)
    assert new_object_id() != bytes(12)


@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_simulation_notices_a_mutant(mutant: Mutant) -> None:
    outcome = mutant.find()
    assert outcome is not None, f"no run noticed that {mutant.name}"
