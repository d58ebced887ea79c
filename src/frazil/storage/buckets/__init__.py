"""Buckets and containers of object stores, with the credentials for them.

A bucket is a value: compare it, pickle it, print it (no secret shows). ``connect`` makes the client.
Credentials reach the client through a callable, static ones as well, because a client that is given a key
would complete it with a session token that happens to be in the environment.
"""

from frazil.storage.buckets.azure import AzureContainer
from frazil.storage.buckets.base import Bucket
from frazil.storage.buckets.client import client_options, retry_config
from frazil.storage.buckets.gcs import GcsBucket
from frazil.storage.buckets.s3 import NATIVE, S3Bucket, s3_addressing

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
