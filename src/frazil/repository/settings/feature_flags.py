"""Features that the owner of a repository can turn off. The format defines their ids and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from frazil.display import some_of, suggest
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.repo_info import RepoInfo


@dataclass(frozen=True, slots=True)
class Flag:
    """A feature: its id in the format, its name, and whether it is on by default."""

    id: int
    name: str
    default_enabled: bool = True


MOVE_NODE: Final = Flag(3, "move_node")
CREATE_TAG: Final = Flag(4, "create_tag")
DELETE_TAG: Final = Flag(5, "delete_tag")
#: In the order of ``Repository.feature_flags``.
FLAGS: Final = (CREATE_TAG, DELETE_TAG, MOVE_NODE)


def flag_named(name: str) -> Flag:
    """Return the feature with this name."""
    for flag in FLAGS:
        if flag.name == name:
            return flag
    raise InvalidInputError(
        f"unknown feature flag `{name}`. Use one of {some_of([flag.name for flag in FLAGS], len(FLAGS))}"
        f"{suggest(name, [flag.name for flag in FLAGS])}",
        ErrorKind.INVALID_FEATURE_FLAG,
    )


def setting_of(info: RepoInfo, flag: Flag) -> bool | None:
    """Return the setting of a feature in a repository; None if it has none."""
    if flag.id in info.enabled_flags:
        return True
    return False if flag.id in info.disabled_flags else None


def is_enabled(info: RepoInfo, flag: Flag) -> bool:
    """Return whether a feature is on, by the setting of the repository or by default."""
    setting = setting_of(info, flag)
    return flag.default_enabled if setting is None else setting
