"""The explorer as files next to the data, for a bucket or a web server without a program.

``explorer.json`` says where the repository is, relative to the page, so that both can be moved together. A
web server cannot list the refs of a repository of spec version 1, so ``index.json`` has them.
"""

from __future__ import annotations

import json
import os
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.target import Target
from frazil.storage.base import Storage
from frazil.storage.local import LocalStorage
from frazil.ui.files import INDEX, assets, index, start

SETTINGS: Final = "explorer.json"


def export(
    folder: Path, target: Target, storage: Storage, spec_version: int, repo_url: str | None = None
) -> dict[str, Any]:
    """Write the page into a folder, and return the content of its ``explorer.json``.

    ``repo_url`` is the address of the repository for the page. Without it, the repository must be a folder
    next to the page, around it or in it.
    """
    settings: dict[str, Any] = {
        "repo": _relative(folder, storage) if repo_url is None else _address(repo_url),
        "label": storage.label() if repo_url is None else repo_url,
        **start(target),
        "specVersion": spec_version,
    }
    if isinstance(storage, LocalStorage):
        settings["label"] = storage.root.name  # a page for others does not show folders of this machine
    files = {name: each.read_bytes() for name, each in assets().items()}
    if spec_version == 1:
        settings["index"] = INDEX
        files[INDEX] = _document(index(storage))
    files[SETTINGS] = _document(settings)
    # The browser asks for the first files while it still reads the page.
    early = [SETTINGS] if spec_version == 1 else [SETTINGS, f"{settings['repo']}repo"]
    links = "".join(f'<link rel="preload" as="fetch" crossorigin href="{escape(each)}" />' for each in early)
    files["index.html"] = files["index.html"].replace(b"</title>", f"</title>{links}".encode(), 1)
    # The page comes last, so that it finds its files.
    for name in sorted(files, key="index.html".__eq__):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
    return settings


def _document(value: Any) -> bytes:
    return f"{json.dumps(value, ensure_ascii=False, indent=2)}\n".encode()


def _relative(folder: Path, storage: Storage) -> str:
    """Return the address of a local repository, relative to the page."""
    if isinstance(storage, LocalStorage):
        root, page = storage.root.resolve(), folder.resolve()
        if os.path.commonpath([root, page]) in map(str, (root, root.parent, page)):
            return f"{quote(os.path.relpath(root, page))}/"
    raise InvalidInputError(
        f"the address of the repository for the page must be known, but {storage.label()} is not a folder "
        f"next to {folder} or around it. Pass --repo-url with the URL at which browsers find the repository",
        ErrorKind.INVALID_ARGUMENT,
    )


def _address(url: str) -> str:
    parts = urlsplit(url)
    is_relative = not parts.scheme and not parts.netloc
    if (
        parts.username
        or parts.query
        or parts.fragment
        or not (is_relative or (parts.scheme in ("http", "https") and parts.netloc))
    ):
        raise InvalidInputError(
            f"--repo-url must be an http or https URL, or a path relative to the page, without a user and a "
            f"query, got {url!r}",
            ErrorKind.INVALID_ARGUMENT,
        )
    return f"{url.rstrip('/')}/"
