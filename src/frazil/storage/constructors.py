"""Functions that create a storage, with the names, arguments and defaults of the reference.

To create a storage does not send a request. ``s3_constructors`` has the functions for S3 and services with
its protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.argument_docs import with_argument_docs
from frazil.arguments import checked
from frazil.storage.base import Storage
from frazil.storage.credentials import azure_credentials, gcs_credentials
from frazil.storage.http import HttpStorage
from frazil.storage.redirect import RedirectStorage
from frazil.storage.s3_constructors import s3_storage
from frazil.storage.services import (
    build_azure,
    build_gcs,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.storage.credentials import GcsBearerCredential


@checked
@with_argument_docs(gcs_credentials, s3_storage)
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
    """Return a storage in Google Cloud Storage.

    At most one way of authorisation may be passed.

    Args:
        config: Other options of the client and their values, for example ``{'timeout': '30s'}``. Default:
            none.

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
@with_argument_docs(azure_credentials)
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
    """Return a storage in Azure blob storage.

    At most one way of authorisation may be passed.

    Args:
        account: Name of the storage account.
        container: Name of the container.
        prefix: Prefix of the names of all objects. The empty string means the whole container.
        config: Other options of the client and their values. Default: none.

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
    """Return a read-only storage of the objects below a URL on a web server.

    The storage cannot list its objects.

    Args:
        base_url: URL of the directory that holds the objects, for example ``https://example.org/ice``.
        opts: Options of the HTTP client and their values, for example ``{"timeout": "30s"}``,
            ``follow_redirects`` or ``proxy_url``. Default: none.
        headers: Headers that are sent with every request. Default: none.

    Returns:
        The storage. No request is sent.

    Raises:
        StorageError: ``cannot-parse-url`` for a URL without a scheme and a host; ``storage-config`` for an
            invalid option.
        InvalidInputError: ``storage-config`` for headers that HTTP does not allow.

    Examples:
        >>> http_storage("https://example.org/ice", {"timeout": "30s"})
        <frazil.Storage>
        type: HTTP
        url: https://example.org/ice
        <BLANKLINE>
    """
    return HttpStorage(base_url, opts, headers)


@checked
def redirect_storage(base_url: str) -> Storage:
    """Return the read-only storage that a URL on a web server redirects to.

    The first use sends a request to the URL and follows its redirects to the URL of the storage. The
    docstring of ``frazil.storage.redirect`` lists the possible URLs.

    Args:
        base_url: URL on a web server that redirects to the URL of the storage.

    Returns:
        The storage. No request is sent before its first use.

    Raises:
        StorageError: ``cannot-parse-url`` for a URL without a scheme and a host.

    Examples:
        >>> redirect_storage("https://example.org/latest")
        <frazil.Storage>
        type: redirect
        url: https://example.org/latest
        <BLANKLINE>
    """
    return RedirectStorage(base_url)
