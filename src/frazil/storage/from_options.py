"""Storages made from options and credentials as values.

The functions of ``constructors`` gather these values from single arguments; the class methods of ``Storage``
get them as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.storage.credentials import AzureCredentials, GcsCredentials, S3Credentials
from frazil.storage.locations import NATIVE, AzureLocation, GcsLocation, S3Location
from frazil.storage.object_store import ObjectStorage
from frazil.storage.redirect import R2_ENDPOINT, TIGRIS_ENDPOINT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.storage.base import Storage
    from frazil.storage.credentials import AnyAzureCredential, AnyGcsCredential, AnyS3Credential
    from frazil.storage.object_store_config import S3Options

type Headers = Mapping[str, str] | None


def s3_from_options(
    options: S3Options,
    bucket: str,
    prefix: str | None,
    credentials: AnyS3Credential | None = None,
    legacy_rooted_keys: bool | None = None,
    headers: Headers = None,
    read_headers: Headers = None,
    write_headers: Headers = None,
    *,
    read_only: bool = False,
    shown_as: str = NATIVE,
) -> Storage:
    """Objects in S3; without ``credentials`` what the environment offers, or none if the options say so."""
    if legacy_rooted_keys:
        raise InvalidInputError(
            "legacy_rooted_keys=True is not supported: the client cannot write keys that begin with '/'",
            ErrorKind.UNIMPLEMENTED,
        )
    if credentials is None:
        credentials = S3Credentials.Anonymous() if options.anonymous else S3Credentials.FromEnv()
    return ObjectStorage(
        S3Location(bucket, options, credentials, shown_as),
        prefix or "",
        read_headers=_merged(headers, read_headers),
        write_headers=_merged(headers, write_headers),
        read_only=read_only,
    )


def r2_from_options(
    options: S3Options,
    bucket: str | None = None,
    prefix: str | None = None,
    account_id: str | None = None,
    credentials: AnyS3Credential | None = None,
    legacy_rooted_keys: bool | None = None,
    headers: Headers = None,
    read_headers: Headers = None,
    write_headers: Headers = None,
) -> Storage:
    """Objects in Cloudflare R2. Without a ``bucket``, the first part of ``prefix`` is it."""
    if bucket is None:
        bucket, _, prefix = (prefix or "").partition("/")
        if not bucket:
            raise StorageError(
                "expected a bucket, or a prefix that begins with one, found neither: give `bucket`",
                ErrorKind.STORAGE_CONFIG,
            )
    endpoint = options.endpoint_url
    if endpoint is None:
        if account_id is None:
            raise StorageError(
                "expected endpoint_url or account_id, found neither: give `account_id`, which Cloudflare "
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
    return s3_from_options(
        options, bucket, prefix, credentials, legacy_rooted_keys, headers, read_headers, write_headers
    )


def tigris_from_options(
    options: S3Options,
    bucket: str,
    prefix: str | None,
    use_weak_consistency: bool,
    credentials: AnyS3Credential | None = None,
    legacy_rooted_keys: bool | None = None,
    headers: Headers = None,
    read_headers: Headers = None,
    write_headers: Headers = None,
) -> Storage:
    """Objects in Tigris: consistent in the region of the options, or read only, from the nearest copy."""
    region = options.region
    if region is None and not use_weak_consistency:
        raise StorageError(
            "Tigris needs the region of the bucket for full consistency: give region, or "
            "use_weak_consistency=True for a read-only storage that may lag behind",
            ErrorKind.STORAGE_OTHER,
        )
    endpoint = TIGRIS_ENDPOINT if options.endpoint_url is None else options.endpoint_url
    consistent = {
        "X-Tigris-Regions": region or "",
        "X-Tigris-Consistent": "true",
        "Cache-Control": "no-cache",
    }
    return s3_from_options(
        replace(options, endpoint_url=endpoint, region="auto" if region is None else region),
        bucket,
        prefix,
        credentials,
        legacy_rooted_keys,
        _merged({} if use_weak_consistency else consistent, headers),
        read_headers,
        write_headers,
        read_only=use_weak_consistency,
    )


def hf_from_options(
    options: S3Options,
    bucket: str,
    prefix: str | None,
    namespace: str,
    credentials: AnyS3Credential | None = None,
    legacy_rooted_keys: bool | None = None,
    headers: Headers = None,
    read_headers: Headers = None,
    write_headers: Headers = None,
) -> Storage:
    """Objects in a Hugging Face storage bucket of ``namespace``, whatever endpoint the options name."""
    options = replace(
        options,
        endpoint_url=f"https://s3.hf.co/{namespace}",
        region="us-east-1" if options.region is None else options.region,
        force_path_style=True,
    )
    return s3_from_options(
        options, bucket, prefix, credentials, legacy_rooted_keys, headers, read_headers, write_headers
    )


def gcs_from_options(
    bucket: str,
    prefix: str | None,
    credentials: AnyGcsCredential | None = None,
    config: Mapping[str, str] | None = None,
    headers: Headers = None,
    read_headers: Headers = None,
    write_headers: Headers = None,
) -> Storage:
    """Objects in Google Cloud Storage."""
    credentials = GcsCredentials.FromEnv() if credentials is None else credentials
    return ObjectStorage(
        GcsLocation(bucket, dict(config or {}), credentials),
        prefix or "",
        read_headers=_merged(headers, read_headers),
        write_headers=_merged(headers, write_headers),
    )


def azure_from_options(
    account: str,
    container: str,
    prefix: str,
    credentials: AnyAzureCredential | None = None,
    config: Mapping[str, str] | None = None,
) -> Storage:
    """Objects in Azure blob storage."""
    credentials = AzureCredentials.FromEnv() if credentials is None else credentials
    return ObjectStorage(AzureLocation(account, container, dict(config or {}), credentials), prefix)


def _merged(headers: Headers, special: Headers) -> dict[str, str]:
    return {**(headers or {}), **(special or {})}
