"""The simulation notices defects: each mutant of Frazil breaks a promise in one of the runs."""

from __future__ import annotations

import pytest
from tests.simulation.mutants import MUTANTS, Mutant, applied
from tests.simulation.run import template

from frazil.repository.ids import new_object_id


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_mutant_fits_the_code(mutant: Mutant) -> None:
    """A mutant whose function does not exist any more would test nothing."""
    with applied(mutant):
        pass


def test_the_code_is_as_before_after_a_mutant() -> None:
    mutant = next(each for each in MUTANTS if each.name == "ids are not random")
    with applied(mutant):
        assert new_object_id() == bytes(12)
    assert new_object_id() != bytes(12)


def test_a_mutant_leaves_no_files_for_later_runs() -> None:
    """A template that a mutant had written would be damaged in all later runs of the process."""
    sound = dict(template(2, "files"))
    template.cache_clear()
    with applied(next(each for each in MUTANTS if each.name == "the ops log loses entries")):
        assert template(2, "files") != sound
    assert template(2, "files") == sound


@pytest.mark.sample(17, 17)
@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_simulation_notices_a_mutant(mutant: Mutant) -> None:
    outcome = mutant.find()
    assert outcome is not None, f"no run noticed that {mutant.name}"
