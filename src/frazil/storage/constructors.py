"""The functions that make a storage, with the names, arguments and defaults of the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.storage.credentials import azure_credentials, gcs_credentials, s3_credentials
from frazil.storage.http import HttpStorage
from frazil.storage.local import LocalStorage
from frazil.storage.locations import AzureLocation, GcsLocation, S3Location
from frazil.storage.memory import MemoryStorage
from frazil.storage.object_store import ObjectStorage
from frazil.storage.object_store_config import ChecksumAlgorithm, S3Options
from frazil.storage.redirect import R2_ENDPOINT, TIGRIS_ENDPOINT, RedirectStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from frazil.storage.base import Storage
    from frazil.storage.credentials import AnyS3Credential, GcsBearerCredential, S3StaticCredentials


def in_memory_storage() -> Storage:
    """A new, empty storage in the memory of this process.

    >>> in_memory_storage()
    <frazil.Storage>
    type: in-memory
    <BLANKLINE>
    """
    return MemoryStorage()


def local_filesystem_storage(path: str) -> Storage:
    """Objects as files below the directory ``path``, which is made at the first write.

    Safe for any number of threads and processes on one machine.
    """
    return LocalStorage(path)


def s3_storage(
    *,
    bucket: str,
    prefix: str | None,
    region: str | None = None,
    endpoint_url: str | None = None,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
    force_path_style: bool = False,
    network_stream_timeout_seconds: int = 60,
    requester_pays: bool = False,
    checksum_algorithm: ChecksumAlgorithm | None = None,
    legacy_rooted_keys: bool | None = None,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Storage:
    """Objects in S3, or in a server that speaks its protocol (then give ``endpoint_url``).

    One way of authorisation at most: a key (``access_key_id``, ``secret_access_key`` and maybe a
    ``session_token``), ``anonymous``, ``from_env`` (the default), or ``get_credentials``, a picklable
    function that is called again when its answer expires. ``headers`` go with every request,
    ``read_headers`` and ``write_headers`` with those that read or write.

    >>> s3_storage(bucket="ice", prefix="a/b", region="eu-west-1", anonymous=True)
    <frazil.Storage>
    type: S3 (native)
    bucket: ice
    prefix: a/b
    region: eu-west-1
    anonymous: True
    <BLANKLINE>
    """
    credentials = s3_credentials(
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
        session_token=session_token,
        expires_after=expires_after,
        anonymous=anonymous,
        from_env=from_env,
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
    )
    options = S3Options(
        region=region,
        endpoint_url=endpoint_url,
        allow_http=allow_http,
        anonymous=bool(anonymous),
        force_path_style=force_path_style,
        network_stream_timeout_seconds=network_stream_timeout_seconds,
        requester_pays=requester_pays,
        checksum_algorithm=checksum_algorithm,
    )
    return _s3(bucket, prefix, options, credentials, legacy_rooted_keys, headers, read_headers, write_headers)


def r2_storage(
    *,
    bucket: str | None = None,
    prefix: str | None = None,
    account_id: str | None = None,
    endpoint_url: str | None = None,
    region: str | None = None,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
    network_stream_timeout_seconds: int = 60,
    checksum_algorithm: ChecksumAlgorithm | None = None,
    legacy_rooted_keys: bool | None = None,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Storage:
    """Objects in Cloudflare R2, of the account ``account_id`` or at ``endpoint_url``.

    Without a ``bucket``, the first part of ``prefix`` is it. The rest is as in ``s3_storage``.
    """
    if bucket is None:
        bucket, _, prefix = (prefix or "").partition("/")
        if not bucket:
            raise StorageError("either bucket or prefix must be provided", ErrorKind.STORAGE_CONFIG)
    if endpoint_url is None:
        if account_id is None:
            raise StorageError("either endpoint_url or account_id must be provided", ErrorKind.STORAGE_CONFIG)
        endpoint_url = R2_ENDPOINT.format(account_id=account_id)
    return s3_storage(
        bucket=bucket,
        prefix=prefix,
        region="auto" if region is None else region,
        endpoint_url=endpoint_url,
        allow_http=allow_http,
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
        session_token=session_token,
        expires_after=expires_after,
        anonymous=anonymous,
        from_env=from_env,
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
        force_path_style=True,
        network_stream_timeout_seconds=network_stream_timeout_seconds,
        checksum_algorithm=checksum_algorithm,
        legacy_rooted_keys=legacy_rooted_keys,
        read_headers=read_headers,
        write_headers=write_headers,
        headers=headers,
    )


def tigris_storage(
    *,
    bucket: str,
    prefix: str | None,
    region: str | None = None,
    endpoint_url: str | None = None,
    use_weak_consistency: bool = False,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
    network_stream_timeout_seconds: int = 60,
    checksum_algorithm: ChecksumAlgorithm | None = None,
    legacy_rooted_keys: bool | None = None,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Storage:
    """Objects in Tigris, with full consistency in ``region``.

    With ``use_weak_consistency`` the nearest copy is read, maybe an old one, and the storage is read only;
    without it a region is needed. The rest is as in ``s3_storage``.
    """
    if region is None and not use_weak_consistency:
        raise StorageError(
            "Tigris needs the region of the bucket for full consistency: give region, or "
            "use_weak_consistency=True for a read-only storage that may lag behind",
            ErrorKind.STORAGE_OTHER,
        )
    credentials = s3_credentials(
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
        session_token=session_token,
        expires_after=expires_after,
        anonymous=anonymous,
        from_env=from_env,
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
    )
    options = S3Options(
        region="auto" if region is None else region,
        endpoint_url=TIGRIS_ENDPOINT if endpoint_url is None else endpoint_url,
        allow_http=allow_http,
        anonymous=bool(anonymous),
        network_stream_timeout_seconds=network_stream_timeout_seconds,
        checksum_algorithm=checksum_algorithm,
    )
    consistent = {} if use_weak_consistency else _tigris_consistency(region or "auto")
    return _s3(
        bucket,
        prefix,
        options,
        credentials,
        legacy_rooted_keys,
        {**consistent, **(headers or {})},
        read_headers,
        write_headers,
        read_only=use_weak_consistency,
    )


def _tigris_consistency(region: str) -> dict[str, str]:
    return {"X-Tigris-Regions": region, "X-Tigris-Consistent": "true", "Cache-Control": "no-cache"}


def hf_storage(
    *,
    bucket: str,
    prefix: str | None,
    namespace: str,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    expires_after: datetime | None = None,
    from_env: bool | None = None,
    get_credentials: Callable[[], S3StaticCredentials] | None = None,
    scatter_initial_credentials: bool = False,
    network_stream_timeout_seconds: int = 60,
    legacy_rooted_keys: bool | None = None,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Storage:
    """Objects in a Hugging Face storage bucket of ``namespace`` (a user or an organisation).

    The key and secret are those of its S3 gateway, not an access token. The rest is as in ``s3_storage``.
    """
    return s3_storage(
        bucket=bucket,
        prefix=prefix,
        region="us-east-1",
        endpoint_url=f"https://s3.hf.co/{namespace}",
        access_key_id=access_key_id,
        secret_access_key=secret_access_key,
        session_token=session_token,
        expires_after=expires_after,
        from_env=from_env,
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
        force_path_style=True,
        network_stream_timeout_seconds=network_stream_timeout_seconds,
        legacy_rooted_keys=legacy_rooted_keys,
        read_headers=read_headers,
        write_headers=write_headers,
        headers=headers,
    )


def gcs_storage(
    *,
    bucket: str,
    prefix: str | None,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    config: dict[str, str] | None = None,
    get_credentials: Callable[[], GcsBearerCredential] | None = None,
    scatter_initial_credentials: bool = False,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Storage:
    """Objects in Google Cloud Storage; ``config`` are further options of the client.

    >>> gcs_storage(bucket="ice", prefix="a", bearer_token="secret")
    <frazil.Storage>
    type: GCS
    bucket: ice
    prefix: a
    <BLANKLINE>
    """
    credentials = gcs_credentials(
        service_account_file=service_account_file,
        service_account_key=service_account_key,
        application_credentials=application_credentials,
        bearer_token=bearer_token,
        from_env=from_env,
        anonymous=anonymous,
        get_credentials=get_credentials,
        scatter_initial_credentials=scatter_initial_credentials,
    )
    return ObjectStorage(
        GcsLocation(bucket, dict(config or {}), credentials),
        prefix or "",
        read_headers=_merged(headers, read_headers),
        write_headers=_merged(headers, write_headers),
    )


def azure_storage(
    *,
    account: str,
    container: str,
    prefix: str,
    access_key: str | None = None,
    sas_token: str | None = None,
    bearer_token: str | None = None,
    from_env: bool | None = None,
    anonymous: bool | None = None,
    config: dict[str, str] | None = None,
) -> Storage:
    """Objects in Azure blob storage; ``config`` are further options of the client."""
    credentials = azure_credentials(
        access_key=access_key,
        sas_token=sas_token,
        bearer_token=bearer_token,
        from_env=from_env,
        anonymous=anonymous,
    )
    return ObjectStorage(AzureLocation(account, container, dict(config or {}), credentials), prefix)


def http_storage(
    base_url: str, opts: dict[str, str] | None = None, headers: dict[str, str] | None = None
) -> Storage:
    """The objects below an address of the web, read only; ``opts`` are options of the HTTP client."""
    return HttpStorage(base_url, opts, headers)


def redirect_storage(base_url: str) -> Storage:
    """The storage that ``base_url`` redirects to, read only. See ``frazil.storage.redirect``."""
    return RedirectStorage(base_url)


def _merged(headers: Mapping[str, str] | None, special: Mapping[str, str] | None) -> dict[str, str]:
    return {**(headers or {}), **(special or {})}


def _s3(
    bucket: str,
    prefix: str | None,
    options: S3Options,
    credentials: AnyS3Credential,
    legacy_rooted_keys: bool | None,
    headers: Mapping[str, str] | None,
    read_headers: Mapping[str, str] | None,
    write_headers: Mapping[str, str] | None,
    read_only: bool = False,
) -> Storage:
    if legacy_rooted_keys:
        raise InvalidInputError(
            "legacy_rooted_keys=True is not supported: the client cannot write keys that begin with '/'",
            ErrorKind.UNIMPLEMENTED,
        )
    return ObjectStorage(
        S3Location(bucket, options, credentials),
        prefix or "",
        read_headers=_merged(headers, read_headers),
        write_headers=_merged(headers, write_headers),
        read_only=read_only,
    )
