"""The limits and the report of a compaction."""

from __future__ import annotations

import pytest

import frazil
from frazil.errors import InvalidInputError


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"live_fraction": 1.5}, "live_fraction must be from 0 to 1, got 1.5"),
        ({"small_size": -1}, "small_size must be at least 0, got -1"),
        ({"pack_size": 0}, "pack_size must be from 1 to"),
    ],
)
def test_limits_outside_of_their_ranges(limits: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        frazil.CompactionLimits(**limits)
    assert caught.value.kind == "invalid-argument"


@pytest.mark.parametrize("limits", [{"arrays": "/t"}, {"arrays": (1,)}, {"live_fraction": "0.5"}])
def test_limits_of_other_types(limits: dict) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(limits))} must be"):
        frazil.CompactionLimits(**limits)


def test_a_report_says_what_it_is() -> None:
    assert "state: plan" in str(frazil.CompactionReport(new_manifests=1))
    assert "nothing to do" in str(frazil.CompactionReport())
    done = frazil.CompactionReport(snapshots={"main": "1CECHNKREP0F1RSTCMT0"})
    assert "branch main: 1CECHNKREP0F1RSTCMT0" in str(done)
    assert (done.is_empty, frazil.CompactionReport().is_empty) == (False, True)
