"""Credentials for object stores, as values. ``repr``, ``str`` and HTML never show a secret.

Each cloud has a family of classes: anonymous, from the environment, static, and refreshable by a function. A
refreshable credential contains a pickle of the function, because sessions are sent to other processes with
their credentials. ``refresh()`` calls the function. ``Credentials`` wraps the credentials for virtual chunk
containers. With it, the user also permits access to local files and web servers.
"""

from frazil.storage.credentials.azure import (
    AnyAzureCredential,
    AnyAzureRefreshableCredential,
    AnyAzureStaticCredential,
    AzureCredentials,
    AzureRefreshableCredential,
    AzureStaticCredentials,
    azure_anonymous_credentials,
    azure_credentials,
    azure_from_env_credentials,
    azure_refreshable_credentials,
    azure_static_credentials,
)
from frazil.storage.credentials.containers import (
    AnyCredential,
    Credentials,
    HttpAccess,
    LocalFileSystemAccess,
    containers_credentials,
)
from frazil.storage.credentials.gcs import (
    AnyGcsCredential,
    AnyGcsStaticCredential,
    GcsBearerCredential,
    GcsCredentials,
    GcsStaticCredentials,
    gcs_anonymous_credentials,
    gcs_credentials,
    gcs_from_env_credentials,
    gcs_refreshable_credentials,
    gcs_static_credentials,
)
from frazil.storage.credentials.s3 import (
    AnyS3Credential,
    S3Credentials,
    S3StaticCredentials,
    s3_anonymous_credentials,
    s3_credentials,
    s3_from_env_credentials,
    s3_refreshable_credentials,
    s3_static_credentials,
)

__all__ = [
    "AnyAzureCredential",
    "AnyAzureRefreshableCredential",
    "AnyAzureStaticCredential",
    "AnyCredential",
    "AnyGcsCredential",
    "AnyGcsStaticCredential",
    "AnyS3Credential",
    "AzureCredentials",
    "AzureRefreshableCredential",
    "AzureStaticCredentials",
    "Credentials",
    "GcsBearerCredential",
    "GcsCredentials",
    "GcsStaticCredentials",
    "HttpAccess",
    "LocalFileSystemAccess",
    "S3Credentials",
    "S3StaticCredentials",
    "azure_anonymous_credentials",
    "azure_credentials",
    "azure_from_env_credentials",
    "azure_refreshable_credentials",
    "azure_static_credentials",
    "containers_credentials",
    "gcs_anonymous_credentials",
    "gcs_credentials",
    "gcs_from_env_credentials",
    "gcs_refreshable_credentials",
    "gcs_static_credentials",
    "s3_anonymous_credentials",
    "s3_credentials",
    "s3_from_env_credentials",
    "s3_refreshable_credentials",
    "s3_static_credentials",
]
