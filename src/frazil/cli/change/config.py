"""``frazil config``: the saved configuration and the status of a repository."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

import frazil
from frazil.cli.argument_types import reader_option
from frazil.cli.changes import dry_run_option, writable_repository
from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.repository.catalog import repo_changes
from frazil.repository.handle.interior import context_of
from frazil.repository.settings.config_document import document_to_save, from_document, to_document
from frazil.repository.settings.manifest_config import AUTO

if TYPE_CHECKING:
    from frazil.repository.handle.repository import Repository

#: The option that is "auto", or rules.
_SPLITTING: Final = "manifest.splitting"

_DESCRIPTION: Final = """\
Print the saved configuration, or save options in it, VALUE as JSON or text; `null` is the default.
Handles that are opened later use them. --read-only makes the repository refuse all changes, and --online
accepts them again."""

_EXAMPLES: Final = """\
frazil config ice                                    print options that are not the default
frazil config ice inline_chunk_threshold_bytes=1024  save an option
frazil config ice compression.level=null             return to the default
frazil config ice --read-only archived               refuse changes, with a reason"""


@verb("config", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(type=LOCATION, metavar="LOCATION", required=True, default=None)
@click.argument("values", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--read-only", metavar="REASON", help="Refuse changes.")
@click.option("--online", is_flag=True, help="Accept changes.")
@dry_run_option
def command(
    output: Output,
    target: Target,
    values: tuple[str, ...],
    read_only: str | None,
    online: bool,
    dry_run: bool,
) -> None:
    """Print or save the configuration."""
    if online and read_only is not None:
        raise click.UsageError("--online and --read-only exclude each other")
    repo = writable_repository(target, dry_run)
    if online:
        repo.set_status(frazil.RepoStatus(frazil.RepoAvailability.online))
    if values:
        _save(repo, values)
    if read_only is not None:
        availability = frazil.RepoAvailability.read_only
        repo.set_status(frazil.RepoStatus(availability, limited_availability_reason=read_only))
    saved = dict(_options(to_document(_saved_config(repo))))
    status = repo.status.availability.name if repo.spec_version > 1 else "online"
    lines = [f"{name}={value}" for name, value in saved.items()]
    output.emit({"status": status, "config": saved, "dry_run": dry_run}, [f"status: {status}", *lines])


def _saved_config(repo: Repository) -> frazil.RepositoryConfig:
    """Return the saved configuration alone: not the defaults of the storage, as a handle has them."""
    return frazil.Repository.fetch_config(repo.storage) or frazil.RepositoryConfig()


def _save(repo: Repository, values: tuple[str, ...]) -> None:
    """Save some options beside those that are saved already."""
    document = to_document(_saved_config(repo))
    for name, value in map(reader_option, values):
        if name == _SPLITTING:
            # "auto" is stored apart from rules.
            _set(document, f"frazil.{name.rpartition('.')[2]}", AUTO if value == AUTO else None)
            value = None if value == AUTO else value
        _set(document, name, value)
    config = from_document(document)
    _require_options(config, values)
    config.validate()
    saved = document_to_save(config, False, partial(_saved_config, repo))
    context_of(repo).catalog.update_repo_info(repo_changes.save_config(saved))


def _set(document: dict[str, Any], name: str, value: Any) -> None:
    *groups, last = name.split(".")
    for group in groups:
        if document.get(group) is None:
            document[group] = {}
        document = document[group]
    document[last] = value


def _options(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the options that are set, by dotted names."""
    for name, value in document.items():
        if name == "virtual_chunk_containers" and value is not None:
            yield name, list(value)  # the prefixes alone: options of stores may hold secrets
        elif isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            yield from _options(value, f"{prefix}{name}.")
        elif value is not None:
            shown = f"{prefix}{name}"
            yield (_SPLITTING if shown == "frazil.splitting" else shown), value


def _require_options(config: frazil.RepositoryConfig, values: tuple[str, ...]) -> None:
    """Raise an error for names that the configuration does not have."""
    existing = dict(_options(to_document(config)))
    for name, value in map(reader_option, values):
        if value is not None and not any(each == name or each.startswith(f"{name}.") for each in existing):
            raise click.UsageError(
                f"no option `{name}` in a configuration. docs/configuration.md lists the options"
            )
