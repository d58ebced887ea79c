"""Credential providers. The client calls them before a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from frazil.storage.aws_profile import profile_keys
from frazil.storage.credential_families import (
    AnyAzureRefreshableCredential,
    AnyS3Credential,
    AzureCredentials,
    AzureRefreshableCredential,
    GcsBearerCredential,
    GcsCredentials,
    S3Credentials,
    S3StaticCredentials,
)

#: A credential that expires within this time is not used any more.
_EXPIRY_MARGIN: Final = timedelta(seconds=15)


def s3_provider(credentials: AnyS3Credential) -> Any:
    """Return the provider for the credentials of S3; None lets the client search for credentials itself."""
    match credentials:
        case S3Credentials.Static(keys):
            return ConstantProvider(_s3_answer(keys))
        case S3Credentials.Refreshable():
            return RefreshProvider(credentials)
        case _:
            profile = profile_keys()
            return None if profile is None else ConstantProvider(_s3_answer(profile))


def _s3_answer(keys: S3StaticCredentials) -> dict[str, Any]:
    return {
        "access_key_id": keys.access_key_id,
        "secret_access_key": keys.secret_access_key,
        "token": keys.session_token,
        "expires_at": keys.expires_after,
    }


def _gcs_answer(token: GcsBearerCredential) -> dict[str, Any]:
    return {"token": token.bearer, "expires_at": token.expires_after}


def _azure_answer(credential: AnyAzureRefreshableCredential) -> dict[str, Any]:
    match credential:
        case AzureRefreshableCredential.AccessKey(key):
            answer = {"access_key": key}
        case AzureRefreshableCredential.SasToken(token):
            answer = {"sas_token": token}
        case AzureRefreshableCredential.BearerToken(bearer):
            answer = {"token": bearer}
    return {**answer, "expires_at": credential.expires_after}


def _answer(credential: Any) -> dict[str, Any]:
    match credential:
        case S3StaticCredentials():
            return _s3_answer(credential)
        case GcsBearerCredential():
            return _gcs_answer(credential)
        case _:
            return _azure_answer(credential)


@dataclass(frozen=True, slots=True)
class ConstantProvider:
    """A provider that always returns the same credentials."""

    answer: dict[str, Any] = field(repr=False)

    def __call__(self) -> Any:
        """Return the credentials."""
        return self.answer


class RefreshProvider:
    """A provider that calls the user's function, and again when its last result is about to expire.

    From five minutes before the end, the client asks before every request. Therefore the last
    result is cached.
    """

    def __init__(
        self,
        credentials: S3Credentials.Refreshable | GcsCredentials.Refreshable | AzureCredentials.Refreshable,
    ) -> None:
        self._credentials = credentials
        self._current: Any = credentials.current

    def __call__(self) -> Any:
        """Return the last credentials, or new ones if they expire soon."""
        now = datetime.now(UTC)
        current = self._current
        if current is None or _is_over(current.expires_after, now):
            current = self._current = self._credentials.refresh()
        return _answer(current)


def _is_over(expires: datetime | None, now: datetime) -> bool:
    return expires is not None and expires - _EXPIRY_MARGIN <= now
