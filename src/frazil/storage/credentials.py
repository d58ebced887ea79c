"""Functions that create credentials, and the arguments by name of storages in clouds."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypedDict, Unpack

from frazil.argument_docs import with_argument_docs, with_keywords
from frazil.arguments import checked
from frazil.storage import credential_families
from frazil.storage.object_store_config import ChecksumAlgorithm, StorageHeaders

#: Name of an argument -> the class of its credential.
type _Secrets = Mapping[str, Callable[[Any], Any]]


def _chosen(function: str, names: Iterable[str], ways: Mapping[str, Any]) -> str | None:
    """Return the name of the only way that the user passed, or None."""
    names = list(names)
    chosen = [name for name in names if ways.get(name) not in (None, False)]
    if len(chosen) > 1:
        raise credential_families.wrong_credentials(
            f"{function}: pass one of {', '.join(names)}, got {' and '.join(chosen)}"
        )
    return chosen[0] if chosen else None


def _static(function: str, secrets: _Secrets, ways: Mapping[str, Any]) -> Any:
    """Return the credential for the only secret that the user passed."""
    way = _chosen(function, secrets, ways)
    if way is None:
        raise credential_families.wrong_credentials(
            f"{function}: the arguments must have one of {', '.join(secrets)}, got none"
        )
    return secrets[way](ways[way])


def _credentials(function: str, family: Any, secrets: _Secrets, ways: Mapping[str, Any]) -> Any:
    """Return the variant of a family for the only way that the user passed. Default: the environment."""
    way = _chosen(function, [*secrets, "anonymous", "from_env", "get_credentials"], ways)
    if way in secrets:
        return family.Static(_static(function, secrets, ways))
    if way == "get_credentials":
        return _refreshable(family, ways[way], ways.get("scatter_initial_credentials", False))
    return family.Anonymous() if way == "anonymous" else family.FromEnv()


def _refreshable(family: Any, get_credentials: Callable[[], Any], scatter: bool) -> Any:
    """Return credentials that a function gets. Raise ``InvalidInputError`` if it cannot be pickled."""
    try:
        pickled = pickle.dumps(get_credentials)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise credential_families.wrong_credentials(
            "get_credentials must be a picklable function, because it is sent to other processes, got "
            f"{get_credentials!r} ({error}). Define the function at the top level of a module"
        ) from error
    return family.Refreshable(pickled, get_credentials() if scatter else None)


class SharedCredentialOptions(TypedDict, total=False):
    """The ways of authorisation that do not depend on the cloud.

    Attributes:
        from_env: True takes the credentials from the environment. This is the default.
        scatter_initial_credentials: True calls ``get_credentials`` once now and stores the result in
            every pickle, so that many workers do not call it at the same time. Default: False.
    """

    from_env: bool | None
    scatter_initial_credentials: bool


class CredentialOptions(SharedCredentialOptions, total=False):
    """The ways of authorisation that all clouds have, besides their secrets.

    Attributes:
        anonymous: True sends requests without credentials.
    """

    anonymous: bool | None


class S3Key(TypedDict, total=False):
    """An access key for S3.

    Attributes:
        access_key_id: Id of an access key. It needs ``secret_access_key``.
        secret_access_key: Secret of the access key.
        session_token: Session token of a temporary access key.
        expires_after: Time when the access key expires, with a time zone. Default: it does not expire.
    """

    access_key_id: str | None
    secret_access_key: str | None
    session_token: str | None
    expires_after: datetime | None


class S3KeyOptions(S3Key, SharedCredentialOptions, total=False):
    """The ways of authorisation in S3 that need credentials.

    Attributes:
        get_credentials: Picklable function without arguments that returns ``S3StaticCredentials``. Frazil
            calls it before the first request, and again when its last result expires. Define it at the top
            level of a module.
    """

    get_credentials: Callable[[], credential_families.S3StaticCredentials] | None


class S3CredentialOptions(S3KeyOptions, CredentialOptions, total=False):
    """All ways of authorisation in S3."""


@checked
@with_argument_docs(S3CredentialOptions)
def s3_refreshable_credentials(
    get_credentials: Callable[[], credential_families.S3StaticCredentials],
    scatter_initial_credentials: bool = False,
) -> credential_families.S3Credentials.Refreshable:
    """Return credentials for S3 that a function provides.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` for a function that cannot be pickled.

    Examples:
        >>> def fresh():
        ...     return S3StaticCredentials("AKIAEXAMPLE", "secret")
        >>> credentials = s3_refreshable_credentials(fresh)  # doctest: +SKIP
    """
    return _refreshable(credential_families.S3Credentials, get_credentials, scatter_initial_credentials)  # type: ignore[no-any-return]


@checked
def s3_static_credentials(
    *,
    access_key_id: str,
    secret_access_key: str,
    session_token: str | None = None,
    expires_after: datetime | None = None,
) -> credential_families.S3Credentials.Static:
    """Return credentials for S3 from an access key.

    Args:
        access_key_id: Id of the access key.
        secret_access_key: Secret of the access key.
        session_token: Session token of a temporary access key.
        expires_after: Time when the key expires, with a time zone. Default: it does not expire.

    Returns:
        The credentials.

    Examples:
        >>> s3_static_credentials(access_key_id="AKIAEX", secret_access_key="x").credentials.access_key_id
        'AKIAEX'
    """
    return credential_families.S3Credentials.Static(
        credential_families.S3StaticCredentials(
            access_key_id, secret_access_key, session_token, expires_after
        )
    )


@checked
def s3_anonymous_credentials() -> credential_families.S3Credentials.Anonymous:
    """Return credentials that send requests to S3 without a signature.

    Returns:
        The credentials.

    Examples:
        >>> credentials = s3_anonymous_credentials()
    """
    return credential_families.S3Credentials.Anonymous()


@checked
def s3_from_env_credentials() -> credential_families.S3Credentials.FromEnv:
    """Return credentials that take an access key for S3 from the environment.

    Returns:
        The credentials.

    Examples:
        >>> credentials = s3_from_env_credentials()
    """
    return credential_families.S3Credentials.FromEnv()


@checked
@with_keywords(S3CredentialOptions)
def s3_credentials(**ways: Unpack[S3CredentialOptions]) -> credential_families.AnyS3Credential:
    """Return credentials for S3. Without arguments, they come from the environment.

    At most one way may be passed: an access key, ``anonymous``, ``from_env`` or ``get_credentials``.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` for more than one way, for a part of an access key, for
            ways that are only set to False, and for a function that cannot be pickled.
        TypeError: ``expires_after`` has no time zone.

    Examples:
        >>> s3_credentials(anonymous=True) == s3_anonymous_credentials()
        True
    """
    key: dict[str, Any] = {
        name: value for name, value in ways.items() if name in _S3_KEY and value is not None
    }
    if not key and not any(ways.values()) and False in (ways.get("from_env"), ways.get("anonymous")):
        raise credential_families.wrong_credentials(
            "s3_credentials: one of the ways must be True, got only ways that are False"
        )
    if key and not {"access_key_id", "secret_access_key"} <= key.keys():
        raise credential_families.wrong_credentials(
            "s3_credentials: access_key_id and secret_access_key go together, got a part"
        )
    secrets = {"access_key_id": lambda key: credential_families.S3StaticCredentials(**key)}
    chosen = {**ways, "access_key_id": key or None}
    return _credentials("s3_credentials", credential_families.S3Credentials, secrets, chosen)  # type: ignore[no-any-return]


_S3_KEY: Final = S3Key.__annotations__.keys()


_GCS_SECRETS: Final[_Secrets] = {
    "service_account_file": credential_families.GcsStaticCredentials.ServiceAccount,
    "service_account_key": credential_families.GcsStaticCredentials.ServiceAccountKey,
    "application_credentials": credential_families.GcsStaticCredentials.ApplicationCredentials,
    "bearer_token": credential_families.GcsStaticCredentials.BearerToken,
}


class GcsSecrets(TypedDict, total=False):
    """Secrets for Google Cloud Storage.

    Attributes:
        service_account_file: Path of a file with the key of a service account.
        service_account_key: Key of a service account, as JSON text.
        application_credentials: Path of a file with application default credentials.
        bearer_token: OAuth bearer token.
    """

    service_account_file: str | None
    service_account_key: str | None
    application_credentials: str | None
    bearer_token: str | None


class GcsCredentialOptions(GcsSecrets, CredentialOptions, total=False):
    """All ways of authorisation in Google Cloud Storage.

    Attributes:
        get_credentials: Picklable function without arguments that returns ``GcsBearerCredential``. Frazil
            calls it before the first request, and again when its last result expires. Define it at the top
            level of a module.
    """

    get_credentials: Callable[[], credential_families.GcsBearerCredential] | None


@checked
@with_keywords(GcsSecrets)
def gcs_static_credentials(**secret: Unpack[GcsSecrets]) -> credential_families.AnyGcsStaticCredential:
    """Return credentials for Google Cloud Storage that do not change.

    Exactly one argument must be passed.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` unless exactly one argument is passed.

    Examples:
        >>> credentials = gcs_static_credentials(bearer_token="secret")
    """
    return _static("gcs_static_credentials", _GCS_SECRETS, secret)  # type: ignore[no-any-return]


@checked
@with_argument_docs(GcsCredentialOptions)
def gcs_refreshable_credentials(
    get_credentials: Callable[[], credential_families.GcsBearerCredential],
    scatter_initial_credentials: bool = False,
) -> credential_families.GcsCredentials.Refreshable:
    """Return credentials for Google Cloud Storage that a function provides.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` for a function that cannot be pickled.

    Examples:
        >>> def fresh():
        ...     return GcsBearerCredential("secret")
        >>> credentials = gcs_refreshable_credentials(fresh)  # doctest: +SKIP
    """
    return _refreshable(credential_families.GcsCredentials, get_credentials, scatter_initial_credentials)  # type: ignore[no-any-return]


@checked
def gcs_anonymous_credentials() -> credential_families.GcsCredentials.Anonymous:
    """Return credentials that send requests to Google Cloud Storage without a token.

    Returns:
        The credentials.

    Examples:
        >>> credentials = gcs_anonymous_credentials()
    """
    return credential_families.GcsCredentials.Anonymous()


@checked
def gcs_from_env_credentials() -> credential_families.GcsCredentials.FromEnv:
    """Return credentials for Google Cloud Storage that come from the environment.

    Returns:
        The credentials.

    Examples:
        >>> credentials = gcs_from_env_credentials()
    """
    return credential_families.GcsCredentials.FromEnv()


@checked
@with_keywords(GcsCredentialOptions)
def gcs_credentials(**ways: Unpack[GcsCredentialOptions]) -> credential_families.AnyGcsCredential:
    """Return credentials for Google Cloud Storage. Without arguments, they come from the environment.

    At most one way may be passed.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` for more than one way, and for a function that
            cannot be pickled.

    Examples:
        >>> credentials = gcs_credentials(anonymous=True)
    """
    return _credentials("gcs_credentials", credential_families.GcsCredentials, _GCS_SECRETS, ways)  # type: ignore[no-any-return]


_AZURE_SECRETS: Final[_Secrets] = {
    "access_key": credential_families.AzureStaticCredentials.AccessKey,
    "sas_token": credential_families.AzureStaticCredentials.SasToken,
    "bearer_token": credential_families.AzureStaticCredentials.BearerToken,
}


class AzureSecrets(TypedDict, total=False):
    """Secrets for Azure.

    Attributes:
        access_key: Key of the storage account.
        sas_token: Shared access signature.
        bearer_token: OAuth bearer token.
    """

    access_key: str | None
    sas_token: str | None
    bearer_token: str | None


class AzureCredentialOptions(AzureSecrets, CredentialOptions, total=False):
    """All ways of authorisation in Azure.

    Attributes:
        get_credentials: Picklable function without arguments that returns one of the classes in
            ``AzureRefreshableCredential``. Frazil calls it before the first request, and again when its last
            result expires. Define it at the top level of a module.
    """

    get_credentials: Callable[[], credential_families.AnyAzureRefreshableCredential] | None


@checked
@with_keywords(AzureSecrets)
def azure_static_credentials(**secret: Unpack[AzureSecrets]) -> credential_families.AnyAzureStaticCredential:
    """Return credentials for Azure that do not change.

    Exactly one argument must be passed.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` unless exactly one argument is passed.

    Examples:
        >>> credentials = azure_static_credentials(access_key="secret")
    """
    return _static("azure_static_credentials", _AZURE_SECRETS, secret)  # type: ignore[no-any-return]


@checked
@with_argument_docs(AzureCredentialOptions)
def azure_refreshable_credentials(
    get_credentials: Callable[[], credential_families.AnyAzureRefreshableCredential],
    scatter_initial_credentials: bool = False,
) -> credential_families.AzureCredentials.Refreshable:
    """Return credentials for Azure that a function provides.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` for a function that cannot be pickled.

    Examples:
        >>> def fresh():
        ...     return AzureRefreshableCredential.AccessKey("secret")
        >>> credentials = azure_refreshable_credentials(fresh)  # doctest: +SKIP
    """
    return _refreshable(credential_families.AzureCredentials, get_credentials, scatter_initial_credentials)  # type: ignore[no-any-return]


@checked
def azure_from_env_credentials() -> credential_families.AzureCredentials.FromEnv:
    """Return credentials for Azure that come from the environment.

    Returns:
        The credentials.

    Examples:
        >>> credentials = azure_from_env_credentials()
    """
    return credential_families.AzureCredentials.FromEnv()


@checked
def azure_anonymous_credentials() -> credential_families.AzureCredentials.Anonymous:
    """Return credentials that send requests to Azure without a signature.

    Returns:
        The credentials.

    Examples:
        >>> credentials = azure_anonymous_credentials()
    """
    return credential_families.AzureCredentials.Anonymous()


@checked
@with_keywords(AzureCredentialOptions)
def azure_credentials(**ways: Unpack[AzureCredentialOptions]) -> credential_families.AnyAzureCredential:
    """Return credentials for Azure. Without arguments, they come from the environment.

    At most one way may be passed.

    Returns:
        The credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` for more than one way, and for a function that
            cannot be pickled.

    Examples:
        >>> credentials = azure_credentials(anonymous=True)
    """
    return _credentials("azure_credentials", credential_families.AzureCredentials, _AZURE_SECRETS, ways)  # type: ignore[no-any-return]


_ACCESS = (credential_families.Credentials.LocalFileSystemAccess, credential_families.Credentials.HttpAccess)


_WRAPPERS: tuple[tuple[type, Callable[[Any], credential_families.AnyCredential]], ...] = (
    (credential_families.S3Credentials, credential_families.Credentials.S3),
    (credential_families.GcsCredentials, credential_families.Credentials.Gcs),
    (credential_families.AzureCredentials, credential_families.Credentials.Azure),
)


@checked
def containers_credentials(
    m: Mapping[
        str,
        credential_families.AnyS3Credential
        | credential_families.AnyGcsCredential
        | credential_families.AnyAzureCredential
        | credential_families.Credentials.LocalFileSystemAccess
        | credential_families.Credentials.HttpAccess
        | None,
    ],
) -> dict[str, credential_families.AnyCredential | None]:
    """Return permissions for ``authorize_virtual_chunk_access``, by URL prefix of the container.

    Args:
        m: URL prefix -> credentials of S3, GCS or Azure, ``LocalFileSystemAccess``, ``HttpAccess``, or None
            for access without credentials.

    Returns:
        URL prefix -> permission.

    Raises:
        InvalidInputError: ``invalid-credentials`` for a value that is not a credential.

    Examples:
        >>> from frazil.storage.credentials import s3_anonymous_credentials
        >>> containers_credentials({"s3://bucket/": s3_anonymous_credentials()})["s3://bucket/"]
        <frazil.credentials.Credentials.S3>
        credentials:
            <frazil.credentials.S3Credentials.Anonymous>
        <BLANKLINE>
    """
    access: dict[str, Any] = {}
    for prefix, credential in m.items():
        wrap = next((wrap for family, wrap in _WRAPPERS if isinstance(credential, family)), None)
        if wrap is None and credential is not None and not isinstance(credential, _ACCESS):
            raise credential_families.wrong_credentials(
                f"the value for container {prefix} must be credentials for S3, GCS or Azure, "
                f"LocalFileSystemAccess, HttpAccess or None, got {type(credential).__name__}"
            )
        access[prefix] = credential if wrap is None else wrap(credential)
    return access


class HfKeywords(S3KeyOptions, StorageHeaders, total=False):
    """The arguments of ``hf_storage``, besides its place.

    Attributes:
        legacy_rooted_keys: True is not supported and raises an error. Default: None.
    """

    network_stream_timeout_seconds: int
    legacy_rooted_keys: bool | None


class S3Endpoint(TypedDict, total=False):
    """The server of a storage with the protocol of S3, as in ``S3Options``."""

    region: str | None
    endpoint_url: str | None
    allow_http: bool
    anonymous: bool | None


class R2Keywords(S3Endpoint, HfKeywords, total=False):
    """The arguments of ``r2_storage`` and ``tigris_storage``, besides the place."""

    checksum_algorithm: ChecksumAlgorithm | None


class S3Keywords(R2Keywords, total=False):
    """The arguments of ``s3_storage``, besides its place."""

    force_path_style: bool
    requester_pays: bool


class S3ObjectStoreKeywords(S3Endpoint, S3Key, StorageHeaders, total=False):
    """The arguments of ``s3_object_store_storage``, besides its place.

    Attributes:
        from_env: True takes the credentials from the environment: variables, AWS profile, web identity,
            container or instance role. This is the default.
    """

    from_env: bool | None
    force_path_style: bool


class GcsKeywords(GcsCredentialOptions, StorageHeaders, total=False):
    """The arguments of ``gcs_storage``, besides its place.

    Attributes:
        config: Other options of the client and their values, for example ``{'timeout': '30s'}``. Default:
            none.
    """

    config: dict[str, str] | None


class AzureKeywords(AzureSecrets, total=False):
    """The arguments of ``azure_storage``, besides its place.

    Attributes:
        from_env: True takes the credentials from the environment. This is the default.
        anonymous: True sends requests without credentials.
        config: Other options of the client and their values. Default: none.
    """

    from_env: bool | None
    anonymous: bool | None
    config: dict[str, str] | None
