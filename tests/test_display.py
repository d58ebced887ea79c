"""Checks of the values of options. `tests/parity` compares how options are printed."""

from __future__ import annotations

import pytest

from frazil.errors import InvalidInputError
from frazil.options import unsigned
from frazil.storage.object_store_config import S3Options
from frazil.storage.settings import StorageSettings


def test_checks() -> None:
    unsigned(8)("n", None)
    unsigned(8)("n", 255)
    for value in (256, -1):
        with pytest.raises(InvalidInputError):
            unsigned(8)("n", value)
    for wrong in (True, 1.0, "1"):
        with pytest.raises(TypeError):
            unsigned(8)("n", wrong)
    StorageSettings(storage_class=None)
    with pytest.raises(TypeError, match="storage_class must be str or None, got float"):
        StorageSettings(storage_class=1.0)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(TypeError, match="allow_http must be bool, got NoneType"):
        S3Options(allow_http=None)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(AttributeError, match="storage_class"):
        StorageSettings().storage_clas = "x"  # type: ignore[attr-defined]  # what is tested
