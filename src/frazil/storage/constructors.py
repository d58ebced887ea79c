"""The functions that make a storage, with the names, arguments and defaults of the reference.

The functions for S3 and services with its protocol share most of their arguments: ``S3Arguments`` collects
them from ``locals()``, by name.
"""

from __future__ import annotations

import os
from os import PathLike
from typing import TYPE_CHECKING, Final

from frazil.arguments import checked
from frazil.storage.base import Storage
from frazil.storage.credentials import azure_credentials, gcs_credentials
from frazil.storage.http import HttpStorage
from frazil.storage.local import LocalStorage
from frazil.storage.memory import MemoryStorage
from frazil.storage.object_store_config import ChecksumAlgorithm
from frazil.storage.redirect import RedirectStorage
from frazil.storage.s3_arguments import S3Arguments
from frazil.storage.services import (
    build_azure,
    build_gcs,
    build_hf,
    build_r2,
    build_s3,
    build_tigris,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from frazil.storage.credentials import GcsBearerCredential, S3StaticCredentials


@checked
def in_memory_storage() -> Storage:
    """A new, empty storage in the memory of this process.

    >>> in_memory_storage()
    <frazil.Storage>
    type: in-memory
    <BLANKLINE>
    """
    return MemoryStorage()


@checked
def local_filesystem_storage(path: str | PathLike[str]) -> Storage:
    """Objects as files below the directory ``path``, which is made at the first write.

    ``~`` at the start of the path is the home directory of the user, as in a shell. Safe for any number of
    threads and processes on one machine.
    """
    return LocalStorage(os.path.expanduser(path))


@checked
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
    return build_s3(S3Arguments.from_single(locals()))


@checked
def s3_object_store_storage(
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
    force_path_style: bool = False,
    read_headers: dict[str, str] | None = None,
    write_headers: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Storage:
    """``s3_storage``: to Frazil there is one client for S3."""
    return build_s3(S3Arguments.from_single(locals()), shown_as="S3")


@checked
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
    return build_r2(S3Arguments.from_single(locals()), account_id)


@checked
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
    return build_tigris(S3Arguments.from_single(locals()), use_weak_consistency)


@checked
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
    return build_hf(S3Arguments.from_single(locals()), namespace)


@checked
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
    return build_gcs(bucket, prefix, credentials, config, headers, read_headers, write_headers)


@checked
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
    return build_azure(account, container, prefix, credentials, config)


@checked
def http_storage(
    base_url: str, opts: dict[str, str] | None = None, headers: dict[str, str] | None = None
) -> Storage:
    """The objects below an address of the web, read only; ``opts`` are options of the HTTP client."""
    return HttpStorage(base_url, opts, headers)


@checked
def redirect_storage(base_url: str) -> Storage:
    """The storage that ``base_url`` redirects to, read only. See ``frazil.storage.redirect``."""
    return RedirectStorage(base_url)


#: The functions that the class methods of ``Storage`` call, by the name of the method.
CONSTRUCTORS: Final[Mapping[str, Callable[..., Storage]]] = {
    "new_in_memory": in_memory_storage,
    "new_local_filesystem": local_filesystem_storage,
    "new_s3": build_s3,
    "new_tigris": build_tigris,
    "new_r2": build_r2,
    "new_hf": build_hf,
    "new_gcs": build_gcs,
    "new_azure_blob": build_azure,
    "new_http": http_storage,
    "new_redirect": redirect_storage,
}
