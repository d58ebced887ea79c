"""The class methods of ``Storage`` that create a storage: ``Storage.new_s3`` and similar methods.

They have the names and arguments of the reference. They take options and credentials as objects. The
functions of ``urls`` take the same values as single arguments.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Unpack, cast

from frazil.argument_docs import with_keywords
from frazil.arguments import checks_arguments
from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.lazy_names import ModuleOnDemand
from frazil.storage.credential_families import (
    AnyAzureCredential,
    AnyGcsCredential,
    AnyS3Credential,
    AzureCredentials,
    GcsCredentials,
    S3Credentials,
)
from frazil.storage.failures import wrong_setup
from frazil.storage.object_store_config import S3Options, StorageHeaders

# A process loads only the clients that it uses, and the contract of storages depends on none of them.
_buckets: Final = ModuleOnDemand("frazil.storage.buckets")
_local: Final = ModuleOnDemand("frazil.storage.local")
_memory: Final = ModuleOnDemand("frazil.storage.memory")
_object_store: Final = ModuleOnDemand("frazil.storage.object_store")
_web_storages: Final = ModuleOnDemand("frazil.storage.web_storages")

TIGRIS_ENDPOINT: Final = "https://t3.storage.dev"


@checks_arguments
class StorageClassMethods[Storage]:
    """The class methods of ``Storage``, which is the type parameter: this module is below ``base``.

    Functions such as ``s3_storage`` take the same values as single arguments, and raise the same errors.
    """

    @classmethod
    def new_in_memory(cls) -> Storage:
        """Return a new, empty storage in memory. It is the same as ``in_memory_storage``.

        Returns:
            The storage. No request is sent.
        """
        return cast("Storage", _memory.MemoryStorage())

    @classmethod
    def new_local_filesystem(cls, path: str) -> Storage:
        """Return a storage in a directory. It is the same as ``local_filesystem_storage``.

        Args:
            path: Path of the directory. The first write creates it.

        Returns:
            The storage. No request is sent.
        """
        return cast("Storage", _local.local_filesystem_storage(path))

    @classmethod
    @with_keywords(StorageHeaders)
    def new_s3(
        cls,
        config: S3Options,
        bucket: str,
        prefix: str | None,
        credentials: AnyS3Credential | None = None,
        legacy_rooted_keys: bool | None = None,
        **headers: Unpack[StorageHeaders],
    ) -> Storage:
        """Return a storage in S3, or in a server with the same protocol.

        ``s3_storage`` takes the same values as single arguments.

        Args:
            config: Options of the client: region, endpoint, addressing.
            bucket: Name of the bucket.
            prefix: Prefix of the names of all objects, for example ``data/ice``. None means the whole bucket.
            credentials: Credentials. Default: anonymous if ``config.anonymous`` is True, otherwise from the
                environment.
            legacy_rooted_keys: True is not supported and raises an error. Default: None.

        Returns:
            The storage. No request is sent.

        Raises:
            InvalidInputError: ``unimplemented`` for ``legacy_rooted_keys=True``; ``storage-config`` for
                headers that HTTP does not allow.
        """
        if legacy_rooted_keys:
            raise InvalidInputError(
                "legacy_rooted_keys=True is not supported: no key can begin with '/'", ErrorKind.UNIMPLEMENTED
            )
        place = _buckets.S3Bucket(bucket, config, _credentials(config, credentials))
        return cast("Storage", _in_bucket(place, prefix, headers))

    @classmethod
    @with_keywords(StorageHeaders, new_s3)
    def new_s3_object_store(
        cls,
        config: S3Options,
        bucket: str,
        prefix: str | None,
        credentials: AnyS3Credential | None = None,
        **headers: Unpack[StorageHeaders],
    ) -> Storage:
        """Return a storage in S3, as ``new_s3``. The reference has a second client for S3.

        Returns:
            The storage. No request is sent.
        """
        place = _buckets.S3Bucket(bucket, config, _credentials(config, credentials), shown_as="S3")
        return cast("Storage", _in_bucket(place, prefix, headers))

    @classmethod
    @with_keywords(StorageHeaders, new_s3)
    def new_tigris(
        cls,
        config: S3Options,
        bucket: str,
        prefix: str | None,
        use_weak_consistency: bool,
        credentials: AnyS3Credential | None = None,
        legacy_rooted_keys: bool | None = None,
        **headers: Unpack[StorageHeaders],
    ) -> Storage:
        """Return a storage in Tigris.

        Args:
            use_weak_consistency: True reads the nearest copy, which may be old, and makes the
                storage read only.

        Returns:
            The storage. No request is sent.

        Raises:
            StorageError: ``storage-other`` without a region, unless ``use_weak_consistency`` is True.
        """
        if config.region is None and not use_weak_consistency:
            raise StorageError(
                "region must be the region of the bucket for full consistency in Tigris, got None. Pass "
                "region, or use_weak_consistency=True for a read-only storage that may return old data",
                ErrorKind.STORAGE_OTHER,
            )
        if not use_weak_consistency:
            consistent = {"X-Tigris-Regions": config.region or "", "X-Tigris-Consistent": "true"}
            headers["headers"] = {**consistent, "Cache-Control": "no-cache", **(headers.get("headers") or {})}
        config = _at(config, TIGRIS_ENDPOINT if config.endpoint_url is None else config.endpoint_url)
        storage: Any = cls.new_s3(config, bucket, prefix, credentials, legacy_rooted_keys, **headers)
        storage.is_read_only = use_weak_consistency
        return cast("Storage", storage)

    @classmethod
    @with_keywords(StorageHeaders, new_s3)
    def new_r2(
        cls,
        config: S3Options,
        bucket: str | None = None,
        prefix: str | None = None,
        account_id: str | None = None,
        credentials: AnyS3Credential | None = None,
        legacy_rooted_keys: bool | None = None,
        **headers: Unpack[StorageHeaders],
    ) -> Storage:
        """Return a storage in Cloudflare R2.

        Args:
            bucket: Name of the bucket. Default: the first part of ``prefix``.
            prefix: Prefix of the names of all objects. None means the whole bucket.
            account_id: Id of the account. Not needed if ``config`` has an endpoint.

        Returns:
            The storage. No request is sent.

        Raises:
            StorageError: ``storage-config`` without a bucket, and without an account id and an endpoint.
        """
        if bucket is None:
            bucket, _, prefix = (prefix or "").partition("/")
            if not bucket:
                raise wrong_setup("bucket, or a prefix that begins with it, must be set, got neither")
        endpoint = config.endpoint_url
        if endpoint is None:
            if account_id is None:
                raise wrong_setup("endpoint_url or account_id (of Cloudflare) must be set, got neither")
            endpoint = f"https://{account_id}.r2.cloudflarestorage.com"
        config = replace(_at(config, endpoint), force_path_style=True)
        return cls.new_s3(config, bucket, prefix, credentials, legacy_rooted_keys, **headers)

    @classmethod
    @with_keywords(StorageHeaders, new_s3)
    def new_hf(
        cls,
        config: S3Options,
        bucket: str,
        prefix: str | None,
        namespace: str,
        credentials: AnyS3Credential | None = None,
        legacy_rooted_keys: bool | None = None,
        **headers: Unpack[StorageHeaders],
    ) -> Storage:
        """Return a storage in a Hugging Face storage bucket.

        An endpoint in ``config`` has no effect.

        Args:
            namespace: Name of the user or organisation that owns the bucket.

        Returns:
            The storage. No request is sent.
        """
        config = replace(_at(config, f"https://s3.hf.co/{namespace}", "us-east-1"), force_path_style=True)
        return cls.new_s3(config, bucket, prefix, credentials, legacy_rooted_keys, **headers)

    @classmethod
    @with_keywords(StorageHeaders, new_s3)
    def new_gcs(
        cls,
        bucket: str,
        prefix: str | None,
        credentials: AnyGcsCredential | None = None,
        *,
        config: dict[str, str] | None = None,
        **headers: Unpack[StorageHeaders],
    ) -> Storage:
        """Return a storage in Google Cloud Storage.

        Args:
            credentials: Credentials. Default: from the environment.
            config: Other options of the client and their values. Default: none.

        Returns:
            The storage. No request is sent.
        """
        credentials = GcsCredentials.FromEnv() if credentials is None else credentials
        return cast(
            "Storage",
            _in_bucket(_buckets.GcsBucket(bucket, dict(config or {}), credentials), prefix, headers),
        )

    @classmethod
    def new_azure_blob(
        cls,
        account: str,
        container: str,
        prefix: str,
        credentials: AnyAzureCredential | None = None,
        *,
        config: dict[str, str] | None = None,
    ) -> Storage:
        """Return a storage in Azure blob storage.

        Args:
            account: Name of the storage account.
            container: Name of the container.
            prefix: Prefix of the names of all objects. The empty string means the whole container.
            credentials: Credentials. Default: from the environment.
            config: Other options of the client and their values. Default: none.

        Returns:
            The storage. No request is sent.
        """
        credentials = AzureCredentials.FromEnv() if credentials is None else credentials
        return cast(
            "Storage",
            _in_bucket(_buckets.AzureContainer(account, container, dict(config or {}), credentials), prefix),
        )

    @classmethod
    def new_http(
        cls, base_url: str, config: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> Storage:
        """Return a read-only storage on a web server. It is the same as ``http_storage``.

        Args:
            base_url: URL of the directory that holds the objects.
            config: Options of the HTTP client and their values. Default: none.
            headers: Headers that are sent with every request. Default: none.

        Returns:
            The storage. No request is sent.
        """
        return cast("Storage", _web_storages.http_storage(base_url, config, headers))

    @classmethod
    def new_redirect(cls, base_url: str) -> Storage:
        """Return the read-only storage behind a URL. It is the same as ``redirect_storage``.

        Args:
            base_url: URL on a web server that redirects to the URL of the storage.

        Returns:
            The storage. No request is sent.
        """
        return cast("Storage", _web_storages.redirect_storage(base_url))


def _credentials(options: S3Options, credentials: AnyS3Credential | None) -> AnyS3Credential:
    """Return the credentials. Default: anonymous if the options are, otherwise those of the environment."""
    if credentials is not None:
        return credentials
    return S3Credentials.Anonymous() if options.anonymous else S3Credentials.FromEnv()


def _at(options: S3Options, endpoint: str, region: str = "auto") -> S3Options:
    """Return options with an endpoint, and with a region if they have none."""
    return replace(
        options, endpoint_url=endpoint, region=region if options.region is None else options.region
    )


def _in_bucket(bucket: Any, prefix: str | None, headers: StorageHeaders | None = None) -> Any:
    """Return a storage in a bucket. The headers of reads and of writes contain those of all requests."""
    headers = headers or {}
    both = headers.get("headers") or {}
    return _object_store.ObjectStorage(
        bucket,
        prefix or "",
        read_headers={**both, **(headers.get("read_headers") or {})},
        write_headers={**both, **(headers.get("write_headers") or {})},
    )
