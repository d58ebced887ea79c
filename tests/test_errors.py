"""The kind of an error, for programs that are checked strictly."""

from __future__ import annotations

import copy
import pickle

import frazil
from frazil import ErrorKind


def test_kinds_are_members_and_text() -> None:
    for kind in (ErrorKind.IO, "io"):
        error = frazil.StorageError("broken", kind)
        for each in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert each.kind is ErrorKind.IO
            assert str(each.kind) == each.kind.value == "io"
    assert frazil.StorageError("broken").kind is ErrorKind.OBJECT_STORE


def test_what_other_code_makes_up_stays_text() -> None:
    assert frazil.IcechunkError("broken", "my-own").kind == "my-own"
