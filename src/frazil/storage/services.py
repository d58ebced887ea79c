"""Storages in cloud services: S3 and the services with its protocol, GCS, and Azure.

Each function takes options and credentials as objects. The functions of ``constructors`` and the class
methods of ``Storage`` collect their arguments into these objects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.storage.buckets import NATIVE, AzureContainer, GcsBucket, S3Bucket
from frazil.storage.credentials import AzureCredentials, GcsCredentials, S3Credentials
from frazil.storage.object_store import ObjectStorage
from frazil.storage.s3_arguments import Headers, S3Arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.storage.base import Storage
    from frazil.storage.credentials import AnyAzureCredential, AnyGcsCredential

#: The endpoints of R2 and Tigris.
R2_ENDPOINT: Final = "https://{account_id}.r2.cloudflarestorage.com"
TIGRIS_ENDPOINT: Final = "https://t3.storage.dev"


def build_s3(arguments: S3Arguments, *, read_only: bool = False, shown_as: str = NATIVE) -> Storage:
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
        S3Bucket(arguments.bucket or "", options, credentials, shown_as),
        arguments.prefix or "",
        read_headers=_combine_headers(arguments.headers, arguments.read_headers),
        write_headers=_combine_headers(arguments.headers, arguments.write_headers),
        read_only=read_only,
    )


def build_r2(arguments: S3Arguments, account_id: str | None = None) -> Storage:
    """Return a storage in Cloudflare R2. Without a bucket, the first part of the prefix is the bucket."""
    bucket, prefix = arguments.bucket, arguments.prefix
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
    return build_s3(replace(arguments, options=options, bucket=bucket, prefix=prefix))


def build_tigris(arguments: S3Arguments, use_weak_consistency: bool) -> Storage:
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
    return build_s3(replace(arguments, options=options, headers=headers), read_only=use_weak_consistency)


def build_hf(arguments: S3Arguments, namespace: str) -> Storage:
    """Return a storage in a Hugging Face storage bucket. The options' endpoint has no effect."""
    options = replace(
        arguments.options,
        endpoint_url=f"https://s3.hf.co/{namespace}",
        region="us-east-1" if arguments.options.region is None else arguments.options.region,
        force_path_style=True,
    )
    return build_s3(replace(arguments, options=options))


def build_gcs(
    bucket: str,
    prefix: str | None,
    credentials: AnyGcsCredential | None = None,
    config: Mapping[str, str] | None = None,
    headers: Headers = None,
    read_headers: Headers = None,
    write_headers: Headers = None,
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


def _combine_headers(headers: Headers, special: Headers) -> dict[str, str]:
    return {**(headers or {}), **(special or {})}
