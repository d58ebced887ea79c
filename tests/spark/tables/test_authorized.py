"""The options `authorize-virtual` and `virtual-credentials` of the data source; no Spark runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import frazil
from frazil.credentials import Credentials, HttpAccess, LocalFileSystemAccess, S3Credentials
from frazil.spark.tables.options import PLACE_OPTIONS, repository_at


@pytest.fixture
def place(tmp_path: Path) -> str:
    frazil.Repository.create(frazil.local_filesystem_storage(tmp_path))
    return str(tmp_path)


def test_prefixes_are_read_without_credentials(place: str) -> None:
    prefixes = "s3://b/, file:///data/,https://h/"
    repo = repository_at({"path": place, "authorize-virtual": prefixes})
    assert repo.virtual_chunk_access == {
        "s3://b/": Credentials.S3(S3Credentials.Anonymous()),
        "file:///data/": LocalFileSystemAccess,
        "https://h/": HttpAccess,
    }
    assert repository_at({"path": place}).virtual_chunk_access == {}


def test_credentials_of_the_environment_are_asked_for_by_name(place: str) -> None:
    options = {"path": place, "authorize-virtual": "s3://b", "virtual-credentials": "environment"}
    assert repository_at(options).virtual_chunk_access == {"s3://b": Credentials.S3(S3Credentials.FromEnv())}
    assert "virtual-credentials" in PLACE_OPTIONS
    with pytest.raises(frazil.InvalidInputError, match="anonymous, environment, got 'mine'"):
        repository_at({**options, "virtual-credentials": "mine"})
