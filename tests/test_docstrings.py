"""Docstrings of public names: a summary, the arguments, the result, and an example that runs.

`test_doctests.py` runs the examples.
"""

from __future__ import annotations

from tests.support.docstrings import PublicName, gaps_of, public_names

NAMES = public_names()


def test_public_names_have_complete_docstrings() -> None:
    gaps = {name.name: missing for name in NAMES if (missing := gaps_of(name))}
    assert gaps == {}


def test_there_are_public_names_of_every_kind() -> None:
    names = {name.name for name in NAMES}
    assert {"frazil.Repository.create", "frazil.Session.snapshot_id", "frazil.pipeline.ingest"} <= names
    assert len(names) > 300


def test_gaps_are_noticed() -> None:
    def brief(one: int) -> int:
        """Return the argument."""
        return one

    assert gaps_of(PublicName("frazil.brief", brief)) == ["no argument one", "no Returns:", "no example"]
