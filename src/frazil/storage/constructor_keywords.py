"""The arguments by name of the functions that create storages in clouds, without the places.

The functions (``services``) and the options of URLs (``url_options``) use these declarations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from frazil.storage.credential_families import S3StaticCredentials
from frazil.storage.credentials import AzureSecrets, GcsWays, S3Key
from frazil.storage.object_store_config import ChecksumAlgorithm, StorageHeaders


class HfKeywords(S3Key, StorageHeaders, total=False):
    """The arguments of ``hf_storage``, besides its place.

    Attributes:
        from_env: True takes the credentials from the environment: variables, AWS profile, web identity,
            container or instance role. This is the default.
        get_credentials: Function without arguments that returns ``S3StaticCredentials``. It must be
            picklable. Frazil calls it again when its last result expires.
        scatter_initial_credentials: True calls ``get_credentials`` once now, and stores the result in every
            pickle of the storage. Default: False.
        network_stream_timeout_seconds: A read that makes no progress for this number of seconds fails. 0
            means no limit. Default: 60.
        legacy_rooted_keys: True is not supported and raises an error. Default: None.
    """

    from_env: bool | None
    get_credentials: Callable[[], S3StaticCredentials] | None
    scatter_initial_credentials: bool
    network_stream_timeout_seconds: int
    legacy_rooted_keys: bool | None


class S3Endpoint(TypedDict, total=False):
    """The server of a storage with the protocol of S3.

    Attributes:
        region: Region of the bucket. Default: ``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the AWS profile.
        endpoint_url: URL of the server, for example ``https://minio.example:9000``. Default: Amazon S3.
        allow_http: Whether requests without encryption are allowed (for an ``http://`` endpoint).
            Default: False.
        anonymous: True sends requests without credentials.
    """

    region: str | None
    endpoint_url: str | None
    allow_http: bool
    anonymous: bool | None


class R2Keywords(S3Endpoint, HfKeywords, total=False):
    """The arguments of ``r2_storage`` and ``tigris_storage``, besides the place.

    Attributes:
        checksum_algorithm: Checksum that is sent with uploads: ``Sha256`` or ``Crc64Nvme``. Other members of
            ``ChecksumAlgorithm`` are not supported. Default: none.
    """

    checksum_algorithm: ChecksumAlgorithm | None


class S3Keywords(R2Keywords, total=False):
    """The arguments of ``s3_storage``, besides its place.

    Attributes:
        force_path_style: True puts the bucket into the path of URLs. False, the default, puts it into the
            host name where this is possible.
        requester_pays: True makes the owner of the credentials pay for the requests. Default: False.
    """

    force_path_style: bool
    requester_pays: bool


class S3ObjectStoreKeywords(S3Endpoint, S3Key, StorageHeaders, total=False):
    """The arguments of ``s3_object_store_storage``, besides its place.

    Attributes:
        from_env: True takes the credentials from the environment: variables, AWS profile, web identity,
            container or instance role. This is the default.
        force_path_style: True puts the bucket into the path of URLs. False, the default, puts it into the
            host name where this is possible.
    """

    from_env: bool | None
    force_path_style: bool


class GcsKeywords(GcsWays, StorageHeaders, total=False):
    """The arguments of ``gcs_storage``, besides its place.

    Attributes:
        config: Other options of the client and their values, for example ``{'timeout': '30s'}``. Default:
            none.
    """

    config: dict[str, str] | None


class AzureKeywords(AzureSecrets, total=False):
    """The arguments of ``azure_storage``, besides its place.

    Attributes:
        from_env: True takes the credentials from the environment. This is the default.
        anonymous: True sends requests without credentials.
        config: Other options of the client and their values. Default: none.
    """

    from_env: bool | None
    anonymous: bool | None
    config: dict[str, str] | None
