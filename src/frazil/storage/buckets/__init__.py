"""Buckets and containers of object stores, with their credentials.

A bucket is a value: callers can compare it, pickle it, and print it without secrets. ``connect`` creates the
client. Static credentials also reach the client through a callable. A client that gets a key directly would
add a session token from the environment to it.
"""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.storage.buckets.azure import AzureContainer
    from frazil.storage.buckets.base import Bucket
    from frazil.storage.buckets.client import client_options, retry_config
    from frazil.storage.buckets.gcs import GcsBucket
    from frazil.storage.buckets.s3 import NATIVE, S3Bucket, s3_addressing

import_on_demand(
    __name__,
    {
        "AzureContainer": "frazil.storage.buckets.azure",
        "Bucket": "frazil.storage.buckets.base",
        "client_options": "frazil.storage.buckets.client",
        "retry_config": "frazil.storage.buckets.client",
        "GcsBucket": "frazil.storage.buckets.gcs",
        "NATIVE": "frazil.storage.buckets.s3",
        "S3Bucket": "frazil.storage.buckets.s3",
        "s3_addressing": "frazil.storage.buckets.s3",
    },
)

__all__ = [
    "NATIVE",
    "AzureContainer",
    "Bucket",
    "GcsBucket",
    "S3Bucket",
    "client_options",
    "retry_config",
    "s3_addressing",
]
