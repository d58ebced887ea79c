"""The URL of a storage in the form of chunk locations, and the store of a container for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import quote

from frazil.storage.base import Storage
from frazil.storage.buckets import AzureContainer, GcsBucket, S3Bucket
from frazil.storage.http import HttpStorage
from frazil.storage.local import LocalStorage
from frazil.storage.object_store import ObjectStorage
from frazil.storage.object_store_config import AnyObjectStoreConfig, ObjectStoreConfig
from frazil.storage.option_names import secret_options
from frazil.storage.url_parts import UrlParts


def address_of(storage: Storage, folder: str) -> tuple[str, AnyObjectStoreConfig] | None:
    """Return the URL of a folder in a storage, with a slash at its end, and the store of a container for it.

    Neither contains credentials, or options that may contain credentials. The result is None for a storage
    without a URL, such as an in-memory storage.
    """
    if isinstance(storage, LocalStorage):
        root = os.path.join(storage.root, folder, "")
        return f"file://{quote(root)}", ObjectStoreConfig.LocalFileSystem(root)
    if isinstance(storage, HttpStorage):
        return f"{storage.url.rstrip('/')}/{folder}/", ObjectStoreConfig.Http(
            _public(storage.options) or None
        )
    if not isinstance(storage, ObjectStorage):
        return None
    prefix = "".join(f"{part}/" for part in (storage.prefix, folder) if part)
    match storage.bucket:
        case S3Bucket(name, options):
            store = ObjectStoreConfig.S3Compatible if options.endpoint_url else ObjectStoreConfig.S3
            return UrlParts("s3", name, prefix).chunk_location, store(options)
        case GcsBucket(name, config):
            return UrlParts("gs", name, prefix).chunk_location, ObjectStoreConfig.Gcs(_public(config) or None)
        case AzureContainer(account, name, config):
            azure = ObjectStoreConfig.Azure({**_public(config), "account": account})
            return UrlParts("az", name, prefix, account).chunk_location, azure
    return None


def _public(options: Mapping[str, str]) -> dict[str, str]:
    secret = set(secret_options(options))
    return {name: value for name, value in options.items() if name not in secret}
