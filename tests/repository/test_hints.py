"""A repository cannot make its reader send credentials, files or requests where the reader did not agree."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.repository.hostile import DATA, Listener, hostile, listening, read
from tests.support.errors import of_kind

import frazil
import frazil.credentials
import frazil.storage
from frazil.credentials import (
    Credentials,
    HttpAccess,
    LocalFileSystemAccess,
    azure_anonymous_credentials,
    azure_credentials,
    azure_from_env_credentials,
    containers_credentials,
    gcs_anonymous_credentials,
    gcs_credentials,
    gcs_from_env_credentials,
    s3_anonymous_credentials,
    s3_credentials,
    s3_from_env_credentials,
)
from frazil.repository.catalog import repo_changes
from frazil.repository.settings.config_document import to_document
from frazil.storage.access import require_hint

SECRET = "content-of-a-secret"
S3_KEY = s3_credentials(access_key_id="AKIATEST", secret_access_key="sk", session_token=SECRET)
ACCESS: dict[str, list[Any]] = {
    "s3": [S3_KEY, s3_anonymous_credentials(), s3_from_env_credentials(), None],
    "tigris": [S3_KEY, s3_anonymous_credentials(), None],
    "gs": [
        gcs_credentials(bearer_token=SECRET),
        gcs_anonymous_credentials(),
        gcs_from_env_credentials(),
        None,
    ],
    "az": [
        azure_credentials(bearer_token=SECRET),
        azure_anonymous_credentials(),
        azure_from_env_credentials(),
        None,
    ],
    "file": [LocalFileSystemAccess, None],
    "http": [HttpAccess, None],
    "https": [HttpAccess, None],
}


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Listener]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIAENV",
        "AWS_SECRET_ACCESS_KEY": "sk",
        "AWS_SESSION_TOKEN": SECRET,
        "AZURE_STORAGE_TOKEN": SECRET,
        "GOOGLE_BEARER_TOKEN": SECRET,
    }.items():
        monkeypatch.setenv(name, value)
    with listening() as listener:
        yield listener


def trust(config: frazil.RepositoryConfig, prefix: str, listener: Listener) -> None:
    """Let the configuration of the user lead a prefix to the listener."""
    own = frazil.s3_store(
        region="us-east-1",
        endpoint_url=listener.url,
        allow_http=True,
        s3_compatible=True,
        force_path_style=True,
    )
    config.set_virtual_chunk_container(frazil.VirtualChunkContainer(prefix, own))


def opened(storage: frazil.Storage, prefix: str, access: Any, config: Any = None) -> frazil.Repository:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return frazil.Repository.open(storage, config, containers_credentials({prefix: access}))


def refused(storage: frazil.Storage, prefix: str, kind: str, *words: str) -> None:
    """No access makes the repository's readers follow it."""
    for access in ACCESS.get(prefix.partition(":")[0], [None]):
        with pytest.raises(frazil.InvalidInputError) as error:
            read(opened(storage, prefix, access))
        assert error.value.kind == kind
        assert all(word in str(error.value) for word in words)
        assert SECRET not in str(error.value)


def _token_file(url: str, path: str) -> dict[str, str]:
    return {
        "account": "acc",
        "endpoint": url,
        "federated_token_file": path,
        "authority_host": url,
        "client_id": "c",
        "tenant_id": "t",
        "allow_http": "true",
    }


AZURE: list[Callable[[str, str], dict[str, str]]] = [
    _token_file,
    lambda url, path: {"account": "acc", "azure_federated_token_file": path, "azure_authority_host": url},
    lambda url, path: {"account": "acc", "endpoint": url, "allow_http": "true"},
    lambda url, path: {"account": "acc", "msi_endpoint": url},
    lambda url, path: {"account": "acc", "proxy_url": url},
    lambda url, path: {"account": "acc", "Proxy-URL": url},
    lambda url, path: {"account": "acc", "allow_invalid_certificates": "true"},
    lambda url, path: {"account": "acc", "use_azure_cli": "true"},
    lambda url, path: {"account": "acc", "container_name": "another"},
    lambda url, path: {"account": "acc", "account_key": "YWJj"},
    lambda url, path: {"account": "acc", "an_option_of_tomorrow": url},
    lambda url, path: {"account": "evil.example/#"},
    lambda url, path: {"account": "acc", "azure_storage_account_name": "evil.example/?"},
    lambda url, path: {"account": "evil。example#"},
]
GCS: list[Callable[[str, str], dict[str, str]]] = [
    lambda url, path: {"google_base_url": url, "allow_http": "true"},
    lambda url, path: {"proxy_url": url},
    lambda url, path: {"application_credentials": path},
    lambda url, path: {"service_account_path": path},
    lambda url, path: {"google_service_account_key": '{"private_key": ""}'},
    lambda url, path: {"bucket": "another"},
    lambda url, path: {"default_headers": "x"},
    lambda url, path: {"an_option_of_tomorrow": url},
]
S3: list[Callable[[str, str], dict[str, Any]]] = [
    lambda url, path: {"endpoint_url": url, "allow_http": True, "region": "us-east-1"},
    lambda url, path: {"endpoint_url": url, "allow_http": True, "region": "us-east-1", "anonymous": True},
    lambda url, path: {"endpoint_url": url},
    lambda url, path: {"endpoint_url": "https://s3.amazonaws.com"},
    lambda url, path: {"allow_http": True},
    lambda url, path: {"region": f"{url.removeprefix('http://')}/#"},
    lambda url, path: {"region": "evil.example/#", "force_path_style": True},
    lambda url, path: {"region": "a@evil.example"},
    lambda url, path: {"region": ""},
]


OPTIONS = [
    *(("az://box/", "azure", each) for each in AZURE),
    *(("gs://box/", "gcs", each) for each in GCS),
    *(("s3://box/", kind, each) for kind in ("s3", "s3_compatible") for each in S3),
    *(("tigris://box/", "tigris", each) for each in S3),
]


@pytest.mark.sample(35, 35)
@pytest.mark.deep
@pytest.mark.parametrize(("prefix", "kind", "options"), OPTIONS)
def test_options_that_lead_elsewhere(
    listener: Listener, tmp_path: Path, prefix: str, kind: str, options: Callable[[str, str], dict[str, Any]]
) -> None:
    path = tmp_path / "token"
    path.write_text(SECRET)
    given = options(listener.url, str(path))
    word = f"`{list(given)[-1]}`" if kind in {"azure", "gcs"} else ""
    refused(hostile(prefix, {kind: given}), prefix, "untrusted-virtual-chunk-container", word, "config=")
    assert listener.visits == []


def test_another_service_is_another_server(listener: Listener) -> None:
    refused(hostile("s3://box/", {"tigris": {}}), "s3://box/", "untrusted-virtual-chunk-container", "Tigris")


@pytest.mark.parametrize(
    "store",
    [
        {"http": {"proxy_url": "http://127.0.0.1:9"}},
        {"http": {"allow_invalid_certificates": "true"}},
        {"http": {"headers": {"X-Api-Key": "theirs"}}},
        {"http": {"headers": {"Host": "another.example"}}},
        {"http": {"default_headers": "x"}},
    ],
)
def test_http(listener: Listener, store: dict[str, Any]) -> None:
    prefix = f"{listener.url}/"
    refused(hostile(prefix, store), prefix, "untrusted-virtual-chunk-container")
    assert listener.visits == []


@pytest.mark.parametrize(
    ("prefix", "store"),
    [
        ("s3://noaa/", {"azure": {"account": "a"}}),
        ("s3://noaa/", {"gcs": {}}),
        ("s3://noaa/", {"http": {}}),
        ("s3://noaa/", {"local_file_system": "/"}),
        ("gs://noaa/", {"s3": {}}),
        ("az://noaa/", {"gcs": {}}),
        ("file:///data/", {"s3": {}}),
        ("file:///data/", {"azure": {"account": "a"}}),
        ("https://noaa.example/", {"azure": {"account": "a"}}),
        ("http://noaa.example/", {"local_file_system": "/"}),
    ],
)
def test_a_store_fits_the_scheme_when_it_is_read(prefix: str, store: dict[str, Any]) -> None:
    refused(hostile(prefix, store), prefix, "invalid-virtual-ref")


@pytest.mark.parametrize(
    "location",
    ["s3://evil.example@x/data", "s3://2130706433#/data", "s3://evil。example?/data", "s3://a:80/data"],
)
def test_a_bucket_cannot_become_another_server(listener: Listener, location: str) -> None:
    """Early versions of the format saved a whole scheme; then the reference names the bucket."""
    refused(hostile("s3", {"s3": {"region": "us-east-1"}}, location), "s3", "invalid-virtual-ref", "bucket")


def test_what_a_repository_may_say() -> None:
    gcs, azure, s3 = frazil.gcs_store, frazil.storage.azure_store, frazil.s3_store
    full = s3(
        region="eu-west-1",
        anonymous=True,
        force_path_style=True,
        requester_pays=True,
        network_stream_timeout_seconds=3,
    )
    for store, prefix in (
        (full, "s3://b/"),
        (s3(s3_compatible=True), "s3://b/"),
        (frazil.config.ObjectStoreConfig.Tigris(frazil.storage.S3Options(region="auto")), "tigris://b/"),
        (gcs(), "gs://b/"),
        (gcs({"skip_signature": "true", "timeout": "3s"}), "gcs://b/"),
        (azure(account="mine-secondary", config={"azure_skip_signature": "true"}), "az://c/"),
        (frazil.http_store({"Timeout": "3s"}, {"Accept": "*/*"}), "https://h/"),
    ):
        require_hint(store, prefix)


# What the user says


def test_the_users_own_container_leads_where_it_says(listener: Listener) -> None:
    prefix, options = "s3://box/", {**S3[0](listener.url, ""), "force_path_style": True}
    storage = hostile(prefix, {"s3_compatible": options})
    config = frazil.RepositoryConfig()
    trust(config, prefix, listener)
    for access in (S3_KEY, s3_from_env_credentials()):
        repo = opened(storage, prefix, access, config)
        for each in (repo, repo.reopen(), pickle.loads(pickle.dumps(repo))):
            assert read(each) == DATA
        assert SECRET in listener.everything
        listener.visits.clear()
    for no_access in (s3_anonymous_credentials(), None):
        assert read(opened(storage, prefix, no_access, config)) == DATA
        assert listener.visits
        assert "authorization" not in listener.visits[0].headers
        assert SECRET not in listener.everything
        listener.visits.clear()


def test_a_saved_container_stays_a_hint_until_it_is_adopted(listener: Listener) -> None:
    """To pass the configuration of a repository on does not say that its servers are trusted."""
    prefix, options = "s3://box/", {**S3[0](listener.url, ""), "force_path_style": True}
    storage = hostile(prefix, {"s3_compatible": options})
    access = s3_anonymous_credentials()
    theirs = opened(storage, prefix, access)
    changed = theirs.config
    changed.inline_chunk_threshold_bytes = 0
    fetched = frazil.Repository.fetch_config(storage)
    assert fetched is not None
    saved = theirs.config.get_virtual_chunk_container(prefix)
    assert saved is not None
    passed_on = frazil.RepositoryConfig(virtual_chunk_containers={prefix: deepcopy(saved)})
    merged = frazil.RepositoryConfig().merge(theirs.config)
    for repo in (
        theirs,
        theirs.reopen(),
        theirs.reopen(changed),
        opened(storage, prefix, access, fetched),
        opened(storage, prefix, access, passed_on),
        opened(storage, prefix, access, merged),
        opened(storage, prefix, access, pickle.loads(pickle.dumps(fetched))),
        pickle.loads(pickle.dumps(theirs)),
    ):
        with pytest.raises(frazil.InvalidInputError, match="as_own") as error:
            read(repo)
        assert error.value.kind == "untrusted-virtual-chunk-container"
    assert listener.visits == []
    fetched.set_virtual_chunk_container(saved.as_own())
    assert read(opened(storage, prefix, access, fetched)) == DATA
    assert saved.as_own() == saved


def test_a_repository_cannot_replace_the_users_container_by_another_spelling(listener: Listener) -> None:
    prefix = "s3://box/"
    storage = hostile("S3://box/", {"s3": {"region": "us-east-1"}}, "s3://box/data")
    config = frazil.Repository.fetch_config(storage)
    assert config is not None
    trust(config, prefix, listener)
    assert len(config.virtual_chunk_containers or {}) == 2
    for access in (s3_anonymous_credentials(), S3_KEY):
        repo = opened(storage, prefix, access, config)
        for each in (repo, pickle.loads(pickle.dumps(repo))):
            assert read(each) == DATA
            assert listener.visits
            listener.visits.clear()


def test_a_repository_cannot_take_the_name_of_the_users_container() -> None:
    own, store = "file:///mine/and/long/", frazil.local_filesystem_store("/")
    for theirs in ("file:///a/", "file:///theirs/and/much/longer/"):
        saved = frazil.RepositoryConfig()
        saved.set_virtual_chunk_container(frazil.VirtualChunkContainer(theirs, store, "era"))
        storage = frazil.Repository.create(frazil.in_memory_storage(), saved).storage
        config = frazil.Repository.fetch_config(storage)
        assert config is not None
        config.set_virtual_chunk_container(frazil.VirtualChunkContainer(own, store, "era"))
        repo = frazil.Repository.open(storage, config)
        assert repo._context.virtual.resolve("vcc://era/x") == f"{own}x"


# None


@pytest.mark.parametrize(
    ("prefix", "access"),
    [
        ("s3://b/", Credentials.S3(s3_anonymous_credentials())),
        ("tigris://b", Credentials.S3(s3_anonymous_credentials())),
        ("gs://b/", Credentials.Gcs(gcs_anonymous_credentials())),
        ("gcs://b/", Credentials.Gcs(gcs_anonymous_credentials())),
        ("az://b/", Credentials.Azure(azure_anonymous_credentials())),
        ("abfs://b/", Credentials.Azure(azure_anonymous_credentials())),
        ("file:///data/", LocalFileSystemAccess),
        ("FILE:///data/", LocalFileSystemAccess),
        ("http://h/", HttpAccess),
        ("https://h", HttpAccess),
    ],
)
def test_none_grants_access_without_credentials_and_warns(prefix: str, access: Any) -> None:
    storage = frazil.in_memory_storage()
    for call in (frazil.Repository.create, frazil.Repository.open, frazil.Repository.open_or_create):
        with pytest.warns(DeprecationWarning, match="`None` in authorize_virtual_chunk_access") as warned:
            repo = call(storage, authorize_virtual_chunk_access={prefix: None})
        assert [each.filename for each in warned] == [__file__]
        assert repo.virtual_chunk_access == {prefix: access}
        assert repo.authorized_virtual_container_prefixes == {prefix}
        repo.reopen()  # says nothing again
    with pytest.warns(DeprecationWarning, match="`None`"):
        repo.reopen(authorize_virtual_chunk_access={prefix: None})


def test_none_sends_nothing_of_the_environment(listener: Listener) -> None:
    """Not to a server that the user named, either."""
    cases: dict[str, Any] = {
        "s3://box/": frazil.s3_store(
            region="us-east-1", endpoint_url=listener.url, allow_http=True, force_path_style=True
        ),
        "gs://box/": frazil.gcs_store({"base_url": listener.url, "allow_http": "true"}),
        "az://box/": frazil.storage.azure_store(
            account="a", config={"endpoint": listener.url, "allow_http": "true"}
        ),
    }
    for prefix, store in cases.items():
        config = frazil.RepositoryConfig()
        config.set_virtual_chunk_container(frazil.VirtualChunkContainer(prefix, store))
        storage = hostile(prefix, {"s3": {}})
        assert read(opened(storage, prefix, None, config)) == DATA
        assert len(listener.visits) > 0
        assert SECRET not in listener.everything
        assert "authorization" not in listener.visits[0].headers
        listener.visits.clear()


def test_what_no_store_has_cannot_be_authorised() -> None:
    with pytest.raises(frazil.InvalidInputError) as error:
        frazil.Repository.create(
            frazil.in_memory_storage(), authorize_virtual_chunk_access={"ftp://user:pass@h/": None}
        )
    assert error.value.kind == "invalid-credentials"
    assert "pass" not in str(error.value).partition("got")[2]


# Spelling


@pytest.mark.parametrize("given", ["", "/"])
@pytest.mark.parametrize("saved", ["", "/"])
def test_a_prefix_means_the_same_with_and_without_its_slash(tmp_path: Path, given: str, saved: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_bytes(DATA)
    (tmp_path / "data-other").mkdir()
    (tmp_path / "data-other" / "x").write_bytes(DATA)
    folder = f"file://{tmp_path}/data"
    store = {"local_file_system": str(tmp_path)}
    storage = hostile(folder + saved, store, f"{folder}/x")
    assert read(opened(storage, folder + given, LocalFileSystemAccess)) == DATA
    with pytest.raises(frazil.InvalidInputError, check=of_kind("no-container-for-virtual-chunk")):
        hostile(folder + saved, store, f"{folder}-other/x")
    changed = frazil.Repository.open(storage).writable_session("main").store
    one = np.zeros(1, "u8")
    failed = changed.set_virtual_refs_arr(
        "x", (1,), [f"{folder}-other/x"], one, one + 8, validate_containers=True
    )
    assert failed == [(0,)]


def test_another_prefix_is_not_authorised(tmp_path: Path) -> None:
    folder = f"file://{tmp_path}/data"
    storage = hostile(f"{folder}/", {"local_file_system": ""})
    for given in (f"file://{tmp_path}/", f"{folder}/data", f"{folder}-other", "file:///"):
        with pytest.raises(frazil.InvalidInputError, check=of_kind("unauthorized-virtual-chunk-container")):
            read(opened(storage, given, LocalFileSystemAccess))


def _saved(prefix: str) -> dict[str, Any]:
    document = to_document(frazil.RepositoryConfig())
    store = {"local_file_system": "/data"}
    return {
        **document,
        "virtual_chunk_containers": {prefix: {"name": None, "url_prefix": prefix, "store": store}},
    }


def test_a_saved_container_need_not_be_valid() -> None:
    """Early versions of the format saved schemes, ``file``; such a repository opens, also migrated."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    repo._context.catalog.update_repo_info(repo_changes.save_config(_saved("file")))
    again = frazil.Repository.open(repo.storage)
    assert set(again.config.virtual_chunk_containers or {}) == {"file"}


def test_the_callers_container_has_to_be_valid() -> None:
    storage = frazil.Repository.create(frazil.in_memory_storage()).storage
    container = frazil.VirtualChunkContainer("file", frazil.local_filesystem_store("/data"))
    config = frazil.RepositoryConfig(virtual_chunk_containers={"file": container})
    with pytest.raises(frazil.InvalidInputError):
        frazil.Repository.open(storage, config)


def test_a_path_of_local_files_counts_only_if_the_user_gave_it(tmp_path: Path) -> None:
    """One that the repository brings along could lead anywhere; what was authorised is the prefix."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "data").write_bytes(DATA)
    prefix, access = "file:///trusted/and/gone/", frazil.credentials.LocalFileSystemAccess
    config = frazil.RepositoryConfig()
    store = frazil.local_filesystem_store(str(tmp_path / "elsewhere"))
    config.set_virtual_chunk_container(frazil.VirtualChunkContainer(prefix, store))
    storage = frazil.in_memory_storage()
    mine = frazil.Repository.create(storage, config, {prefix: access})
    with mine.transaction("main", message="a reference") as changed:
        zarr.create_array(changed, name="x", shape=(8,), chunks=(8,), dtype="u1", compressors=None)
        changed.set_virtual_ref("x/c/0", f"{prefix}data", offset=0, length=8)
    assert read(mine) == DATA
    assert read(mine.reopen()) == DATA
    assert read(pickle.loads(pickle.dumps(mine))) == DATA
    theirs = frazil.Repository.open(storage, None, {prefix: access})
    for repo in (theirs, theirs.reopen()):
        with pytest.raises(frazil.StorageError, check=of_kind("virtual-chunk-fetch")):
            read(repo)
