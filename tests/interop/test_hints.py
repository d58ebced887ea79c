"""Containers that the reference has saved are hints to Frazil, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import icechunk
import pytest
import zarr
from tests.repository.hostile import DATA, Listener, listening, read

import frazil
from frazil.credentials import containers_credentials

SECRET = "content-of-a-secret"
Make = Callable[[str, str], Any]


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as listener:
        yield listener


CASES: dict[str, tuple[str, Make, Any]] = {
    "token file": (
        "az://box/",
        lambda url, path: icechunk.storage.azure_store(
            account="acc",
            config={"federated_token_file": path, "authority_host": url, "client_id": "c", "tenant_id": "t"},
        ),
        frazil.credentials.azure_from_env_credentials(),
    ),
    "azure endpoint": (
        "az://box/",
        lambda url, path: icechunk.storage.azure_store(
            account="a", config={"endpoint": url, "allow_http": "true"}
        ),
        frazil.credentials.azure_credentials(bearer_token=SECRET),
    ),
    "gcs endpoint": (
        "gs://box/",
        lambda url, path: icechunk.gcs_store({"google_base_url": url, "allow_http": "true"}),
        frazil.credentials.gcs_credentials(bearer_token=SECRET),
    ),
    "gcs file": (
        "gs://box/",
        lambda url, path: icechunk.gcs_store({"application_credentials": path}),
        frazil.credentials.gcs_from_env_credentials(),
    ),
    "s3 endpoint": (
        "s3://box/",
        lambda url, path: icechunk.s3_store(region="us-east-1", endpoint_url=url, allow_http=True),
        frazil.credentials.s3_credentials(access_key_id="A", secret_access_key="s", session_token=SECRET),
    ),
    "s3 region": (
        "s3://box/",
        lambda url, path: icechunk.s3_store(region="evil.example/#"),
        frazil.credentials.s3_anonymous_credentials(),
    ),
}


def write_repository(prefix: str, store: Any, path: Path) -> frazil.Storage:
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, store))
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)), config)
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="x", shape=(8,), chunks=(8,), dtype="u1", compressors=None)
    session.store.set_virtual_ref("x/c/0", f"{prefix}data", offset=0, length=8)
    session.commit("a reference")
    return frazil.local_filesystem_storage(path)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_container_of_the_reference_cannot_lead_elsewhere(
    listener: Listener, tmp_path: Path, case: tuple[str, Make, Any]
) -> None:
    prefix, make, credentials = case
    file = tmp_path / "token"
    file.write_text(SECRET)
    storage = write_repository(prefix, make(listener.url, str(file)), tmp_path / "ice")
    repo = frazil.Repository.open(storage, None, containers_credentials({prefix: credentials}))
    with pytest.raises(frazil.InvalidInputError) as error:
        read(repo)
    assert error.value.kind == "untrusted-virtual-chunk-container"
    assert SECRET not in str(error.value)
    assert listener.visits == []


def test_a_container_of_the_web_is_read(listener: Listener, tmp_path: Path) -> None:
    prefix = f"{listener.url}/"
    storage = write_repository(prefix, icechunk.http_store(), tmp_path / "ice")
    assert read(frazil.Repository.open(storage, None, {prefix: frazil.credentials.HttpAccess})) == DATA


def test_both_warn_for_none(tmp_path: Path) -> None:
    storage = write_repository("s3://box/", icechunk.s3_store(), tmp_path / "ice")
    access = {"s3://box/": None}
    with pytest.warns(DeprecationWarning, match="`None`"):
        icechunk.Repository.open(
            icechunk.local_filesystem_storage(str(tmp_path / "ice")), authorize_virtual_chunk_access=access
        )
    with pytest.warns(DeprecationWarning, match="`None`"):
        frazil.Repository.open(storage, authorize_virtual_chunk_access=access)
