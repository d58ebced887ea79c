"""The location of objects: a bucket or a container, and the credentials for it.

A location is a value: compare it, pickle it, print it (no secret shows). ``connect`` makes the client.
Credentials reach the client through a callable, static ones as well, because a client that is given a key
would complete it with a session token that happens to be in the environment.
"""

from frazil.storage.locations.azure import AzureLocation
from frazil.storage.locations.base import Location
from frazil.storage.locations.client import client_options, retry_config
from frazil.storage.locations.gcs import GcsLocation
from frazil.storage.locations.s3 import NATIVE, S3Location, s3_addressing

__all__ = [
    "NATIVE",
    "AzureLocation",
    "GcsLocation",
    "Location",
    "S3Location",
    "client_options",
    "retry_config",
    "s3_addressing",
]
