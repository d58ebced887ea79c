"""What every storage also has for its users: class methods that make one, listings, and HTML.

The class methods have the names and arguments of the reference. They take options and credentials as values,
where the functions of ``constructors`` take them one by one. Those are imported when they are called: an edge
downwards, as the storages that they make are subclasses (see the table in ``tests/test_house.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from frazil.arguments import checked
from frazil.display import PACKAGE, Lines, Record, Shown, utc
from frazil.storage.object_store_config import S3Options

if TYPE_CHECKING:
    from frazil.storage.base import Storage
    from frazil.storage.credentials import AnyAzureCredential, AnyGcsCredential, AnyS3Credential


@dataclass(frozen=True, slots=True, repr=False)
class StorageObjectInfo(Record):
    """One object of a storage: its key, its size, and when it was written."""

    key: str
    size_bytes: int
    created_at: datetime

    shown_as: ClassVar[str] = "storage.StorageObjectInfo"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        return (
            ("key", self.key),
            ("size_bytes", str(self.size_bytes)),
            ("created_at", utc(self.created_at)),
        )


class Named:
    """See the module: the base of ``Storage``."""

    @classmethod
    @checked
    def new_in_memory(cls) -> Storage:
        """See ``in_memory_storage``."""
        from frazil.storage.constructors import in_memory_storage

        return in_memory_storage()

    @classmethod
    @checked
    def new_local_filesystem(cls, path: str) -> Storage:
        """See ``local_filesystem_storage``."""
        from frazil.storage.constructors import local_filesystem_storage

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
        from frazil.storage.from_options import s3_from_options

        return s3_from_options(
            config, bucket, prefix, credentials, legacy_rooted_keys, headers, read_headers, write_headers
        )

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
        from frazil.storage.from_options import s3_from_options

        return s3_from_options(
            config,
            bucket,
            prefix,
            credentials,
            None,
            headers,
            read_headers,
            write_headers,
            shown_as="S3",
        )

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
        from frazil.storage.from_options import tigris_from_options

        return tigris_from_options(
            config,
            bucket,
            prefix,
            use_weak_consistency,
            credentials,
            legacy_rooted_keys,
            headers,
            read_headers,
            write_headers,
        )

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
        from frazil.storage.from_options import r2_from_options

        return r2_from_options(
            config,
            bucket,
            prefix,
            account_id,
            credentials,
            legacy_rooted_keys,
            headers,
            read_headers,
            write_headers,
        )

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
        from frazil.storage.from_options import hf_from_options

        return hf_from_options(
            config,
            bucket,
            prefix,
            namespace,
            credentials,
            legacy_rooted_keys,
            headers,
            read_headers,
            write_headers,
        )

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
        from frazil.storage.from_options import gcs_from_options

        return gcs_from_options(bucket, prefix, credentials, config, headers, read_headers, write_headers)

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
        from frazil.storage.from_options import azure_from_options

        return azure_from_options(account, container, prefix, credentials, config)

    @classmethod
    @checked
    def new_http(
        cls, base_url: str, config: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> Storage:
        """Objects on a web server, read only. See ``http_storage``."""
        from frazil.storage.constructors import http_storage

        return http_storage(base_url, config, headers)

    @classmethod
    @checked
    def new_redirect(cls, base_url: str) -> Storage:
        """The storage that an address redirects to. See ``redirect_storage``."""
        from frazil.storage.constructors import redirect_storage

        return redirect_storage(base_url)

    def _repr_html_(self) -> str:
        """The storage as HTML, for notebooks."""
        return Lines(f"{PACKAGE}.Storage", repr(self))._repr_html_()
