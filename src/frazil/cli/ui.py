"""The command `ui`: a repository in a browser."""

from __future__ import annotations

import signal
import tempfile
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import click

from frazil.cli.arguments import AnyTarget
from frazil.cli.command import Output, option, verb
from frazil.cli.opening import OpenTarget, node_at
from frazil.ui.files import export
from frazil.ui.server import ExplorerServer, Site, is_loopback


@verb("ui")
def ui(
    output: Output,
    target: AnyTarget,
    no_browser: bool,
    write: bool,
    static: Annotated[Path | None, option(type=click.Path(file_okay=False, path_type=Path), metavar="DIR")],
    repo_url: Annotated[str | None, option(metavar="URL")],
    host: Annotated[str, option(metavar="HOST")] = "127.0.0.1",
    port: Annotated[int, option(type=click.IntRange(0, 65535), metavar="N")] = 0,
) -> None:
    """Show a repository in a browser: versions, groups and arrays, chunks, values, differences.

    The command serves a page for this machine until Ctrl-C. Only the printed address opens it, because it
    has a token. The page shows virtual chunks of the prefixes in FRAZIL_VIRTUAL_ACCESS. It cannot change the
    repository without --write. With it, the page creates branches and tags, merges branches and reverts
    commits, after it has shown what would change. The author of such commits is $FRAZIL_AUTHOR.

    With --static, the command writes the page as files instead, for a folder or bucket next to the data.

    Args:
        no_browser: Only print the address.
        write: Let the page change branches and tags, and make commits.
        static: Write the page into this folder, and end.
        repo_url: With --static: the address of the repository for browsers, if it is not next to DIR.
        host: The address to listen on. Other machines can reach an address that is not of this machine.
        port: The port to listen on; 0 is any free one.

    Examples:
        frazil ui ice                             the repository
        frazil ui ice@v1:era5/t                   an array of a tag
        frazil ui s3://bucket/ice --no-browser    only print the address
        frazil ui ice --write                     a page that can also merge and revert
        frazil ui ice --static ice/explorer       a page next to the data
    """
    opened = OpenTarget(target)
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
    if not is_loopback(host):
        click.echo(
            f"frazil: warning: other machines can reach {host}. The connection is not encrypted, and whoever "
            f"sees the address can read {'and change ' if write else ''}the repository",
            err=True,
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        ExplorerServer(site, host, port) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        output.emit_now({"url": server.url}, server.url, "Ctrl-C stops the server")
        if output.is_terminal and not no_browser:
            webbrowser.open(_redirect(Path(folder), server.url))
        server.serve_forever()


def _redirect(folder: Path, url: str) -> str:
    """Return the address of a file that leads to the page: other users see the arguments of a browser."""
    page = folder / "explorer.html"
    page.write_text(f'<meta http-equiv="refresh" content="0; url={url}">')
    return page.as_uri()
