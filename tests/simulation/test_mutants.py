"""The simulation notices defects: each mutant of Frazil breaks a promise in one of the runs."""

from __future__ import annotations

import pytest
from tests.simulation.mutants import MUTANTS, Mutant, applied


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutant_fits_the_code(mutant: Mutant) -> None:
    """A mutant whose function does not exist any more would test nothing."""
    with applied(mutant):
        pass


@pytest.mark.sample(17, 17)
@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_simulation_notices_a_mutant(mutant: Mutant) -> None:
    outcome = mutant.find()
    assert outcome is not None, f"no run noticed that {mutant.name}"
