"""Storages: bytes under keys, in object stores, local files, memory, and on web servers.

``frazil.storage.base`` has the contract that all of them keep.
"""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.storage.base import (
        ALWAYS,
        Always,
        Condition,
        IfAbsent,
        IfVersion,
        ObjectInfo,
        Refused,
        Storage,
        StorageObjectInfo,
        Stored,
        Version,
    )
    from frazil.storage.checks import probe_conditions
    from frazil.storage.chunk_places import ChunkType
    from frazil.storage.credential_families import GcsBearerCredential, S3StaticCredentials
    from frazil.storage.credentials import azure_credentials, gcs_credentials, s3_credentials
    from frazil.storage.foreign_objects import ForeignObjects, open_foreign
    from frazil.storage.local import LocalStorage, local_filesystem_storage
    from frazil.storage.memory import MemoryStorage, in_memory_storage
    from frazil.storage.object_store import ObjectStorage
    from frazil.storage.object_store_config import (
        AnyObjectStoreConfig,
        ChecksumAlgorithm,
        ObjectStoreConfig,
        S3Options,
        azure_store,
        gcs_store,
        http_store,
        local_filesystem_store,
        s3_store,
    )
    from frazil.storage.services import (
        azure_storage,
        gcs_storage,
        hf_storage,
        r2_storage,
        s3_object_store_storage,
        s3_storage,
        tigris_storage,
    )
    from frazil.storage.settings import (
        StorageConcurrencySettings,
        StorageRetriesSettings,
        StorageSettings,
        StorageTimeoutSettings,
    )
    from frazil.storage.urls import storage_from_url
    from frazil.storage.web_storages import HttpStorage, RedirectStorage, http_storage, redirect_storage

import_on_demand(
    __name__,
    {
        "ALWAYS": "frazil.storage.base",
        "Always": "frazil.storage.base",
        "Condition": "frazil.storage.base",
        "IfAbsent": "frazil.storage.base",
        "IfVersion": "frazil.storage.base",
        "ObjectInfo": "frazil.storage.base",
        "Refused": "frazil.storage.base",
        "Storage": "frazil.storage.base",
        "Stored": "frazil.storage.base",
        "Version": "frazil.storage.base",
        "ChunkType": "frazil.storage.chunk_places",
        "azure_storage": "frazil.storage.services",
        "gcs_storage": "frazil.storage.services",
        "http_storage": "frazil.storage.web_storages",
        "in_memory_storage": "frazil.storage.memory",
        "local_filesystem_storage": "frazil.storage.local",
        "redirect_storage": "frazil.storage.web_storages",
        "GcsBearerCredential": "frazil.storage.credential_families",
        "S3StaticCredentials": "frazil.storage.credential_families",
        "azure_credentials": "frazil.storage.credentials",
        "gcs_credentials": "frazil.storage.credentials",
        "s3_credentials": "frazil.storage.credentials",
        "ForeignObjects": "frazil.storage.foreign_objects",
        "open_foreign": "frazil.storage.foreign_objects",
        "HttpStorage": "frazil.storage.web_storages",
        "StorageObjectInfo": "frazil.storage.base",
        "LocalStorage": "frazil.storage.local",
        "MemoryStorage": "frazil.storage.memory",
        "ObjectStorage": "frazil.storage.object_store",
        "AnyObjectStoreConfig": "frazil.storage.object_store_config",
        "ChecksumAlgorithm": "frazil.storage.object_store_config",
        "ObjectStoreConfig": "frazil.storage.object_store_config",
        "S3Options": "frazil.storage.object_store_config",
        "azure_store": "frazil.storage.object_store_config",
        "gcs_store": "frazil.storage.object_store_config",
        "http_store": "frazil.storage.object_store_config",
        "local_filesystem_store": "frazil.storage.object_store_config",
        "s3_store": "frazil.storage.object_store_config",
        "probe_conditions": "frazil.storage.checks",
        "RedirectStorage": "frazil.storage.web_storages",
        "hf_storage": "frazil.storage.services",
        "r2_storage": "frazil.storage.services",
        "s3_object_store_storage": "frazil.storage.services",
        "s3_storage": "frazil.storage.services",
        "tigris_storage": "frazil.storage.services",
        "StorageConcurrencySettings": "frazil.storage.settings",
        "StorageRetriesSettings": "frazil.storage.settings",
        "StorageSettings": "frazil.storage.settings",
        "StorageTimeoutSettings": "frazil.storage.settings",
        "storage_from_url": "frazil.storage.urls",
    },
)

__all__ = [
    "ALWAYS",
    "Always",
    "AnyObjectStoreConfig",
    "ChecksumAlgorithm",
    "ChunkType",
    "Condition",
    "ForeignObjects",
    "GcsBearerCredential",
    "HttpStorage",
    "IfAbsent",
    "IfVersion",
    "LocalStorage",
    "MemoryStorage",
    "ObjectInfo",
    "ObjectStorage",
    "ObjectStoreConfig",
    "RedirectStorage",
    "Refused",
    "S3Options",
    "S3StaticCredentials",
    "Storage",
    "StorageConcurrencySettings",
    "StorageObjectInfo",
    "StorageRetriesSettings",
    "StorageSettings",
    "StorageTimeoutSettings",
    "Stored",
    "Version",
    "azure_credentials",
    "azure_storage",
    "azure_store",
    "gcs_credentials",
    "gcs_storage",
    "gcs_store",
    "hf_storage",
    "http_storage",
    "http_store",
    "in_memory_storage",
    "local_filesystem_storage",
    "local_filesystem_store",
    "open_foreign",
    "probe_conditions",
    "r2_storage",
    "redirect_storage",
    "s3_credentials",
    "s3_object_store_storage",
    "s3_storage",
    "s3_store",
    "storage_from_url",
    "tigris_storage",
]
