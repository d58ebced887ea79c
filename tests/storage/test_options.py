"""Options of storages as values: settings, and configurations of object stores."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import frazil
from frazil.options import merged
from frazil.storage.object_store_config import (
    ChecksumAlgorithm,
    ObjectStoreConfig,
    S3Options,
    azure_store,
    gcs_store,
    http_store,
    local_filesystem_store,
    s3_store,
)


@pytest.mark.parametrize(
    "store",
    [
        ObjectStoreConfig.InMemory(),
        local_filesystem_store("/data"),
        s3_store(region="r", checksum_algorithm=ChecksumAlgorithm.Sha1),
        s3_store(s3_compatible=True, endpoint_url="http://127.0.0.1:9000", allow_http=True),
        ObjectStoreConfig.Tigris(S3Options()),
        gcs_store({"a": "b"}),
        azure_store(account="acc", config={"k": "v"}),
        http_store({"timeout": "3s"}, {"X": "y"}),
    ],
)
def test_values(store: Any) -> None:
    assert pickle.loads(pickle.dumps(store)) == store
    assert store != ObjectStoreConfig.LocalFileSystem("/elsewhere")
    assert isinstance(store, ObjectStoreConfig)
    assert f"ObjectStoreConfig.{type(store).__name__}" in repr(store)


def test_merged_takes_each_field_from_the_first_that_has_it() -> None:
    retries, timeouts = frazil.StorageRetriesSettings, frazil.StorageTimeoutSettings(9)
    over = frazil.StorageSettings(retries=retries(max_tries=1), unsafe_use_metadata=False)
    under = frazil.StorageSettings(retries=retries(2, 3), unsafe_use_metadata=True, timeouts=timeouts)
    assert merged(over, under) == frazil.StorageSettings(
        retries=retries(1, 3), unsafe_use_metadata=False, timeouts=timeouts
    )
    assert over.retries == retries(1)
    assert merged(None, under) == under
    assert merged(over, None) == over
