"""Profiles of the data source: names of locations, with defaults of its options.

    spark.frazil.profile.climate.location   s3://bucket/ice
    spark.frazil.profile.climate.region     eu-west-1
    spark.frazil.profile.climate.branch     dev

Then the path ``climate`` is this location, and so is the option ``profile`` with the value ``climate``.
(Spark makes a folder of the path of a table in its catalog: a table needs the option ``profile``.) An option
of a query replaces the option of the profile. The profile file of the command line
(`frazil.storage.profiles`) has profiles too; those of Spark's configuration come first.

A process of an executor has neither the configuration nor the file. So `frazil.spark.register` reads both,
and the data source and the functions that it registers carry the profiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark.tables.location import Options
from frazil.spark.tables.options import READ, advice, canonical, is_option, with_defaults
from frazil.storage.profiles import Profile, is_name, profile_in, profile_of, tables

_PREFIX: Final = "spark.frazil.profile."


@dataclass(frozen=True, slots=True)
class Profiles:
    """Profiles of Spark's configuration and of the profile file.

    Attributes:
        settings: The options of each profile of the configuration, by name.
        file: The tables of the profile file. None reads the file of this machine for each query.
    """

    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    file: Mapping[str, Any] | None = None

    @classmethod
    def of_configuration(cls, configuration: Mapping[str, str]) -> Profiles:
        """Return the profiles of Spark's configuration and of the profile file of this machine."""
        settings: dict[str, dict[str, str]] = {}
        for key, value in configuration.items():
            name, dot, option = key.removeprefix(_PREFIX).partition(".")
            if key.startswith(_PREFIX) and dot:
                settings.setdefault(name, {})[option] = value
        return cls(settings, tables())

    def resolve(self, options: Options) -> dict[str, str]:
        """Return options whose path is a location, with the defaults of the profile that the path names.

        Raises ``InvalidInputError`` (``invalid-argument``) for a profile without a location, and for a
        profile with an unknown option.
        """
        name = _name(options)
        if name is None:
            return dict(options)
        if name in self.settings:
            defaults = _checked(name, self.settings[name])
        else:
            profile = profile_of(name) if self.file is None else profile_in(self.file, name)
            defaults = _as_options(profile)
        if "profile" in options and defaults == {"path": name}:
            raise InvalidInputError(
                f"Option `profile` must be the name of a profile, got {name!r}. Set {_PREFIX}{name}.location "
                "before `frazil.spark.register`, or write the profile into the profile file",
                ErrorKind.INVALID_ARGUMENT,
            )
        resolved = {**with_defaults(options, defaults), "path": defaults["path"]}
        resolved.pop("profile", None)
        return resolved


def _name(options: Options) -> str | None:
    """Return the name of a profile that the options have, or may have as their path."""
    if "profile" not in options:
        path = options.get("path", "")
        return path if path and is_name(path) else None
    if "path" in options:
        raise InvalidInputError(
            f"The repository must be one of the options path and profile, got both: {options['path']!r} and "
            f"{options['profile']!r}",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )
    return options["profile"]


def _checked(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    defaults = canonical(settings)
    location = defaults.pop("location", "")
    if not location:
        raise InvalidInputError(
            f"The profile `{name}` must have a location, got none. Set {_PREFIX}{name}.location",
            ErrorKind.INVALID_ARGUMENT,
        )
    unknown = [each for each in defaults if each == "path" or not is_option(each)]
    if unknown:
        texts = "; ".join(advice(each, READ) for each in unknown)
        raise InvalidInputError(f"The profile `{name}` has an {texts}", ErrorKind.INVALID_ARGUMENT)
    return {**defaults, "path": location}


def _as_options(profile: Profile) -> dict[str, str]:
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in profile.options.items()
    }
    return {**canonical(texts), "path": profile.location}
