"""Functions that create a storage in S3 or in a service with its protocol, as ``constructors`` does.

These functions share most of their arguments. ``S3Arguments`` collects these arguments from ``locals()``, by
name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.argument_docs import with_argument_docs
from frazil.arguments import checked
from frazil.storage.base import Storage
from frazil.storage.object_store_config import ChecksumAlgorithm
from frazil.storage.s3_arguments import S3Arguments
from frazil.storage.services import build_hf, build_r2, build_s3, build_tigris

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from frazil.storage.credentials import S3StaticCredentials


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
@with_argument_docs(s3_storage)
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

    Returns:
        The storage. No request is sent.

    Raises:
        InvalidInputError: ``invalid-credentials`` if the arguments name more than one way of authorisation or
            an incomplete one; ``storage-config`` for headers that HTTP does not allow.

    Examples:
        >>> s3_object_store_storage(bucket="ice", prefix="a", region="eu-west-1", anonymous=True).label()
        's3://ice/a'
    """
    return build_s3(S3Arguments.from_single(locals()), shown_as="S3")


@checked
@with_argument_docs(s3_storage)
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
@with_argument_docs(s3_storage)
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
    return build_tigris(S3Arguments.from_single(locals()), use_weak_consistency)


@checked
@with_argument_docs(s3_storage)
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
    return build_hf(S3Arguments.from_single(locals()), namespace)
