"""Storages: bytes under keys, in object stores, local files, memory, and on web servers.

``frazil.storage.base`` has the contract that all of them keep.
"""

from frazil.storage.base import (
    ALWAYS,
    Always,
    Condition,
    IfAbsent,
    IfVersion,
    ObjectInfo,
    Refused,
    Storage,
    Stored,
    Version,
)
from frazil.storage.chunk_type import ChunkType
from frazil.storage.class_methods import register_constructors
from frazil.storage.constructors import (
    CONSTRUCTORS,
    azure_storage,
    gcs_storage,
    http_storage,
    in_memory_storage,
    local_filesystem_storage,
    redirect_storage,
)
from frazil.storage.credentials import (
    GcsBearerCredential,
    S3StaticCredentials,
    azure_credentials,
    gcs_credentials,
    s3_credentials,
)
from frazil.storage.foreign import ForeignObjects, open_foreign
from frazil.storage.http import HttpStorage
from frazil.storage.listing import StorageObjectInfo
from frazil.storage.local import LocalStorage
from frazil.storage.memory import MemoryStorage
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
from frazil.storage.probe import probe_conditions
from frazil.storage.redirect import RedirectStorage
from frazil.storage.s3_constructors import (
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

register_constructors(CONSTRUCTORS)
