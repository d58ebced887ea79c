"""Secrets of containers are not saved without being asked for, and never printed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from tests.support.errors import of_kind

import frazil
from frazil.storage import (
    ObjectStoreConfig,
    S3Options,
    azure_store,
    gcs_store,
    http_store,
    local_filesystem_store,
    s3_store,
    storage_from_url,
)
from frazil.storage.foreign_objects import address_of

SECRET = "do-not-tell"


def config_with(prefix: str, store: Any) -> frazil.RepositoryConfig:
    config = frazil.RepositoryConfig()
    config.set_virtual_chunk_container(frazil.VirtualChunkContainer(prefix, store))
    return config


SECRETS: dict[str, tuple[str, Any, str]] = {
    "gcs bearer": ("gs://b/", gcs_store({"bearer_token": SECRET}), "`bearer_token`"),
    "gcs key": ("gs://b/", gcs_store({"GOOGLE_SERVICE_ACCOUNT_KEY": SECRET}), "SERVICE_ACCOUNT_KEY"),
    "azure key": ("az://c/", azure_store(account="a", config={"access_key": SECRET}), "`access_key`"),
    "azure sas": ("az://c/", azure_store(account="a", config={"azure_storage_sas_token": SECRET}), "sas"),
    "azure client": ("az://c/", azure_store(account="a", config={"client_secret": SECRET}), "client_secret"),
    "unknown": ("az://c/", azure_store(account="a", config={"tomorrows": SECRET}), "`tomorrows`"),
    "http option": ("https://h/", http_store({"tomorrows": SECRET}), "`tomorrows`"),
    "authorization": ("https://h/", http_store(None, {"Authorization": f"Bearer {SECRET}"}), "Authorization"),
    "api key": ("https://h/", http_store(None, {"X-Api-Key": SECRET, "Accept": "*/*"}), "`X-Api-Key`"),
    "cookie": ("https://h/", http_store(None, {"cookie": SECRET}), "`cookie`"),
    "proxy": ("gs://b/", gcs_store({"proxy_url": f"http://me:{SECRET}@proxy:1"}), "`proxy_url`"),
    "gcs endpoint": ("gs://b/", gcs_store({"base_url": f"http://h/?sig={SECRET}"}), "`base_url`"),
    "s3 endpoint": ("s3://b/", s3_store(endpoint_url=f"https://me:{SECRET}@h"), "`endpoint_url`"),
    "tigris endpoint": (
        "tigris://b/",
        ObjectStoreConfig.Tigris(S3Options(endpoint_url=f"https://h/?token={SECRET}")),
        "`endpoint_url`",
    ),
    "proxy without a scheme": ("gs://b/", gcs_store({"proxy_url": f"me:{SECRET}@proxy:1"}), "`proxy_url`"),
    "one slash": ("gs://b/", gcs_store({"base_url": f"https:/me:{SECRET}@h"}), "`base_url`"),
    "space": ("s3://b/", s3_store(endpoint_url=f" https://me:{SECRET}@h"), "`endpoint_url`"),
    "line break": ("s3://b/", s3_store(endpoint_url=f"ht\ntp://me:{SECRET}@h"), "`endpoint_url`"),
    "query without a name": ("s3://b/", s3_store(endpoint_url=f"https://h/?{SECRET}"), "`endpoint_url`"),
    "prefix": (f"https://me:{SECRET}@h/", http_store(), "the user name in the URL"),
}


@pytest.mark.parametrize("case", SECRETS.values(), ids=SECRETS.keys())
def test_secrets_are_saved_only_on_request(case: tuple[str, Any, str]) -> None:
    prefix, store, word = case
    config = config_with(prefix, store)
    create, open_or_create = frazil.Repository.create, frazil.Repository.open_or_create
    for make in (create, open_or_create):
        storage = frazil.in_memory_storage()
        with pytest.raises(frazil.InvalidInputError) as error:
            make(storage, config)
        assert error.value.kind == "secret-in-config"
        assert word in str(error.value)
        assert "store_secrets=True" in str(error.value)
        assert SECRET not in str(error.value)
        assert list(storage.list("")) == []
    create(storage)
    mine = frazil.Repository.open(storage, config)
    with pytest.raises(frazil.InvalidInputError, check=of_kind("secret-in-config")):
        mine.save_config()
    assert SECRET.encode() not in b"".join(bytes(storage.get(each.key)) for each in storage.list(""))
    mine.save_config(store_secrets=True)
    saved = frazil.Repository.open(storage)
    assert saved.config.get_virtual_chunk_container(prefix) == config.get_virtual_chunk_container(prefix)
    saved.save_config()  # what is there already is no new secret
    for make in (create, open_or_create):
        repo_with_secrets = make(frazil.in_memory_storage(), config, store_secrets=True)
        assert frazil.Repository.open(repo_with_secrets.storage).config.virtual_chunk_containers


@pytest.mark.parametrize("case", SECRETS.values(), ids=SECRETS.keys())
def test_secrets_are_not_printed(case: tuple[str, Any, str]) -> None:
    prefix, store, _ = case
    config = config_with(prefix, store)
    repo = frazil.Repository.open(frazil.Repository.create(frazil.in_memory_storage()).storage, config)
    container = config.get_virtual_chunk_container(prefix)
    assert container is not None
    values: list[Any] = [store, container, config, repo, repo.config]
    for value in values:
        for text in (repr(value), str(value), value._repr_html_()):
            assert SECRET not in text
        assert SECRET not in f"{value!r:s} {value}"


@pytest.mark.parametrize("version", [1, 2])
def test_secrets_of_another_repository_or_container_are_new(version: int) -> None:
    """A container that some repository had saved is no reason to save its secrets elsewhere, or others."""
    prefix = "https://h/"
    config = config_with(prefix, http_store(None, {"Authorization": SECRET}))
    storage = frazil.in_memory_storage()
    frazil.Repository.create(storage, config, spec_version=version, store_secrets=True)
    fetched = frazil.Repository.fetch_config(storage)
    assert fetched is not None
    empty = frazil.in_memory_storage()
    with pytest.raises(frazil.InvalidInputError, match="Authorization"):
        frazil.Repository.create(empty, fetched, spec_version=version)
    assert list(empty.list("")) == []
    frazil.Repository.create(empty, spec_version=version)
    with pytest.raises(frazil.InvalidInputError, match="Authorization"):
        frazil.Repository.open(empty, fetched).save_config()
    frazil.Repository.open(storage, fetched).save_config()
    frazil.Repository.open(storage, config).save_config()  # the same, made by hand
    saved = fetched.get_virtual_chunk_container(prefix)
    assert saved is not None
    saved.store = http_store(None, {"Authorization": f"another {SECRET}"})
    with pytest.raises(frazil.InvalidInputError, match="Authorization"):
        frazil.Repository.open(storage, fetched).save_config()


def test_what_is_no_secret_is_saved_and_shown() -> None:
    cases = {
        "gs://b/": gcs_store({"base_url": "http://127.0.0.1:9", "allow_http": "true", "timeout": "3s"}),
        "gs://c/": gcs_store({"user_agent": "survey (me@example.org)", "proxy_url": "proxy:3128"}),
        "file:///a@b/": local_filesystem_store("/a@b/"),
        "az://c/": azure_store(account="mine", config={"endpoint": "http://127.0.0.1:9"}),
        "s3://b/": s3_store(endpoint_url="http://127.0.0.1:9/path", region="eu-west-1"),
        "https://h/": http_store({"timeout": "3s"}, {"Accept": "text/plain"}),
    }
    for prefix, store in cases.items():
        repo = frazil.Repository.create(frazil.in_memory_storage(), config_with(prefix, store))
        assert "****" not in repr(repo.config)


def _in_options(path: str) -> Any:
    pytest.importorskip("pyspark")
    return import_module("frazil.spark.tables.options").storage_at({"path": path})


@pytest.mark.parametrize("storage_of", [storage_from_url, _in_options])
def test_errors_about_places_print_no_secrets(storage_of: Callable[[str], Any]) -> None:
    with pytest.raises(frazil.InvalidInputError) as error:
        storage_of(f"ftp://me:{SECRET}@h/x")
    assert SECRET not in str(error.value)


def test_the_address_of_a_storage_has_no_secrets() -> None:
    azure = frazil.azure_storage(
        account="a", container="c", prefix="p", config={"sas_key": SECRET, "timeout": "3s"}, anonymous=True
    )
    for storage in (
        azure,
        frazil.gcs_storage(bucket="b", prefix="p", config={"bearer_token": SECRET, "timeout": "3s"}),
        frazil.http_storage("http://h/p", {"tomorrows": SECRET, "timeout": "3s"}),
    ):
        address = address_of(storage, "chunks")
        assert address is not None
        assert SECRET not in str(address[1]._0)
        assert address[1]._0["timeout"] == "3s"


@pytest.mark.parametrize(
    "url", [f"https://me:{SECRET}@h/data", f"https://h/data?sig={SECRET}&x=1", f" https://me:{SECRET}@h/data"]
)
def test_storages_print_no_secrets_of_their_address(url: str) -> None:
    for storage in (frazil.http_storage(url), frazil.redirect_storage(url)):
        assert SECRET not in repr(storage) + str(storage) + repr(getattr(storage, "bucket", ""))
    s3 = frazil.s3_storage(bucket="b", prefix="p", endpoint_url=url, anonymous=True)
    assert SECRET not in repr(s3) + repr(getattr(s3, "bucket", ""))
