"""The class methods of ``Storage`` that create a storage: ``Storage.new_s3`` and similar methods.

They have the names and arguments of the reference. They take options and credentials as objects.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from frazil.argument_docs import with_keywords
from frazil.arguments import checked
from frazil.storage.object_store_config import S3Options, StorageHeaders

if TYPE_CHECKING:
    from frazil.storage.credential_families import AnyAzureCredential, AnyGcsCredential, AnyS3Credential

#: The package ``frazil.storage``. Its names are imported on demand, so a process loads only the clients that
#: it uses, and the contract of storages (``base``) depends on none of them.
PUBLIC: Final[Any] = sys.modules[__name__.rpartition(".")[0]]


class StorageClassMethods[Storage]:
    """The class methods of ``Storage``, which is the type parameter: this module is below ``base``.

    Functions such as ``s3_storage`` take the same values as single arguments, and raise the same errors.
    """

    @classmethod
    @checked
    def new_in_memory(cls) -> Storage:
        """Return a new, empty storage in memory. It is the same as ``in_memory_storage``.

        Returns:
            The storage. No request is sent.
        """
        return cast("Storage", PUBLIC.in_memory_storage())

    @classmethod
    @checked
    def new_local_filesystem(cls, path: str) -> Storage:
        """Return a storage in a directory. It is the same as ``local_filesystem_storage``.

        Args:
            path: Path of the directory. The first write creates it.

        Returns:
            The storage. No request is sent.
        """
        return cast("Storage", PUBLIC.local_filesystem_storage(path))

    @classmethod
    @checked
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
        others = {"credentials": credentials, "legacy_rooted_keys": legacy_rooted_keys, **headers}
        return cast("Storage", PUBLIC.services.build_s3(config, bucket, prefix, **others))

    @classmethod
    @checked
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
        others = {"credentials": credentials, "shown_as": "S3", **headers}
        return cast("Storage", PUBLIC.services.build_s3(config, bucket, prefix, **others))

    @classmethod
    @checked
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
        others = {"credentials": credentials, "legacy_rooted_keys": legacy_rooted_keys, **headers}
        return cast(
            "Storage", PUBLIC.services.build_tigris(config, bucket, prefix, use_weak_consistency, **others)
        )

    @classmethod
    @checked
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
        others = {"credentials": credentials, "legacy_rooted_keys": legacy_rooted_keys, **headers}
        return cast("Storage", PUBLIC.services.build_r2(config, bucket, prefix, account_id, **others))

    @classmethod
    @checked
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
        others = {"credentials": credentials, "legacy_rooted_keys": legacy_rooted_keys, **headers}
        return cast("Storage", PUBLIC.services.build_hf(config, bucket, prefix, namespace, **others))

    @classmethod
    @checked
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
        return cast("Storage", PUBLIC.services.build_gcs(bucket, prefix, credentials, config, **headers))

    @classmethod
    @checked
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
        return cast("Storage", PUBLIC.services.build_azure(account, container, prefix, credentials, config))

    @classmethod
    @checked
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
        return cast("Storage", PUBLIC.http_storage(base_url, config, headers))

    @classmethod
    @checked
    def new_redirect(cls, base_url: str) -> Storage:
        """Return the read-only storage behind a URL. It is the same as ``redirect_storage``.

        Args:
            base_url: URL on a web server that redirects to the URL of the storage.

        Returns:
            The storage. No request is sent.
        """
        return cast("Storage", PUBLIC.redirect_storage(base_url))
