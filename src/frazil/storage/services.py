"""Storages in cloud services: S3 and the services with its protocol, GCS, and Azure.

The functions have the names, arguments and defaults of the reference. They make options and credentials of
their arguments, and call the class methods of ``Storage``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, Unpack

from frazil.argument_docs import with_keywords
from frazil.arguments import checked
from frazil.storage.base import Storage
from frazil.storage.credentials import (
    AzureKeywords,
    GcsKeywords,
    HfKeywords,
    R2Keywords,
    S3CredentialOptions,
    S3Keywords,
    S3ObjectStoreKeywords,
    azure_credentials,
    gcs_credentials,
    s3_credentials,
)
from frazil.storage.object_store_config import S3Options

_CREDENTIAL_OPTIONS: Final = S3CredentialOptions.__annotations__.keys()
_OPTIONS: Final = {field.name for field in fields(S3Options)}
#: Seconds. The default of the reference for all services with the protocol of S3.
_TIMEOUT: Final = 60


def _s3_arguments(keywords: Mapping[str, Any], timeout: int | None = _TIMEOUT) -> dict[str, Any]:
    """Return the arguments of ``Storage.new_s3`` for the keywords of ``s3_storage`` and similar functions."""
    keywords = {"network_stream_timeout_seconds": timeout, **keywords}
    options = {name: value for name, value in keywords.items() if name in _OPTIONS}
    options["anonymous"] = bool(keywords.get("anonymous"))
    ways = {name: value for name, value in keywords.items() if name in _CREDENTIAL_OPTIONS}
    others = {name: value for name, value in keywords.items() if name not in _OPTIONS | _CREDENTIAL_OPTIONS}
    return {"config": S3Options(**options), "credentials": s3_credentials(**ways), **others}


@checked
@with_keywords(S3Keywords, S3Options, Storage.new_s3, network_stream_timeout_seconds=_TIMEOUT)
def s3_storage(*, bucket: str, prefix: str | None, **options: Unpack[S3Keywords]) -> Storage:
    """Return a storage in S3, or in a server with the same protocol.

    For another server, pass ``endpoint_url``. At most one way of authorisation may be passed: an access key
    (``access_key_id`` and ``secret_access_key``), ``anonymous``, ``from_env`` or ``get_credentials``.

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
    return Storage.new_s3(bucket=bucket, prefix=prefix, **_s3_arguments(options))


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
    return Storage.new_s3_object_store(bucket=bucket, prefix=prefix, **_s3_arguments(options, None))


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
    return Storage.new_r2(bucket=bucket, prefix=prefix, account_id=account_id, **_s3_arguments(options))


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
    return Storage.new_tigris(**place, **_s3_arguments(options))


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
    return Storage.new_hf(bucket=bucket, prefix=prefix, namespace=namespace, **_s3_arguments(options))


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
    return Storage.new_gcs(bucket, prefix, gcs_credentials(**ways), **others)


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
    credentials = azure_credentials(**ways)
    return Storage.new_azure_blob(account, container, prefix, credentials, config=options.get("config"))
