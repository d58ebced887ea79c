"""The class methods of ``Storage`` that construct a storage: ``Storage.new_s3`` and its siblings.

They have the names and arguments of the reference. They take options and credentials as values, where the
functions of ``constructors`` take single arguments.

``Storage`` inherits these methods, and the methods construct subclasses of ``Storage``. So this module is
below ``base``, and does not import the functions that construct storages: `register_constructors` gets them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from frazil.arguments import checked
from frazil.storage.object_store_config import S3Options
from frazil.storage.s3_arguments import S3Arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.storage.credentials import AnyAzureCredential, AnyGcsCredential, AnyS3Credential

#: Constructors by the name of the class method: see `register_constructors`.
_constructors: Final[dict[str, Callable[..., Any]]] = {}


def register_constructors(constructors: Mapping[str, Callable[..., Any]]) -> None:
    """Set the functions that construct storages, by the name of the class method that calls them."""
    _constructors.update(constructors)


class StorageClassMethods[Storage]:
    """The class methods of ``Storage``, which is the type parameter of this class."""

    @classmethod
    def _construct(cls, method: str, *arguments: Any, **options: Any) -> Storage:
        """The storage that the constructor of a class method returns."""
        storage: Storage = _constructors[method](*arguments, **options)
        return storage

    @classmethod
    @checked
    def new_in_memory(cls) -> Storage:
        """See ``in_memory_storage``."""
        return cls._construct("new_in_memory")

    @classmethod
    @checked
    def new_local_filesystem(cls, path: str) -> Storage:
        """See ``local_filesystem_storage``."""
        return cls._construct("new_local_filesystem", path)

    @classmethod
    @checked
    def new_s3(
        cls,
        config: S3Options,
        bucket: str,
        prefix: str | None,
        credentials: AnyS3Credential | None = None,
        legacy_rooted_keys: bool | None = None,
        *,
        read_headers: dict[str, str] | None = None,
        write_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Storage:
        """Objects in S3, or in a server that speaks its protocol. See ``s3_storage``."""
        return cls._construct("new_s3", S3Arguments.from_values(locals()))

    @classmethod
    @checked
    def new_s3_object_store(
        cls,
        config: S3Options,
        bucket: str,
        prefix: str | None,
        credentials: AnyS3Credential | None = None,
        *,
        read_headers: dict[str, str] | None = None,
        write_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Storage:
        """``new_s3``: to Frazil there is one client for S3."""
        return cls._construct("new_s3", S3Arguments.from_values(locals()), shown_as="S3")

    @classmethod
    @checked
    def new_tigris(
        cls,
        config: S3Options,
        bucket: str,
        prefix: str | None,
        use_weak_consistency: bool,
        credentials: AnyS3Credential | None = None,
        legacy_rooted_keys: bool | None = None,
        *,
        read_headers: dict[str, str] | None = None,
        write_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Storage:
        """Objects in Tigris. See ``tigris_storage``."""
        return cls._construct("new_tigris", S3Arguments.from_values(locals()), use_weak_consistency)

    @classmethod
    @checked
    def new_r2(
        cls,
        config: S3Options,
        bucket: str | None = None,
        prefix: str | None = None,
        account_id: str | None = None,
        credentials: AnyS3Credential | None = None,
        legacy_rooted_keys: bool | None = None,
        *,
        read_headers: dict[str, str] | None = None,
        write_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Storage:
        """Objects in Cloudflare R2. See ``r2_storage``."""
        return cls._construct("new_r2", S3Arguments.from_values(locals()), account_id)

    @classmethod
    @checked
    def new_hf(
        cls,
        config: S3Options,
        bucket: str,
        prefix: str | None,
        namespace: str,
        credentials: AnyS3Credential | None = None,
        legacy_rooted_keys: bool | None = None,
        *,
        read_headers: dict[str, str] | None = None,
        write_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Storage:
        """Objects in a storage bucket of Hugging Face. See ``hf_storage``."""
        return cls._construct("new_hf", S3Arguments.from_values(locals()), namespace)

    @classmethod
    @checked
    def new_gcs(
        cls,
        bucket: str,
        prefix: str | None,
        credentials: AnyGcsCredential | None = None,
        *,
        config: dict[str, str] | None = None,
        read_headers: dict[str, str] | None = None,
        write_headers: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Storage:
        """Objects in Google Cloud Storage. See ``gcs_storage``."""
        return cls._construct(
            "new_gcs", bucket, prefix, credentials, config, headers, read_headers, write_headers
        )

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
        """Objects in Azure. See ``azure_storage``."""
        return cls._construct("new_azure_blob", account, container, prefix, credentials, config)

    @classmethod
    @checked
    def new_http(
        cls, base_url: str, config: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> Storage:
        """Objects on a web server, read only. See ``http_storage``."""
        return cls._construct("new_http", base_url, config, headers)

    @classmethod
    @checked
    def new_redirect(cls, base_url: str) -> Storage:
        """The storage that an address redirects to. See ``redirect_storage``."""
        return cls._construct("new_redirect", base_url)
