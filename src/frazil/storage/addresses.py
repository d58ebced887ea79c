"""Where a storage is, in the words of virtual chunks: a URL, and a store that others can be given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import quote

from frazil.storage.base import Storage
from frazil.storage.http import HttpStorage
from frazil.storage.local import LocalStorage
from frazil.storage.locations import AzureLocation, GcsLocation, Location, S3Location
from frazil.storage.object_store import ObjectStorage
from frazil.storage.object_store_config import AnyObjectStoreConfig, ObjectStoreConfig
from frazil.storage.option_names import secret_options


def address_of(storage: Storage, folder: str) -> tuple[str, AnyObjectStoreConfig] | None:
    """The URL of a folder in it, with a slash at the end, and the store; None for memory and the like.

    It does not hold credentials, nor options that may contain credentials.

    >>> from frazil.storage.constructors import s3_storage
    >>> address_of(s3_storage(bucket="ice", prefix="a/b", anonymous=True), "chunks")[0]
    's3://ice/a/b/chunks/'
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
    address = _of_location(storage.location)
    if address is None:
        return None
    url, store = address
    return url + "".join(f"{part}/" for part in (storage.prefix, folder) if part), store


def _of_location(location: Location) -> tuple[str, AnyObjectStoreConfig] | None:
    match location:
        case S3Location():
            store = ObjectStoreConfig.S3Compatible if location.options.endpoint_url else ObjectStoreConfig.S3
            return f"s3://{location.bucket}/", store(location.options)
        case GcsLocation():
            return f"gs://{location.bucket}/", ObjectStoreConfig.Gcs(_public(location.config) or None)
        case AzureLocation():
            config = {**_public(location.config), "account": location.account}
            return f"az://{location.container}/", ObjectStoreConfig.Azure(config)
    return None


def _public(options: Mapping[str, str]) -> dict[str, str]:
    secret = set(secret_options(options))
    return {name: value for name, value in options.items() if name not in secret}
