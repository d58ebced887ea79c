"""Bytes under keys: one contract (``base``), and object stores, local files, memory and HTTP that keep it."""

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
from frazil.storage.constructors import (
    azure_storage,
    gcs_storage,
    hf_storage,
    http_storage,
    in_memory_storage,
    local_filesystem_storage,
    r2_storage,
    redirect_storage,
    s3_storage,
    tigris_storage,
)
from frazil.storage.foreign import ForeignObjects, open_foreign
from frazil.storage.http import HttpStorage
from frazil.storage.local import LocalStorage
from frazil.storage.memory import MemoryStorage
from frazil.storage.object_store import ObjectStorage
from frazil.storage.probe import probe_conditions
from frazil.storage.redirect import RedirectStorage

__all__ = [
    "ALWAYS",
    "Always",
    "Condition",
    "ForeignObjects",
    "HttpStorage",
    "IfAbsent",
    "IfVersion",
    "LocalStorage",
    "MemoryStorage",
    "ObjectInfo",
    "ObjectStorage",
    "RedirectStorage",
    "Refused",
    "Storage",
    "Stored",
    "Version",
    "azure_storage",
    "gcs_storage",
    "hf_storage",
    "http_storage",
    "in_memory_storage",
    "local_filesystem_storage",
    "open_foreign",
    "probe_conditions",
    "r2_storage",
    "redirect_storage",
    "s3_storage",
    "tigris_storage",
]
