"""The arguments that all constructors of storages with the protocol of S3 share.

The functions of ``constructors`` take single arguments. The class methods of ``Storage`` take objects. Both
collect their arguments into ``S3Arguments`` with ``locals()``, by name.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Self

from frazil.storage.credentials import s3_credentials
from frazil.storage.object_store_config import S3Options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.storage.credentials import AnyS3Credential

type Headers = Mapping[str, str] | None

_CREDENTIAL_ARGUMENTS: Final = (
    "access_key_id",
    "secret_access_key",
    "session_token",
    "expires_after",
    "anonymous",
    "from_env",
    "get_credentials",
    "scatter_initial_credentials",
)
_OPTION_ARGUMENTS: Final = tuple(field.name for field in fields(S3Options))
_STORAGE_ARGUMENTS: Final = (
    "bucket",
    "prefix",
    "legacy_rooted_keys",
    "headers",
    "read_headers",
    "write_headers",
)


@dataclass(frozen=True, slots=True)
class S3Arguments:
    """The arguments that all constructors for S3 and services with its protocol share.

    Without ``credentials``, the storage is anonymous if the options are; otherwise it takes the credentials
    of the environment.
    """

    options: S3Options
    bucket: str | None
    prefix: str | None
    credentials: AnyS3Credential | None = None
    legacy_rooted_keys: bool | None = None
    headers: Headers = None
    read_headers: Headers = None
    write_headers: Headers = None

    @classmethod
    def from_single(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the arguments of ``s3_storage`` and similar functions, by name. Other names are ignored."""
        options = _select(arguments, _OPTION_ARGUMENTS)
        options["anonymous"] = bool(options.get("anonymous"))
        credentials = s3_credentials(**_select(arguments, _CREDENTIAL_ARGUMENTS))
        return cls(S3Options(**options), credentials=credentials, **_select(arguments, _STORAGE_ARGUMENTS))

    @classmethod
    def from_values(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the arguments of ``Storage.new_s3`` and similar methods, by name."""
        selected = _select(arguments, ("credentials", *_STORAGE_ARGUMENTS))
        return cls(arguments["config"], **selected)


def _select(arguments: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: arguments[name] for name in names if name in arguments}
