"""The command `ui`: a repository, or files of other formats, in a browser."""

from __future__ import annotations

import glob
import itertools
import os
import shlex
import signal
import tempfile
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from frazil.cli import arguments as args
from frazil.cli.command import Output, option, verb
from frazil.cli.opening import OpenTarget, node_at
from frazil.errors import IcechunkError, RepositoryNotFoundError
from frazil.extras import needs
from frazil.repository.target import CURRENT_FOLDER, Target
from frazil.storage.base import Storage
from frazil.storage.profiles import storage_of_location
from frazil.threads import Purpose, map_bounded
from frazil.ui.files import export
from frazil.ui.server import ExplorerServer, Folder, Site, is_loopback

if TYPE_CHECKING:
    from frazil.cli.preview import Preview


@verb("ui")
def ui(
    output: Output,
    targets: args.Sources,
    no_browser: bool,
    write: bool,
    static: Annotated[Path | None, option(type=click.Path(file_okay=False, path_type=Path), metavar="DIR")],
    repo_url: Annotated[str | None, option(metavar="URL")],
    concat_dim: args.ConcatDim,
    variables: args.Variables,
    filter_by_keys: args.FilterByKeys,
    host: Annotated[str, option(metavar="HOST")] = "127.0.0.1",
    port: Annotated[int, option(type=click.IntRange(0, 65535), metavar="N")] = 0,
) -> None:
    """Show a repository in a browser: versions, groups and arrays, chunks, values, differences.

    The command serves a page for this machine until Ctrl-C. Only the printed address opens it, because it
    has a token. The page shows virtual chunks of the prefixes in FRAZIL_VIRTUAL_ACCESS. It cannot change the
    repository without --write. With it, the page creates branches and tags, merges branches and reverts
    commits, after it has shown what would change. The author of such commits is $FRAZIL_AUTHOR.

    If LOCATION is a folder or a prefix of a bucket with several repositories, the first page lists them.

    FILE is a file of a format that `ingest` reads, a glob in quotes, or a Zarr store. The page then shows a
    preview: the dataset that `ingest` would make, in a temporary folder. FILE:GROUP is a group of a file.

    With --static, the command writes the page as files instead, for a folder or bucket next to the data.

    Args:
        no_browser: Only print the address.
        write: Let the page change branches and tags, and make commits.
        static: Write the page into this folder, and end.
        repo_url: With --static: the address of the repository for browsers, if it is not next to DIR.
        concat_dim: Of files: the dimension along which they are joined.
        variables: Of files: the data variables to show (all).
        filter_by_keys: Of files: the GRIB fields to show (all).
        host: The address to listen on. Other machines can reach an address that is not of this machine.
        port: The port to listen on; 0 is any free one.

    Examples:
        frazil ui ice                             the repository
        frazil ui ice@v1:era5/t                   an array of a tag
        frazil ui s3://bucket/ice --no-browser    only print the address
        frazil ui ice --write                     a page that can also merge and revert
        frazil ui ice --static ice/explorer       a page next to the data
        frazil ui s3://bucket                     all repositories of a bucket
        frazil ui 'era5/*.nc'                     files, before they are ingested
    """
    options: dict[str, Any] = {"concat_dim": concat_dim, "variables": variables}
    if filter_by_keys:
        options["reader_options"] = {"filter_by_keys": filter_by_keys}
    keys = ",".join(f"{name}={value}" for name, value in filter_by_keys.items())
    given = {"concat-dim": concat_dim, "variables": ",".join(variables or ()), "filter-by-keys": keys}
    words = [f"--{name}={shlex.quote(text)}" for name, text in given.items() if text]
    opened = repository_of(targets or (Target(CURRENT_FOLDER),))
    if isinstance(opened, Folder):
        if write or words or static is not None or repo_url is not None:
            raise click.UsageError(
                "a list of repositories has no options of one repository. Name one of them"
            )
        _serve(output, opened, host, port, no_browser)
        return
    if opened is None:
        if write or static is not None or repo_url is not None:
            raise click.UsageError("a preview of files is read-only. Leave out --write, --static, --repo-url")
        with tempfile.TemporaryDirectory(prefix="frazil-preview-", ignore_cleanup_errors=True) as folder:
            files = _preview(output, targets, Path(folder), options, words)
            _serve(output, files.site, host, port, no_browser, files.command, files.notes)
        return
    if words:
        raise click.UsageError("--concat-dim, --variables and --filter-by-keys are options of files")
    target = opened.target
    spec_version = int(opened.info.spec_version)
    if target.version is not None or target.path is not None:
        node_at(opened.workspace, opened.path)
    if static is not None:
        if write:
            raise click.UsageError("a static page changes nothing. Leave out --write or --static")
        settings = export(static, target, opened.storage, spec_version, repo_url)
        line = f"wrote the explorer of {settings['repo']} into {static}: open it through a web server"
        output.emit({"folder": str(static), **settings}, [line])
        return
    if repo_url is not None:
        raise click.UsageError("--repo-url needs --static")
    site = Site(target, opened.storage, spec_version, opened.context.virtual, is_writable=write)
    _serve(output, site, host, port, no_browser)


def repository_of(targets: Sequence[Target]) -> OpenTarget | Folder | None:
    """Return the repository of the only target, or a folder with repositories; None for files."""
    target = targets[0]
    location = target.location
    if (
        len(targets) > 1
        or os.path.isfile(location)
        or (glob.has_magic(location) and not os.path.exists(location))
    ):
        return None
    opened = OpenTarget(target)
    try:
        opened.info  # noqa: B018  # read now
    except RepositoryNotFoundError:
        if target.version is not None:
            raise
        if _is_source(location):
            return None
        folder = None if target.path else _folder(opened.storage, location)
        if folder is None:
            raise
        return folder
    return opened


def _folder(storage: Storage, location: str) -> Folder | None:
    """Return the repositories in a folder or prefix, from one listing; None if there are none."""
    from frazil.handle.repository import Repository

    def place(name: str) -> str:
        return f"{location.rstrip('/')}/{name}"

    def exists(name: str) -> bool:
        with suppress(IcechunkError):  # a name that no repository can have, or that may not be read
            return Repository.exists(storage_of_location(place(name)))
        return False

    def site(name: str) -> Site:
        opened = OpenTarget(Target(place(name)))
        version, virtual = int(opened.info.spec_version), opened.context.virtual
        return Site(
            opened.target, opened.storage, version, virtual, label=name, folder_address="../../?folder"
        )

    try:
        folders = storage.folders()
    except IcechunkError:  # the folder does not exist, or the storage cannot list
        return None
    are_repositories = map_bounded(Purpose.CATALOG_READS, exists, folders)
    names = frozenset(itertools.compress(folders, are_repositories))
    return Folder(storage.label(), names, site) if names else None


def _is_source(location: str) -> bool:
    """Return whether there is a file or a Zarr store of another program."""
    from frazil.readers.files import find_file
    from frazil.readers.registry import is_zarr

    for look in (find_file, is_zarr):
        with suppress(IcechunkError):
            if look(location):
                return True
    return False


def _preview(
    output: Output, targets: Sequence[Target], folder: Path, options: dict[str, Any], words: Sequence[str]
) -> Preview:
    """Write the repository of a preview."""
    with needs("a preview of files", extra="pipeline"):
        from frazil.cli.preview import preview

    with output.progress("read") as progress:
        return preview(targets, folder, options, words, progress)


def _serve(
    output: Output,
    site: Site | Folder,
    host: str,
    port: int,
    no_browser: bool,
    command: str | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Serve a site until Ctrl-C. ``command`` stores what a preview shows."""
    if not is_loopback(host):
        click.echo(
            f"frazil: warning: other machines can reach {host}. The connection is not encrypted, and whoever "
            f"sees the address can read {'and change ' if site.is_writable else ''}the data",
            err=True,
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        ExplorerServer(site, host, port) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        document = {"url": server.url} | ({"ingest": command, "notes": list(notes)} if command else {})
        lines = [
            *(f"note: {each}" for each in notes),
            *([f"preview; to store it: {command}"] if command else []),
        ]
        output.emit_now(document, server.url, *lines, "Ctrl-C stops the server")
        if output.is_terminal and not no_browser:
            webbrowser.open(_redirect(Path(folder), server.url))
        server.serve_forever()


def _redirect(folder: Path, url: str) -> str:
    """Return the address of a file that leads to the page: other users see the arguments of a browser."""
    page = folder / "explorer.html"
    page.write_text(f'<meta http-equiv="refresh" content="0; url={url}">')
    return page.as_uri()
