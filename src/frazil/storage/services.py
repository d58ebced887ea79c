"""Storages in cloud services: S3 and the services with its protocol, GCS, and Azure.

The functions for users have the names, arguments and defaults of the reference. The functions ``build_*``
take options and credentials as objects, as the class methods of ``Storage`` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final, Unpack

from frazil.argument_docs import with_keywords
from frazil.arguments import checked
from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.storage.base import Storage
from frazil.storage.buckets import NATIVE, AzureContainer, GcsBucket, S3Bucket
from frazil.storage.credential_families import (
    AnyAzureCredential,
    AnyGcsCredential,
    AnyS3Credential,
    AzureCredentials,
    GcsCredentials,
    S3Credentials,
)
from frazil.storage.credentials import (
    AzureKeywords,
    GcsKeywords,
    HfKeywords,
    R2Keywords,
    S3Keywords,
    S3ObjectStoreKeywords,
    S3Ways,
    azure_credentials,
    gcs_credentials,
    s3_credentials,
)
from frazil.storage.object_store import ObjectStorage
from frazil.storage.object_store_config import S3Options

#: The endpoints of R2 and Tigris.
R2_ENDPOINT: Final = "https://{account_id}.r2.cloudflarestorage.com"
TIGRIS_ENDPOINT: Final = "https://t3.storage.dev"

_WAYS: Final = S3Ways.__annotations__.keys()
_OPTIONS: Final = {field.name for field in fields(S3Options)}
#: Seconds. The default of the reference for all services with the protocol of S3.
_TIMEOUT: Final = 60


def _s3_arguments(keywords: Mapping[str, Any], timeout: int | None = _TIMEOUT) -> dict[str, Any]:
    """Return the arguments of ``build_s3`` for the keywords of ``s3_storage`` and similar functions."""
    keywords = {"network_stream_timeout_seconds": timeout, **keywords}
    options = {name: value for name, value in keywords.items() if name in _OPTIONS}
    options["anonymous"] = bool(keywords.get("anonymous"))
    ways = {name: value for name, value in keywords.items() if name in _WAYS}
    others = {name: value for name, value in keywords.items() if name not in _OPTIONS | _WAYS}
    return {"options": S3Options(**options), "credentials": s3_credentials(**ways), **others}


def build_s3(
    options: S3Options,
    bucket: str,
    prefix: str | None,
    *,
    credentials: AnyS3Credential | None = None,
    legacy_rooted_keys: bool | None = None,
    read_only: bool = False,
    shown_as: str = NATIVE,
    **headers: Any,
) -> Storage:
    """Return a storage in S3 or in a service with its protocol.

    Without ``credentials``, the storage is anonymous if the options are; otherwise it takes the credentials
    of the environment.
    """
    if legacy_rooted_keys:
        raise InvalidInputError(
            "legacy_rooted_keys=True is not supported: the client cannot write keys that begin with '/'",
            ErrorKind.UNIMPLEMENTED,
        )
    if credentials is None:
        credentials = S3Credentials.Anonymous() if options.anonymous else S3Credentials.FromEnv()
    bucket_of_s3 = S3Bucket(bucket, options, credentials, shown_as)
    return ObjectStorage(bucket_of_s3, prefix or "", **_combined(**headers), read_only=read_only)


def build_r2(
    options: S3Options, bucket: str | None, prefix: str | None, account_id: str | None = None, **others: Any
) -> Storage:
    """Return a storage in Cloudflare R2. Without a bucket, the first part of the prefix is the bucket."""
    if bucket is None:
        bucket, _, prefix = (prefix or "").partition("/")
        if not bucket:
            raise StorageError(
                "bucket must be set, or prefix must begin with a bucket, got neither. Pass `bucket`",
                ErrorKind.STORAGE_CONFIG,
            )
    endpoint = options.endpoint_url
    if endpoint is None:
        if account_id is None:
            raise StorageError(
                "endpoint_url or account_id must be set, got neither. Pass `account_id`, which Cloudflare "
                "shows for R2",
                ErrorKind.STORAGE_CONFIG,
            )
        endpoint = R2_ENDPOINT.format(account_id=account_id)
    region = "auto" if options.region is None else options.region
    options = replace(options, endpoint_url=endpoint, region=region, force_path_style=True)
    return build_s3(options, bucket, prefix, **others)


def build_tigris(
    options: S3Options,
    bucket: str,
    prefix: str | None,
    use_weak_consistency: bool,
    headers: Mapping[str, str] | None = None,
    **others: Any,
) -> Storage:
    """Return a storage in Tigris.

    It is consistent in the region of the options. With weak consistency, it is read only and reads the
    nearest copy.
    """
    region, endpoint = options.region, options.endpoint_url
    if region is None and not use_weak_consistency:
        raise StorageError(
            "region must be the region of the bucket for full consistency in Tigris, got None. Pass region, "
            "or use_weak_consistency=True for a read-only storage that may return old data",
            ErrorKind.STORAGE_OTHER,
        )
    if not use_weak_consistency:
        consistent = {"X-Tigris-Regions": region or "", "X-Tigris-Consistent": "true"}
        headers = {**consistent, "Cache-Control": "no-cache", **(headers or {})}
    endpoint = TIGRIS_ENDPOINT if endpoint is None else endpoint
    options = replace(options, endpoint_url=endpoint, region="auto" if region is None else region)
    return build_s3(options, bucket, prefix, headers=headers, read_only=use_weak_consistency, **others)


def build_hf(options: S3Options, bucket: str, prefix: str | None, namespace: str, **others: Any) -> Storage:
    """Return a storage in a Hugging Face storage bucket. The options' endpoint has no effect."""
    region, endpoint = options.region, f"https://s3.hf.co/{namespace}"
    region = "us-east-1" if region is None else region
    options = replace(options, endpoint_url=endpoint, region=region, force_path_style=True)
    return build_s3(options, bucket, prefix, **others)


def build_gcs(
    bucket: str,
    prefix: str | None,
    credentials: AnyGcsCredential | None = None,
    config: Mapping[str, str] | None = None,
    **headers: Any,
) -> Storage:
    """Return a storage in Google Cloud Storage."""
    credentials = GcsCredentials.FromEnv() if credentials is None else credentials
    return ObjectStorage(
        GcsBucket(bucket, dict(config or {}), credentials), prefix or "", **_combined(**headers)
    )


def build_azure(
    account: str,
    container: str,
    prefix: str,
    credentials: AnyAzureCredential | None = None,
    config: Mapping[str, str] | None = None,
) -> Storage:
    """Return a storage in Azure blob storage."""
    credentials = AzureCredentials.FromEnv() if credentials is None else credentials
    return ObjectStorage(AzureContainer(account, container, dict(config or {}), credentials), prefix)


def _combined(
    headers: Mapping[str, str] | None = None,
    read_headers: Mapping[str, str] | None = None,
    write_headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the headers of reads and of writes. Both contain ``headers``."""
    special = {"read_headers": read_headers, "write_headers": write_headers}
    return {name: {**(headers or {}), **(each or {})} for name, each in special.items()}


@checked
@with_keywords(S3Keywords, network_stream_timeout_seconds=_TIMEOUT)
def s3_storage(*, bucket: str, prefix: str | None, **options: Unpack[S3Keywords]) -> Storage:
    """Return a storage in S3, or in a server with the same protocol.

    For another server, pass ``endpoint_url``. At most one way of authorisation may be passed: an access key
    (``access_key_id`` and ``secret_access_key``), ``anonymous``, ``from_env`` or ``get_credentials``.

    Args:
        bucket: Name of the bucket.
        prefix: Prefix of the names of all objects, for example ``data/ice``. None means the whole bucket.

    Returns:
        The storage. No request is sent.

    Raises:
        InvalidInputError: ``invalid-credentials`` if the arguments name more than one way of authorisation or
            an incomplete one; ``unimplemented`` for ``legacy_rooted_keys=True``; ``storage-config`` for
            headers that HTTP does not allow.

    Examples:
        >>> s3_storage(bucket="ice", prefix="a/b", region="eu-west-1", anonymous=True)
        <frazil.Storage>
        type: S3 (native)
        bucket: ice
        prefix: a/b
        region: eu-west-1
        anonymous: True
        <BLANKLINE>
    """
    return build_s3(bucket=bucket, prefix=prefix, **_s3_arguments(options))


@checked
@with_keywords(S3ObjectStoreKeywords, s3_storage)
def s3_object_store_storage(
    *, bucket: str, prefix: str | None, **options: Unpack[S3ObjectStoreKeywords]
) -> Storage:
    """Return a storage in S3, as ``s3_storage``. The reference has a second client for S3.

    Returns:
        The storage. No request is sent.

    Examples:
        >>> s3_object_store_storage(bucket="ice", prefix="a", region="eu-west-1", anonymous=True).label()
        's3://ice/a'
    """
    return build_s3(bucket=bucket, prefix=prefix, shown_as="S3", **_s3_arguments(options, None))


@checked
@with_keywords(R2Keywords, s3_storage, network_stream_timeout_seconds=_TIMEOUT)
def r2_storage(
    *,
    bucket: str | None = None,
    prefix: str | None = None,
    account_id: str | None = None,
    **options: Unpack[R2Keywords],
) -> Storage:
    """Return a storage in Cloudflare R2.

    Pass ``account_id`` or ``endpoint_url``. Authorisation and errors are the same as in ``s3_storage``.

    Args:
        bucket: Name of the bucket. Default: the first part of ``prefix``.
        prefix: Prefix of the names of all objects. None means the whole bucket.
        account_id: Id of the account, which Cloudflare shows for R2. Not needed with ``endpoint_url``.
        endpoint_url: URL of the server. Default: ``https://<account_id>.r2.cloudflarestorage.com``.
        region: Region. Default: ``auto``.

    Returns:
        The storage. No request is sent.

    Raises:
        StorageError: ``storage-config`` without a bucket, and without ``account_id`` and ``endpoint_url``.

    Examples:
        >>> r2_storage(bucket="ice", prefix="a", account_id="abc", anonymous=True).label()
        's3://ice/a at https://abc.r2.cloudflarestorage.com'
    """
    return build_r2(bucket=bucket, prefix=prefix, account_id=account_id, **_s3_arguments(options))


@checked
@with_keywords(R2Keywords, s3_storage, network_stream_timeout_seconds=_TIMEOUT)
def tigris_storage(
    *, bucket: str, prefix: str | None, use_weak_consistency: bool = False, **options: Unpack[R2Keywords]
) -> Storage:
    """Return a storage in Tigris, which is fully consistent in one region.

    Authorisation and errors are the same as in ``s3_storage``.

    Args:
        region: Region of the bucket. Required unless ``use_weak_consistency`` is True.
        endpoint_url: URL of the server. Default: ``https://t3.storage.dev``.
        use_weak_consistency: True reads the nearest copy, which may be old, and makes the storage read only.
            Default: False.

    Returns:
        The storage. No request is sent.

    Raises:
        StorageError: ``storage-other`` without a region, unless ``use_weak_consistency`` is True.

    Examples:
        >>> tigris_storage(bucket="ice", prefix="a", use_weak_consistency=True).is_read_only
        True
    """
    place: dict[str, Any] = {"bucket": bucket, "prefix": prefix, "use_weak_consistency": use_weak_consistency}
    return build_tigris(**place, **_s3_arguments(options))


@checked
@with_keywords(HfKeywords, s3_storage, network_stream_timeout_seconds=_TIMEOUT)
def hf_storage(*, bucket: str, prefix: str | None, namespace: str, **options: Unpack[HfKeywords]) -> Storage:
    """Return a storage in a Hugging Face storage bucket.

    Authorisation and errors are the same as in ``s3_storage``, without ``anonymous``.

    Args:
        namespace: Name of the user or organisation that owns the bucket.
        access_key_id: Id of an access key of the S3 gateway of Hugging Face. An access token does not work.

    Returns:
        The storage. No request is sent.

    Examples:
        >>> hf_storage(bucket="ice", prefix="a", namespace="me", from_env=True).label()
        's3://ice/a at https://s3.hf.co/me'
    """
    return build_hf(bucket=bucket, prefix=prefix, namespace=namespace, **_s3_arguments(options))


@checked
@with_keywords(GcsKeywords, s3_storage)
def gcs_storage(*, bucket: str, prefix: str | None, **options: Unpack[GcsKeywords]) -> Storage:
    """Return a storage in Google Cloud Storage.

    At most one way of authorisation may be passed.

    Returns:
        The storage. No request is sent.

    Raises:
        InvalidInputError: ``invalid-credentials`` if the arguments name more than one way of authorisation;
            ``storage-config`` for headers that HTTP does not allow.

    Examples:
        >>> gcs_storage(bucket="ice", prefix="a", bearer_token="secret").label()
        'gs://ice/a'
    """
    kinds = ("config", "headers", "read_headers", "write_headers")
    others: dict[str, Any] = {name: value for name, value in options.items() if name in kinds}
    ways: dict[str, Any] = {name: value for name, value in options.items() if name not in kinds}
    return build_gcs(bucket, prefix, gcs_credentials(**ways), **others)


@checked
@with_keywords(AzureKeywords)
def azure_storage(*, account: str, container: str, prefix: str, **options: Unpack[AzureKeywords]) -> Storage:
    """Return a storage in Azure blob storage.

    At most one way of authorisation may be passed.

    Args:
        account: Name of the storage account.
        container: Name of the container.
        prefix: Prefix of the names of all objects. The empty string means the whole container.

    Returns:
        The storage. No request is sent.

    Raises:
        InvalidInputError: ``invalid-credentials`` if the arguments name more than one way of authorisation.

    Examples:
        >>> azure_storage(account="me", container="ice", prefix="a", anonymous=True).label()
        'az://me/ice/a'
    """
    ways: dict[str, Any] = {name: value for name, value in options.items() if name != "config"}
    return build_azure(account, container, prefix, azure_credentials(**ways), options.get("config"))
