"""The class methods of ``Storage`` that construct a storage: ``Storage.new_s3`` and its siblings.

They have the names and arguments of the reference. They take options and credentials as values, where the
functions of ``constructors`` take single arguments. The methods construct subclasses of ``Storage``, so this
module stands above them, and gives the methods to ``Storage``: `attach_class_methods`. To a type checker
``StorageClassMethods`` is a base of ``Storage``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.arguments import checked
from frazil.storage.base import Storage
from frazil.storage.constructors import (
    http_storage,
    in_memory_storage,
    local_filesystem_storage,
    redirect_storage,
)
from frazil.storage.object_store_config import S3Options
from frazil.storage.services import (
    S3Arguments,
    build_azure,
    build_gcs,
    build_hf,
    build_r2,
    build_s3,
    build_tigris,
)

if TYPE_CHECKING:
    from frazil.storage.credentials import AnyAzureCredential, AnyGcsCredential, AnyS3Credential


class StorageClassMethods:
    """The class methods of ``Storage``."""

    @classmethod
    @checked
    def new_in_memory(cls) -> Storage:
        """See ``in_memory_storage``."""
        return in_memory_storage()

    @classmethod
    @checked
    def new_local_filesystem(cls, path: str) -> Storage:
        """See ``local_filesystem_storage``."""
        return local_filesystem_storage(path)

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
        return build_s3(S3Arguments.from_values(locals()))

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
        return build_s3(S3Arguments.from_values(locals()), shown_as="S3")

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
        return build_tigris(S3Arguments.from_values(locals()), use_weak_consistency)

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
        return build_r2(S3Arguments.from_values(locals()), account_id)

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
        return build_hf(S3Arguments.from_values(locals()), namespace)

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
        return build_gcs(bucket, prefix, credentials, config, headers, read_headers, write_headers)

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
        return build_azure(account, container, prefix, credentials, config)

    @classmethod
    @checked
    def new_http(
        cls, base_url: str, config: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> Storage:
        """Objects on a web server, read only. See ``http_storage``."""
        return http_storage(base_url, config, headers)

    @classmethod
    @checked
    def new_redirect(cls, base_url: str) -> Storage:
        """The storage that an address redirects to. See ``redirect_storage``."""
        return redirect_storage(base_url)


def attach_class_methods() -> None:
    """Give ``Storage`` the class methods of ``StorageClassMethods``."""
    for name, method in vars(StorageClassMethods).items():
        if isinstance(method, classmethod):
            setattr(Storage, name, method)
