"""Profiles: short names of locations, for ``frazil log prod`` instead of ``frazil log s3://bucket/ice``.

The file is ``~/.config/frazil/profiles.toml``, or the file that ``FRAZIL_PROFILES`` names. Each table is a
profile: its ``location``, and options of the storage as in ``frazil.storage_from_url``. The variable
``FRAZIL_PROFILE_PROD`` names the location of ``prod`` too, and comes before the file. Profiles have no
credentials: these come from the environment, as the tools of the clouds read them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from frazil.errors import InvalidInputError
from frazil.lazy_names import ModuleOnDemand
from frazil.storage.base import Storage
from frazil.storage.option_names import shown_url
from frazil.storage.urls import storage_from_url

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = ModuleOnDemand("tomllib")

_VARIABLE: Final = "FRAZIL_PROFILE_"
#: The options of a profile. Options that may hold a credential are not among them.
_OPTIONS: Final = ("account", "allow_http", "anonymous", "endpoint_url", "force_path_style", "region")


@dataclass(frozen=True, slots=True)
class Profile:
    """The location that a name stands for, and the options of its storage."""

    location: str
    options: dict[str, Any] = field(default_factory=dict)


def profile_of(location: str) -> Profile:
    r"""Return the profile with a name, or a profile without options for a location that is no such name.

    Only a location without ``/``, ``\``, ``:`` and ``.`` can be the name of a profile. So ``./prod`` is a
    folder.
    """
    if not is_name(location):
        return Profile(location)
    variable = os.environ.get(_VARIABLE + location.upper().replace("-", "_"))
    return Profile(variable) if variable else profile_in(tables(), location)


def storage_of_location(location: str, options: Mapping[str, Any] | None = None) -> Storage:
    """Return the storage of a folder, a URL or a profile. ``options`` override those of the profile."""
    profile = profile_of(location)
    return storage_from_url(profile.location, {**profile.options, **(options or {})})


def is_name(location: str) -> bool:
    """Return whether a location can be the name of a profile."""
    return set("/\\:.").isdisjoint(location)


def profile_in(tables: Mapping[str, Any], location: str) -> Profile:
    """Return the profile with a name in the tables of a profile file, as `profile_of` does."""
    table = tables.get(location) if is_name(location) else None
    return Profile(location) if table is None else _profile(location, table)


def tables() -> dict[str, Any]:
    """Return the tables of the profile file by their names, without checks; none where there is no file."""
    path = profile_file()
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:  # of TOML, or of UTF-8
        raise InvalidInputError(f"the profile file {path} must be TOML, got an error: {error}") from error
    except OSError as error:
        raise InvalidInputError(
            f"the profile file {path} cannot be read: {error.strerror}. FRAZIL_PROFILES names another file"
        ) from error


def profile_file() -> Path:
    """Return the path of the profile file, which need not exist."""
    named = os.environ.get("FRAZIL_PROFILES")
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(named or Path(folder, "frazil", "profiles.toml")).expanduser()


def _profile(name: str, table: Any) -> Profile:
    location = table.get("location") if isinstance(table, dict) else None
    if not isinstance(location, str) or not location:
        raise InvalidInputError(
            f"the profile [{name}] in {profile_file()} must have a location, such as "
            'location = "s3://bucket/prefix"'
        )
    options = {key: value for key, value in table.items() if key != "location"}
    if others := sorted(set(options).difference(_OPTIONS)):
        raise InvalidInputError(
            f"the options of the profile [{name}] in {profile_file()} must be some of {', '.join(_OPTIONS)}, "
            f"got {', '.join(others)}. Credentials come from the environment, never from a profile"
        )
    for key, value in table.items():
        if isinstance(value, str) and shown_url(value) != value:
            raise InvalidInputError(
                f"`{key}` of the profile [{name}] in {profile_file()} must not have a user, a password or a "
                f"signature, got {shown_url(value)!r}. Credentials come from the environment"
            )
    return Profile(location, options)
