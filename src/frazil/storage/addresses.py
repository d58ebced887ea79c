"""Where a storage is, in the words of virtual chunks: a URL, and a store that others can be given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import quote

from frazil.storage.base import Storage
from frazil.storage.buckets import AzureContainer, Bucket, GcsBucket, S3Bucket
from frazil.storage.http import HttpStorage
from frazil.storage.local import LocalStorage
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
    address = _of_bucket(storage.bucket)
    if address is None:
        return None
    url, store = address
    return url + "".join(f"{part}/" for part in (storage.prefix, folder) if part), store


def _of_bucket(bucket: Bucket) -> tuple[str, AnyObjectStoreConfig] | None:
    match bucket:
        case S3Bucket():
            store = ObjectStoreConfig.S3Compatible if bucket.options.endpoint_url else ObjectStoreConfig.S3
            return f"s3://{bucket.name}/", store(bucket.options)
        case GcsBucket():
            return f"gs://{bucket.name}/", ObjectStoreConfig.Gcs(_public(bucket.config) or None)
        case AzureContainer():
            config = {**_public(bucket.config), "account": bucket.account}
            return f"az://{bucket.name}/", ObjectStoreConfig.Azure(config)
    return None


def _public(options: Mapping[str, str]) -> dict[str, str]:
    secret = set(secret_options(options))
    return {name: value for name, value in options.items() if name not in secret}
