"""Buckets of Google Cloud Storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, override

from obstore.store import GCSStore

from frazil.remedies import Remedy
from frazil.storage.buckets.base import Bucket, check_bucket, check_endpoint, connect_client, description
from frazil.storage.buckets.client import retry_config, split_options
from frazil.storage.buckets.providers import RefreshProvider
from frazil.storage.credential_families import AnyGcsCredential, GcsCredentials, GcsStaticCredentials
from frazil.storage.failures import MessageTerms

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from frazil.storage.settings import StorageSettings


@dataclass(frozen=True, slots=True)
class GcsBucket(Bucket):
    """A bucket of Google Cloud Storage, with its options and credentials."""

    name: str
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: AnyGcsCredential = field(default_factory=GcsCredentials.FromEnv)

    @property
    @override
    def terms(self) -> MessageTerms:
        return MessageTerms(
            f"bucket {self.name!r}",
            "Google Cloud Storage",
            Remedy(
                "Pass service_account_file, service_account_key, application_credentials, bearer_token, "
                "`from_env=True` with credentials in the environment, `get_credentials`, or `anonymous=True` "
                "for public data",
                shell="Set GOOGLE_APPLICATION_CREDENTIALS. For public data, make a profile of Frazil with "
                "the option `anonymous`",
            ),
            isinstance(self.credentials, GcsCredentials.Anonymous),
        )

    @override
    def connect(self, prefix: str, settings: StorageSettings, headers: Mapping[str, str]) -> ObjectStore:
        check_bucket(self.name)
        check_endpoint("base_url", self.config.get("base_url"))
        client, config = split_options(self.config, settings, headers)
        config |= _gcs_config(self.credentials)
        return connect_client(
            self.terms,
            lambda: GCSStore(
                self.name,
                prefix=prefix or None,
                config=config,  # type: ignore[arg-type]  # a TypedDict, built by key
                client_options=client,
                retry_config=retry_config(settings),
                credential_provider=RefreshProvider(self.credentials)
                if isinstance(self.credentials, GcsCredentials.Refreshable)
                else None,
            ),
        )

    @override
    def address(self, prefix: str) -> str:
        return f"gs://{self.name}/{prefix}"

    @override
    def describe(self, prefix: str) -> str:
        return description({"type": "GCS", "bucket": self.name, "prefix": prefix or None})


def _gcs_config(credentials: AnyGcsCredential) -> dict[str, Any]:
    match credentials:
        case GcsCredentials.Anonymous():
            # Without a token the client asks the machine's metadata server, also for anonymous requests.
            return {"skip_signature": True, "bearer_token": "anonymous"}
        case GcsCredentials.Static(GcsStaticCredentials.ServiceAccount(path)):
            return {"service_account": path}
        case GcsCredentials.Static(GcsStaticCredentials.ServiceAccountKey(key)):
            return {"service_account_key": key}
        case GcsCredentials.Static(GcsStaticCredentials.ApplicationCredentials(path)):
            return {"application_credentials": path}
        case GcsCredentials.Static(GcsStaticCredentials.BearerToken(token)):
            return {"bearer_token": token}
        case _:
            return {}
