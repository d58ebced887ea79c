"""``frazil adopt``: an existing Zarr store becomes a version of a repository, without a copy."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import click

from frazil.cli.argument_types import container
from frazil.cli.changes import dry_run_option, message_option, metadata_option, writable_storage
from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.opening import branch_of, open_repository, storage_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.versions import SHORT
from frazil.display import counted
from frazil.importing.adoption import adopt, read_zarr_store
from frazil.jobs.progress import size
from frazil.storage.profiles import profile_of
from frazil.storage.urls import parse_url

_DESCRIPTION: Final = """\
Make a version with all groups and arrays of a Zarr store of version 3, in one commit. No chunk is copied: the
version refers to the objects of the store, which must stay as they are. The repository is created if it does
not exist. Readers name the URL of the store, with a slash at the end, in the variable FRAZIL_VIRTUAL_ACCESS;
in Python in authorize_virtual_chunk_access."""

_EXAMPLES: Final = """\
frazil adopt plain.zarr ice --dry-run                     count the arrays and chunks
frazil adopt plain.zarr ice                               on the branch `main`
frazil adopt s3://bucket/plain.zarr s3://bucket/ice@dev   on another branch"""


@verb("adopt", description=_DESCRIPTION, examples=_EXAMPLES, commits=True)
@click.argument("source", type=LOCATION)
@target_argument(metavar="LOCATION[@BRANCH]", required=True, default=None)
@message_option
@metadata_option
@dry_run_option
def command(output: Output, source: Target, target: Target, message: str | None, **settings: Any) -> None:
    """Adopt the store."""
    dry_run = settings["dry_run"]
    location = parse_url(profile_of(source.location).location).chunk_location.rstrip("/")
    place = container(f"{location}/")
    store = read_zarr_store(storage_of(source))  # a wrong store must not leave a new repository
    repo = open_repository(writable_storage(target, dry_run), create=True)
    branch = branch_of(repo, target)
    config = repo.config
    config.set_virtual_chunk_container(place)
    repo = repo.reopen(config)
    session = repo.writable_session(branch)
    adoption = adopt(session, store, location)
    repo.save_config()
    id_ = session.commit(message or f"Adopt {location}", settings["metadata"] or None)
    work = (
        f"{counted(adoption.arrays, 'array')}, {counted(adoption.chunks, 'chunk')} ({size(adoption.bytes)})"
    )
    line = f"would adopt {work}" if dry_run else f"{branch} is at {id_[:SHORT]}: adopted {work}"
    document = {"branch": branch, "id": id_, "dry_run": dry_run, **asdict(adoption)}
    output.emit(document, [line])
