"""Functions that create a storage, with the names, arguments and defaults of the reference.

To create a storage does not send a request. The functions for S3 and services with its protocol share most
of their arguments. ``S3Arguments`` collects these arguments from ``locals()``, by name.
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
    """Return a new, empty storage in the memory of this process.

    For tests and examples. Threads of this process may share it. It cannot be unpickled in another process.

    Returns:
        The storage.

    Examples:
        >>> in_memory_storage()
        <frazil.Storage>
        type: in-memory
        <BLANKLINE>
    """
    return MemoryStorage()


@checked
def local_filesystem_storage(path: str | PathLike[str]) -> Storage:
    """Return a storage whose objects are files below a directory.

    The first write creates the directory. Any number of threads and processes on one machine can use it at
    the same time.

    Args:
        path: Path of the directory. ``~`` at its start means the home directory of the user.

    Returns:
        The storage.

    Examples:
        >>> local_filesystem_storage("/data/ice")
        <frazil.Storage>
        type: local filesystem
        path: /data/ice
        <BLANKLINE>
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
    """Return a storage in S3, or in a server with the same protocol.

    For another server, pass ``endpoint_url``. At most one way of authorisation may be passed: an access key
    (``access_key_id`` and ``secret_access_key``), ``anonymous``, ``from_env`` or ``get_credentials``.

    Args:
        bucket: Name of the bucket.
        prefix: Prefix of the names of all objects, for example ``data/ice``. None means the whole bucket.
        region: Region of the bucket. Default: ``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the AWS profile.
        endpoint_url: URL of the server, for example ``https://minio.example:9000``. Default: Amazon S3.
        allow_http: Whether requests without encryption are allowed (for an ``http://`` endpoint).
            Default: False.
        access_key_id: Id of an access key. It needs ``secret_access_key``.
        secret_access_key: Secret of the access key.
        session_token: Session token of a temporary access key.
        expires_after: Time when the access key expires, with a time zone. Default: it does not expire.
        anonymous: True sends requests without credentials.
        from_env: True takes the credentials from the environment: variables, AWS profile, web identity,
            container or instance role. This is the default.
        get_credentials: Function without arguments that returns ``S3StaticCredentials``. It must be
            picklable. Frazil calls it again when its last result expires.
        scatter_initial_credentials: True calls ``get_credentials`` once now, and stores the result in every
            pickle of the storage. Default: False.
        force_path_style: True puts the bucket into the path of URLs. False, the default, puts it into the
            host name where this is possible.
        network_stream_timeout_seconds: A read that makes no progress for this number of seconds fails. 0
            means no limit. Default: 60.
        requester_pays: True makes the owner of the credentials pay for the requests. Default: False.
        checksum_algorithm: Checksum that is sent with uploads: ``Sha256`` or ``Crc64Nvme``. Other members of
            ``ChecksumAlgorithm`` are not supported. Default: none.
        legacy_rooted_keys: True is not supported and raises an error. Default: None.
        read_headers: Headers that are sent with every request that reads. Default: none.
        write_headers: Headers that are sent with every request that writes. Default: none.
        headers: Headers that are sent with every request. Default: none.

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
    """Return a storage in S3. Frazil has one client for S3, the one of ``s3_storage``.

    The function exists because the reference has a second client for S3.

    Args:
        bucket: Name of the bucket.
        prefix: Prefix of the names of all objects, for example ``data/ice``. None means the whole bucket.
        region: Region of the bucket. Default: ``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the AWS profile.
        endpoint_url: URL of the server, for example ``https://minio.example:9000``. Default: Amazon S3.
        allow_http: Whether requests without encryption are allowed (for an ``http://`` endpoint).
            Default: False.
        access_key_id: Id of an access key. It needs ``secret_access_key``.
        secret_access_key: Secret of the access key.
        session_token: Session token of a temporary access key.
        expires_after: Time when the access key expires, with a time zone. Default: it does not expire.
        anonymous: True sends requests without credentials.
        from_env: True takes the credentials from the environment: variables, AWS profile, web identity,
            container or instance role. This is the default.
        force_path_style: True puts the bucket into the path of URLs. False, the default, puts it into the
            host name where this is possible.
        read_headers: Headers that are sent with every request that reads. Default: none.
        write_headers: Headers that are sent with every request that writes. Default: none.
        headers: Headers that are sent with every request. Default: none.

    Returns:
        The storage. No request is sent.

    Raises:
        InvalidInputError: ``invalid-credentials`` if the arguments name more than one way of authorisation or
            an incomplete one; ``storage-config`` for headers that HTTP does not allow.

    Examples:
        >>> s3_object_store_storage(bucket="ice", prefix="a", region="eu-west-1", anonymous=True).label()
        'S3, bucket ice, prefix a, region eu-west-1, anonymous True'
    """
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
    """Return a storage in Cloudflare R2.

    Pass ``account_id`` or ``endpoint_url``. Authorisation is the same as in ``s3_storage``.

    Args:
        bucket: Name of the bucket. Default: the first part of ``prefix``.
        prefix: Prefix of the names of all objects. None means the whole bucket.
        account_id: Id of the account, which Cloudflare shows for R2. Not needed with ``endpoint_url``.
        endpoint_url: URL of the server. Default: ``https://<account_id>.r2.cloudflarestorage.com``.
        region: Region. Default: ``auto``.
        allow_http: Whether requests without encryption are allowed (for an ``http://`` endpoint).
            Default: False.
        access_key_id: Id of an access key. It needs ``secret_access_key``.
        secret_access_key: Secret of the access key.
        session_token: Session token of a temporary access key.
        expires_after: Time when the access key expires, with a time zone. Default: it does not expire.
        anonymous: True sends requests without credentials.
        from_env: True takes the credentials from the environment: variables, AWS profile, web identity,
            container or instance role. This is the default.
        get_credentials: Function without arguments that returns ``S3StaticCredentials``. It must be
            picklable. Frazil calls it again when its last result expires.
        scatter_initial_credentials: True calls ``get_credentials`` once now, and stores the result in every
            pickle of the storage. Default: False.
        network_stream_timeout_seconds: A read that makes no progress for this number of seconds fails. 0
            means no limit. Default: 60.
        checksum_algorithm: Checksum that is sent with uploads: ``Sha256`` or ``Crc64Nvme``. Other members of
            ``ChecksumAlgorithm`` are not supported. Default: none.
        legacy_rooted_keys: True is not supported and raises an error. Default: None.
        read_headers: Headers that are sent with every request that reads. Default: none.
        write_headers: Headers that are sent with every request that writes. Default: none.
        headers: Headers that are sent with every request. Default: none.

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
    """Return a storage in Tigris, which is fully consistent in one region.

    Authorisation is the same as in ``s3_storage``.

    Args:
        bucket: Name of the bucket.
        prefix: Prefix of the names of all objects, for example ``data/ice``. None means the whole bucket.
        region: Region of the bucket. Required unless ``use_weak_consistency`` is True.
        endpoint_url: URL of the server. Default: ``https://t3.storage.dev``.
        use_weak_consistency: True reads the nearest copy, which may be old, and makes the storage read only.
            Default: False.
        allow_http: Whether requests without encryption are allowed (for an ``http://`` endpoint).
            Default: False.
        access_key_id: Id of an access key. It needs ``secret_access_key``.
        secret_access_key: Secret of the access key.
        session_token: Session token of a temporary access key.
        expires_after: Time when the access key expires, with a time zone. Default: it does not expire.
        anonymous: True sends requests without credentials.
        from_env: True takes the credentials from the environment: variables, AWS profile, web identity,
            container or instance role. This is the default.
        get_credentials: Function without arguments that returns ``S3StaticCredentials``. It must be
            picklable. Frazil calls it again when its last result expires.
        scatter_initial_credentials: True calls ``get_credentials`` once now, and stores the result in every
            pickle of the storage. Default: False.
        network_stream_timeout_seconds: A read that makes no progress for this number of seconds fails. 0
            means no limit. Default: 60.
        checksum_algorithm: Checksum that is sent with uploads: ``Sha256`` or ``Crc64Nvme``. Other members of
            ``ChecksumAlgorithm`` are not supported. Default: none.
        legacy_rooted_keys: True is not supported and raises an error. Default: None.
        read_headers: Headers that are sent with every request that reads. Default: none.
        write_headers: Headers that are sent with every request that writes. Default: none.
        headers: Headers that are sent with every request. Default: none.

    Returns:
        The storage. No request is sent.

    Raises:
        StorageError: ``storage-other`` without a region, unless ``use_weak_consistency`` is True.
        InvalidInputError: As in ``s3_storage``.

    Examples:
        >>> tigris_storage(bucket="ice", prefix="a", use_weak_consistency=True).is_read_only
        True
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
    """Return a storage in a Hugging Face storage bucket.

    Authorisation is the same as in ``s3_storage``, without ``anonymous``.

    Args:
        bucket: Name of the bucket.
        prefix: Prefix of the names of all objects, for example ``data/ice``. None means the whole bucket.
        namespace: Name of the user or organisation that owns the bucket.
        access_key_id: Id of an access key of the S3 gateway of Hugging Face. An access token does not work.
        secret_access_key: Secret of the access key.
        session_token: Session token of a temporary access key.
        expires_after: Time when the access key expires, with a time zone. Default: it does not expire.
        from_env: True takes the credentials from the environment: variables, AWS profile, web identity,
            container or instance role. This is the default.
        get_credentials: Function without arguments that returns ``S3StaticCredentials``. It must be
            picklable. Frazil calls it again when its last result expires.
        scatter_initial_credentials: True calls ``get_credentials`` once now, and stores the result in every
            pickle of the storage. Default: False.
        network_stream_timeout_seconds: A read that makes no progress for this number of seconds fails. 0
            means no limit. Default: 60.
        legacy_rooted_keys: True is not supported and raises an error. Default: None.
        read_headers: Headers that are sent with every request that reads. Default: none.
        write_headers: Headers that are sent with every request that writes. Default: none.
        headers: Headers that are sent with every request. Default: none.

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
    """Return a storage in Google Cloud Storage.

    At most one way of authorisation may be passed.

    Args:
        bucket: Name of the bucket.
        prefix: Prefix of the names of all objects, for example ``data/ice``. None means the whole bucket.
        service_account_file: Path of a file with the key of a service account.
        service_account_key: Key of a service account, as JSON text.
        application_credentials: Path of a file with application default credentials.
        bearer_token: OAuth bearer token.
        anonymous: True sends requests without credentials.
        from_env: True takes the credentials from the environment. This is the default.
        config: Other options of the client and their values, for example ``{'timeout': '30s'}``. Default:
            none.
        get_credentials: Function without arguments that returns ``GcsBearerCredential``. It must be
            picklable. Frazil calls it again when its last result expires.
        scatter_initial_credentials: True calls ``get_credentials`` once now, and stores the result in every
            pickle of the storage. Default: False.
        read_headers: Headers that are sent with every request that reads. Default: none.
        write_headers: Headers that are sent with every request that writes. Default: none.
        headers: Headers that are sent with every request. Default: none.

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
        access_key: Key of the storage account.
        sas_token: Shared access signature.
        bearer_token: OAuth bearer token.
        from_env: True takes the credentials from the environment. This is the default.
        anonymous: True sends requests without credentials.
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


#: Name of a class method of ``Storage`` -> the function that it calls.
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
