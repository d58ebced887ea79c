"""Storage settings: optional, mutable, checked, merged field by field."""

from __future__ import annotations

from frazil.options import merged
from frazil.storage.settings import (
    StorageRetriesSettings,
    StorageSettings,
    StorageTimeoutSettings,
)


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
