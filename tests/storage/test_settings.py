"""Storage settings: optional, mutable, checked, merged field by field."""

from __future__ import annotations

import pytest

from frazil.errors import InvalidInputError
from frazil.options import merged
from frazil.storage.settings import (
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
)


def test_wrong_values_are_refused_in_calls_and_assignments() -> None:
    with pytest.raises(InvalidInputError, match="max_tries must be between 1 and 65535, got 0"):
        StorageRetriesSettings(max_tries=0)
    with pytest.raises(InvalidInputError):
        StorageTimeoutSettings(connect_timeout_ms=2**32)
    with pytest.raises(TypeError, match="max_tries"):
        StorageRetriesSettings(max_tries="3")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(TypeError, match="bool"):
        StorageSettings(unsafe_use_metadata=1)  # type: ignore[arg-type]  # what is tested
    settings = StorageSettings()
    with pytest.raises(TypeError, match="StorageRetriesSettings"):
        settings.retries = 3  # type: ignore[assignment]  # what is tested
    with pytest.raises(AttributeError):
        settings.nope = 1  # type: ignore[attr-defined]  # what is tested


def test_merged_takes_each_field_from_the_first_that_has_it() -> None:
    over = StorageSettings(retries=StorageRetriesSettings(max_tries=1), unsafe_use_metadata=False)
    under = StorageSettings(
        retries=StorageRetriesSettings(2, 3), unsafe_use_metadata=True, timeouts=StorageTimeoutSettings(9)
    )
    assert merged(over, under) == StorageSettings(
        retries=StorageRetriesSettings(1, 3), unsafe_use_metadata=False, timeouts=StorageTimeoutSettings(9)
    )
    assert over.retries == StorageRetriesSettings(1)
    assert merged(None, under) == under
    assert merged(over, None) == over
