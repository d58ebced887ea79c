"""Storages in cloud services: S3 and the services with its protocol, GCS, and Azure.

The functions for users have the names, arguments and defaults of the reference. To create a storage does not
send a request. The functions ``build_*`` take options and credentials as objects, as the class methods of
``Storage`` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self, Unpack

from frazil.argument_docs import with_argument_docs, with_keywords
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

_DEFAULTS: Final[Mapping[str, Any]] = {"network_stream_timeout_seconds": 60}
_WAYS: Final = S3Ways.__annotations__.keys()
_OPTIONS: Final = {field.name for field in fields(S3Options)}


@dataclass(frozen=True, slots=True)
class S3Arguments:
    """The arguments that all storages with the protocol of S3 share, besides the place.

    Without ``credentials``, the storage is anonymous if the options are; otherwise it takes the credentials
    of the environment.
    """

    options: S3Options
    credentials: AnyS3Credential | None = None
    legacy_rooted_keys: bool | None = None
    headers: Mapping[str, str] | None = None
    read_headers: Mapping[str, str] | None = None
    write_headers: Mapping[str, str] | None = None

    @classmethod
    def from_keywords(cls, keywords: Mapping[str, Any]) -> Self:
        """Return the arguments of ``s3_storage`` and similar functions."""
        options = {name: value for name, value in keywords.items() if name in _OPTIONS}
        options["anonymous"] = bool(keywords.get("anonymous"))
        ways = {name: value for name, value in keywords.items() if name in _WAYS}
        others = {k: v for k, v in keywords.items() if k not in _OPTIONS and k not in _WAYS}
        return cls(S3Options(**options), s3_credentials(**ways), **others)


def build_s3(
    arguments: S3Arguments,
    bucket: str,
    prefix: str | None,
    *,
    read_only: bool = False,
    shown_as: str = NATIVE,
) -> Storage:
    """Return a storage in S3 or in a service with its protocol."""
    if arguments.legacy_rooted_keys:
        raise InvalidInputError(
            "legacy_rooted_keys=True is not supported: the client cannot write keys that begin with '/'",
            ErrorKind.UNIMPLEMENTED,
        )
    options, credentials = arguments.options, arguments.credentials
    if credentials is None:
        credentials = S3Credentials.Anonymous() if options.anonymous else S3Credentials.FromEnv()
    return ObjectStorage(
        S3Bucket(bucket, options, credentials, shown_as),
        prefix or "",
        read_headers=_combine_headers(arguments.headers, arguments.read_headers),
        write_headers=_combine_headers(arguments.headers, arguments.write_headers),
        read_only=read_only,
    )


def build_r2(
    arguments: S3Arguments, bucket: str | None, prefix: str | None, account_id: str | None = None
) -> Storage:
    """Return a storage in Cloudflare R2. Without a bucket, the first part of the prefix is the bucket."""
    if bucket is None:
        bucket, _, prefix = (prefix or "").partition("/")
        if not bucket:
            raise StorageError(
                "bucket must be set, or prefix must begin with a bucket, got neither. Pass `bucket`",
                ErrorKind.STORAGE_CONFIG,
            )
    options = arguments.options
    endpoint = options.endpoint_url
    if endpoint is None:
        if account_id is None:
            raise StorageError(
                "endpoint_url or account_id must be set, got neither. Pass `account_id`, which Cloudflare "
                "shows for R2",
                ErrorKind.STORAGE_CONFIG,
            )
        endpoint = R2_ENDPOINT.format(account_id=account_id)
    options = replace(
        options,
        endpoint_url=endpoint,
        region="auto" if options.region is None else options.region,
        force_path_style=True,
    )
    return build_s3(replace(arguments, options=options), bucket, prefix)


def build_tigris(
    arguments: S3Arguments, bucket: str, prefix: str | None, use_weak_consistency: bool
) -> Storage:
    """Return a storage in Tigris.

    It is consistent in the region of the options. With weak consistency, it is read only and reads the
    nearest copy.
    """
    options = arguments.options
    region = options.region
    if region is None and not use_weak_consistency:
        raise StorageError(
            "region must be the region of the bucket for full consistency in Tigris, got None. Pass region, "
            "or use_weak_consistency=True for a read-only storage that may return old data",
            ErrorKind.STORAGE_OTHER,
        )
    consistent = {
        "X-Tigris-Regions": region or "",
        "X-Tigris-Consistent": "true",
        "Cache-Control": "no-cache",
    }
    options = replace(
        options,
        endpoint_url=TIGRIS_ENDPOINT if options.endpoint_url is None else options.endpoint_url,
        region="auto" if region is None else region,
    )
    headers = _combine_headers({} if use_weak_consistency else consistent, arguments.headers)
    arguments = replace(arguments, options=options, headers=headers)
    return build_s3(arguments, bucket, prefix, read_only=use_weak_consistency)


def build_hf(arguments: S3Arguments, bucket: str, prefix: str | None, namespace: str) -> Storage:
    """Return a storage in a Hugging Face storage bucket. The options' endpoint has no effect."""
    options = replace(
        arguments.options,
        endpoint_url=f"https://s3.hf.co/{namespace}",
        region="us-east-1" if arguments.options.region is None else arguments.options.region,
        force_path_style=True,
    )
    return build_s3(replace(arguments, options=options), bucket, prefix)


def build_gcs(
    bucket: str,
    prefix: str | None,
    credentials: AnyGcsCredential | None = None,
    config: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    read_headers: Mapping[str, str] | None = None,
    write_headers: Mapping[str, str] | None = None,
) -> Storage:
    """Return a storage in Google Cloud Storage."""
    credentials = GcsCredentials.FromEnv() if credentials is None else credentials
    return ObjectStorage(
        GcsBucket(bucket, dict(config or {}), credentials),
        prefix or "",
        read_headers=_combine_headers(headers, read_headers),
        write_headers=_combine_headers(headers, write_headers),
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


def _combine_headers(headers: Mapping[str, str] | None, special: Mapping[str, str] | None) -> dict[str, str]:
    return {**(headers or {}), **(special or {})}


@checked
@with_keywords(S3Keywords, **_DEFAULTS)
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
    return build_s3(S3Arguments.from_keywords({**_DEFAULTS, **options}), bucket, prefix)


@checked
@with_argument_docs(s3_storage)
@with_keywords(S3ObjectStoreKeywords)
def s3_object_store_storage(
    *, bucket: str, prefix: str | None, **options: Unpack[S3ObjectStoreKeywords]
) -> Storage:
    """Return a storage in S3. Frazil has one client for S3, the one of ``s3_storage``.

    The function exists because the reference has a second client for S3.

    Returns:
        The storage. No request is sent.

    Raises:
        InvalidInputError: ``invalid-credentials`` if the arguments name more than one way of authorisation or
            an incomplete one; ``storage-config`` for headers that HTTP does not allow.

    Examples:
        >>> s3_object_store_storage(bucket="ice", prefix="a", region="eu-west-1", anonymous=True).label()
        's3://ice/a'
    """
    return build_s3(S3Arguments.from_keywords(options), bucket, prefix, shown_as="S3")


@checked
@with_argument_docs(s3_storage)
@with_keywords(R2Keywords, **_DEFAULTS)
def r2_storage(
    *,
    bucket: str | None = None,
    prefix: str | None = None,
    account_id: str | None = None,
    **options: Unpack[R2Keywords],
) -> Storage:
    """Return a storage in Cloudflare R2.

    Pass ``account_id`` or ``endpoint_url``. Authorisation is the same as in ``s3_storage``.

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
        InvalidInputError: As in ``s3_storage``.

    Examples:
        >>> r2_storage(bucket="ice", prefix="a", account_id="abc", anonymous=True)
        <frazil.Storage>
        type: S3 (native)
        bucket: ice
        prefix: a
        region: auto
        endpoint_url: https://abc.r2.cloudflarestorage.com
        anonymous: True
        force_path_style: True
        <BLANKLINE>
    """
    return build_r2(S3Arguments.from_keywords({**_DEFAULTS, **options}), bucket, prefix, account_id)


@checked
@with_argument_docs(s3_storage)
@with_keywords(R2Keywords, **_DEFAULTS)
def tigris_storage(
    *, bucket: str, prefix: str | None, use_weak_consistency: bool = False, **options: Unpack[R2Keywords]
) -> Storage:
    """Return a storage in Tigris, which is fully consistent in one region.

    Authorisation is the same as in ``s3_storage``.

    Args:
        region: Region of the bucket. Required unless ``use_weak_consistency`` is True.
        endpoint_url: URL of the server. Default: ``https://t3.storage.dev``.
        use_weak_consistency: True reads the nearest copy, which may be old, and makes the storage read only.
            Default: False.

    Returns:
        The storage. No request is sent.

    Raises:
        StorageError: ``storage-other`` without a region, unless ``use_weak_consistency`` is True.
        InvalidInputError: As in ``s3_storage``.

    Examples:
        >>> tigris_storage(bucket="ice", prefix="a", use_weak_consistency=True).is_read_only
        True
    """
    return build_tigris(
        S3Arguments.from_keywords({**_DEFAULTS, **options}), bucket, prefix, use_weak_consistency
    )


@checked
@with_argument_docs(s3_storage)
@with_keywords(HfKeywords, **_DEFAULTS)
def hf_storage(*, bucket: str, prefix: str | None, namespace: str, **options: Unpack[HfKeywords]) -> Storage:
    """Return a storage in a Hugging Face storage bucket.

    Authorisation is the same as in ``s3_storage``, without ``anonymous``.

    Args:
        namespace: Name of the user or organisation that owns the bucket.
        access_key_id: Id of an access key of the S3 gateway of Hugging Face. An access token does not work.

    Returns:
        The storage. No request is sent.

    Raises:
        InvalidInputError: As in ``s3_storage``.

    Examples:
        >>> hf_storage(bucket="ice", prefix="a", namespace="me", from_env=True)
        <frazil.Storage>
        type: S3 (native)
        bucket: ice
        prefix: a
        region: us-east-1
        endpoint_url: https://s3.hf.co/me
        force_path_style: True
        <BLANKLINE>
    """
    return build_hf(S3Arguments.from_keywords({**_DEFAULTS, **options}), bucket, prefix, namespace)


@checked
@with_argument_docs(s3_storage)
@with_keywords(GcsKeywords)
def gcs_storage(*, bucket: str, prefix: str | None, **options: Unpack[GcsKeywords]) -> Storage:
    """Return a storage in Google Cloud Storage.

    At most one way of authorisation may be passed.

    Returns:
        The storage. No request is sent.

    Raises:
        InvalidInputError: ``invalid-credentials`` if the arguments name more than one way of authorisation;
            ``storage-config`` for headers that HTTP does not allow.

    Examples:
        >>> gcs_storage(bucket="ice", prefix="a", bearer_token="secret")
        <frazil.Storage>
        type: GCS
        bucket: ice
        prefix: a
        <BLANKLINE>
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
        >>> azure_storage(account="me", container="ice", prefix="a", anonymous=True)
        <frazil.Storage>
        type: Azure
        account: me
        container: ice
        prefix: a
        <BLANKLINE>
    """
    ways: dict[str, Any] = {name: value for name, value in options.items() if name != "config"}
    return build_azure(account, container, prefix, azure_credentials(**ways), options.get("config"))
