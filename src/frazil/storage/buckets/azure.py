"""Containers of Azure blob storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, override

from obstore.store import AzureStore

from frazil.remedies import Remedy
from frazil.storage.buckets.base import Bucket, check_bucket, check_endpoint, connect_client, description
from frazil.storage.buckets.client import retry_config, split_options
from frazil.storage.buckets.providers import RefreshProvider
from frazil.storage.credential_families import AnyAzureCredential, AzureCredentials, AzureStaticCredentials
from frazil.storage.failures import MessageTerms

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from frazil.storage.settings import StorageSettings


@dataclass(frozen=True, slots=True)
class AzureContainer(Bucket):
    """A container of Azure blob storage, with its account, options and credentials."""

    account: str
    name: str
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: AnyAzureCredential = field(default_factory=AzureCredentials.FromEnv)

    @property
    @override
    def terms(self) -> MessageTerms:
        return MessageTerms(
            f"container {self.name!r} of account {self.account!r}",
            "Azure",
            Remedy(
                "Pass access_key, sas_token, bearer_token, `from_env=True` with credentials in the "
                "environment, or `anonymous=True` for public data",
                shell="Set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN. For public data, make a "
                "profile of Frazil with the option `anonymous`",
            ),
            isinstance(self.credentials, AzureCredentials.Anonymous),
        )

    @override
    def connect(self, prefix: str, settings: StorageSettings, headers: Mapping[str, str]) -> ObjectStore:
        check_bucket(self.name)
        check_endpoint("endpoint", self.config.get("endpoint"))
        client, config = split_options(self.config, settings, headers)
        config |= _azure_config(self.credentials)
        config["account_name"] = self.account
        return connect_client(
            self.terms,
            lambda: AzureStore(
                self.name,
                prefix=prefix or None,
                config=config,  # type: ignore[arg-type]  # a TypedDict, built by key
                client_options=client,
                retry_config=retry_config(settings),
                credential_provider=RefreshProvider(self.credentials)
                if isinstance(self.credentials, AzureCredentials.Refreshable)
                else None,
            ),
        )

    @override
    def address(self, prefix: str) -> str:
        return f"az://{self.account}/{self.name}/{prefix}"

    @override
    def describe(self, prefix: str) -> str:
        rows = {"type": "Azure", "account": self.account, "container": self.name}
        return description({**rows, "prefix": prefix or None})


def _azure_config(credentials: AnyAzureCredential) -> dict[str, Any]:
    match credentials:
        case AzureCredentials.Anonymous():
            return {"skip_signature": True}
        case AzureCredentials.Static(AzureStaticCredentials.AccessKey(key)):
            return {"account_key": key}
        case AzureCredentials.Static(AzureStaticCredentials.SasToken(token)):
            return {"sas_key": token}
        case AzureCredentials.Static(AzureStaticCredentials.BearerToken(token)):
            return {"token": token}
        case _:
            return {}
