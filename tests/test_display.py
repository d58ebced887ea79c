"""The one way of printing: calls, records, HTML."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frazil.errors import InvalidInputError
from frazil.options import unsigned
from frazil.repository.settings.config import CompressionConfig
from frazil.storage.object_store_config import ObjectStoreConfig, S3Options
from frazil.storage.settings import StorageRetriesSettings, StorageSettings


def test_a_call_is_nested_with_four_spaces() -> None:
    settings = StorageSettings(retries=StorageRetriesSettings(3), storage_class='a"b')
    text = repr(settings)
    assert 'storage_class="a\\"b",\n' in text
    assert "    retries=frazil.storage.StorageRetriesSettings(\n        max_tries=3,\n" in text
    assert text.endswith("    timeouts=None,\n)")


def test_a_record_says_what_holds() -> None:
    assert str(CompressionConfig(level=9)) == (
        "<frazil.config.CompressionConfig>\nalgorithm: Zstd (default)\nlevel: 9\n"
    )


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


def test_a_family_has_instances_of_its_variants_only() -> None:
    assert isinstance(ObjectStoreConfig.Gcs(None), ObjectStoreConfig)
    assert not isinstance(3, ObjectStoreConfig)


def test_options_store_plain_values_of_numpy_values() -> None:
    values: dict[str, Any] = {"unsafe_use_metadata": np.bool_(True)}
    values["minimum_size_for_multipart_upload"] = np.int64(3)
    settings = StorageSettings(**values)
    assert settings.unsafe_use_metadata is True
    assert type(settings.minimum_size_for_multipart_upload) is int
    with pytest.raises(AttributeError, match="storage_class"):
        settings.storage_clas = "x"
