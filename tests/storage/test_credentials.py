"""Credentials: one way at a time, picklable, and never a secret in any text."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from frazil import credentials as c
from frazil.errors import InvalidInputError
from frazil.storage.credential_families import AnyAzureRefreshableCredential

SOON = datetime(2030, 1, 1, tzinfo=UTC)
SECRET = "hush-do-not-print"

ALL: list[Any] = [
    c.S3StaticCredentials("AKIAEXAMPLE", SECRET, SECRET, SOON),
    c.S3Credentials.FromEnv(),
    c.S3Credentials.Anonymous(),
    c.S3Credentials.Static(c.S3StaticCredentials("AKIAEXAMPLE", SECRET)),
    c.S3Credentials.Refreshable(SECRET.encode(), c.S3StaticCredentials("AKIAEXAMPLE", SECRET)),
    c.GcsBearerCredential(SECRET, expires_after=SOON),
    c.GcsStaticCredentials.ServiceAccount("/key.json"),
    c.GcsStaticCredentials.ServiceAccountKey(SECRET),
    c.GcsStaticCredentials.ApplicationCredentials("/adc.json"),
    c.GcsStaticCredentials.BearerToken(SECRET),
    c.GcsCredentials.FromEnv(),
    c.GcsCredentials.Anonymous(),
    c.GcsCredentials.Static(c.GcsStaticCredentials.BearerToken(SECRET)),
    c.GcsCredentials.Refreshable(SECRET.encode(), c.GcsBearerCredential(SECRET)),
    c.AzureRefreshableCredential.AccessKey(SECRET, SOON),
    c.AzureRefreshableCredential.SasToken(SECRET, SOON),
    c.AzureRefreshableCredential.BearerToken(SECRET, SOON),
    c.AzureStaticCredentials.AccessKey(SECRET),
    c.AzureStaticCredentials.SasToken(SECRET),
    c.AzureStaticCredentials.BearerToken(SECRET),
    c.AzureCredentials.FromEnv(),
    c.AzureCredentials.Anonymous(),
    c.AzureCredentials.Static(c.AzureStaticCredentials.AccessKey(SECRET)),
    c.AzureCredentials.Refreshable(SECRET.encode(), c.AzureRefreshableCredential.SasToken(SECRET)),
    c.Credentials.S3(c.s3_static_credentials(access_key_id="AKIAEXAMPLE", secret_access_key=SECRET)),
    c.Credentials.Gcs(c.GcsCredentials.Static(c.GcsStaticCredentials.BearerToken(SECRET))),
    c.Credentials.Azure(c.AzureCredentials.Static(c.AzureStaticCredentials.SasToken(SECRET))),
    c.Credentials.LocalFileSystemAccess(),
    c.Credentials.HttpAccess(),
]


@pytest.mark.parametrize("credential", ALL, ids=lambda v: type(v).__qualname__)
def test_values_are_equal_after_a_pickle_and_no_text_has_a_secret(credential: Any) -> None:
    copy = pickle.loads(pickle.dumps(credential))
    assert (copy, hash(copy)) == (credential, hash(credential))
    for text in (repr(credential), str(credential), credential._repr_html_(), f"{[credential]}"):
        assert "hush" not in text
        assert "EXAMPLE" not in text
        assert type(credential).__qualname__ in text


def test_a_naive_expiry_is_refused() -> None:
    with pytest.raises(TypeError, match="time zone"):
        c.S3StaticCredentials("a", "b", None, datetime(2030, 1, 1))


def fresh_s3() -> c.S3StaticCredentials:
    return c.S3StaticCredentials("fresh", "key")


def fresh_gcs() -> c.GcsBearerCredential:
    return c.GcsBearerCredential("fresh")


def fresh_azure() -> AnyAzureRefreshableCredential:
    return c.AzureRefreshableCredential.SasToken("fresh")


@pytest.mark.parametrize(
    ("make", "function"),
    [
        (c.s3_refreshable_credentials, fresh_s3),
        (c.gcs_refreshable_credentials, fresh_gcs),
        (c.azure_refreshable_credentials, fresh_azure),
    ],
)
def test_refreshable(make: Any, function: Any) -> None:
    lazy = make(function)
    assert lazy.current is None
    assert pickle.loads(pickle.dumps(lazy)).refresh() == function()
    assert make(function, scatter_initial_credentials=True).current == function()


def test_a_refreshing_function_that_returns_something_else() -> None:
    with pytest.raises(InvalidInputError, match="S3StaticCredentials, got GcsBearerCredential") as error:
        c.s3_refreshable_credentials(fresh_gcs).refresh()  # type: ignore[arg-type]  # what is tested
    assert error.value.kind == "invalid-credentials"


KEY = {"access_key_id": "a", "secret_access_key": "b"}


_S3, _GCS, _AZURE = c.s3_credentials, c.gcs_credentials, c.azure_credentials


@pytest.mark.parametrize(
    ("function", "given", "expected"),
    [
        (_S3, {}, c.S3Credentials.FromEnv()),
        (_S3, {"anonymous": True, "from_env": False}, c.S3Credentials.Anonymous()),
        (_S3, KEY, c.S3Credentials.Static(c.S3StaticCredentials("a", "b"))),
        (
            _S3,
            {**KEY, "session_token": "t", "expires_after": SOON},
            c.S3Credentials.Static(c.S3StaticCredentials("a", "b", "t", SOON)),
        ),
        (_S3, {"get_credentials": fresh_s3}, c.s3_refreshable_credentials(fresh_s3)),
        (_GCS, {}, c.GcsCredentials.FromEnv()),
        (_GCS, {"bearer_token": "t"}, c.GcsCredentials.Static(c.GcsStaticCredentials.BearerToken("t"))),
        (_GCS, {"get_credentials": fresh_gcs}, c.gcs_refreshable_credentials(fresh_gcs)),
        (_AZURE, {}, c.AzureCredentials.FromEnv()),
        (_AZURE, {"sas_token": "k"}, c.AzureCredentials.Static(c.AzureStaticCredentials.SasToken("k"))),
        (_AZURE, {"get_credentials": fresh_azure}, c.azure_refreshable_credentials(fresh_azure)),
    ],
)
def test_ways(function: Any, given: dict[str, Any], expected: Any) -> None:
    assert function(**given) == expected


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (c.s3_credentials, {"anonymous": True, "from_env": True}),
        (c.s3_credentials, {**KEY, "anonymous": True}),
        (c.s3_credentials, {"access_key_id": "a"}),
        (c.s3_credentials, {"expires_after": SOON}),
        (c.s3_credentials, {"from_env": False, "anonymous": False}),
        (c.gcs_credentials, {"bearer_token": "t", "anonymous": True}),
        (c.gcs_static_credentials, {}),
        (c.azure_credentials, {"access_key": "k", "sas_token": "t"}),
        (c.azure_static_credentials, {}),
    ],
)
def test_contradictions(function: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"credentials: |conflicting") as error:
        function(**given)
    assert getattr(error.value, "kind", None) == "invalid-credentials"


def test_containers_credentials() -> None:
    given: dict[str, Any] = {
        "s3://a/": c.s3_anonymous_credentials(),
        "gs://a/": c.gcs_from_env_credentials(),
        "az://a/": c.azure_anonymous_credentials(),
        "file:///a/": c.LocalFileSystemAccess,
        "http://a/": c.HttpAccess,
        "s3://b/": None,
    }
    assert c.containers_credentials(given) == {
        "s3://a/": c.Credentials.S3(c.S3Credentials.Anonymous()),
        "gs://a/": c.Credentials.Gcs(c.GcsCredentials.FromEnv()),
        "az://a/": c.Credentials.Azure(c.AzureCredentials.Anonymous()),
        "file:///a/": c.Credentials.LocalFileSystemAccess(),
        "http://a/": c.Credentials.HttpAccess(),
        "s3://b/": None,
    }
    with pytest.raises(ValueError, match="container s3://x/ must be credentials"):
        c.containers_credentials({"s3://x/": 3})  # type: ignore[dict-item]  # what is tested
