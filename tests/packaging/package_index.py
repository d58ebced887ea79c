"""An index of packages on 127.0.0.1: the metadata of wheels, and of the packages in constraints.txt."""

from __future__ import annotations

import re
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from tests.support.loopback_http import LoopbackHttp, QuietHandler

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
USER_EXTRAS = set(PROJECT["optional-dependencies"])
PINS = dict(re.findall(r"^([^#\s]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))


def run(*command: str | Path, cwd: str | Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the project, with more variables."""
    assignments = [f"{name}={value}" for name, value in variables.items()]
    return subprocess.run(["env", *assignments, *map(str, command)], cwd=cwd, capture_output=True, text=True)


def _metadata(name: str, version: str) -> bytes:
    """The metadata of an installed package. That of another package has no requirements."""
    try:
        installed = distribution(name)
    except PackageNotFoundError:
        installed = None
    if installed is not None and installed.version == version:
        return (installed.read_text("METADATA") or "").encode()
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()


@contextmanager
def package_index(folder: Path) -> Iterator[Mapping[str, str]]:
    """Serve the index with the wheels in a folder, and give the variables that make uv use only this index.

    An installer that only resolves reads the metadata beside a wheel (`data-core-metadata`), not the wheel.
    """
    documents = {pin: _metadata(*pin) for pin in PINS.items()}
    for wheel in folder.glob("*.whl"):
        name, version = wheel.name.split("-")[:2]
        with zipfile.ZipFile(wheel) as archive:
            document = archive.read(f"{name}-{version}.dist-info/METADATA")
        documents[name.replace("_", "-"), version] = document
    bodies = {}
    for (name, version), document in documents.items():
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        bodies[f"/files/{file}.metadata"] = document
        link = f'<!DOCTYPE html><a href="/files/{file}" data-core-metadata="true">{file}</a>'
        bodies[f"/simple/{name}/"] = link.encode()

    class Index(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802  # the name of http.server
            body = bodies.get(self.path)
            kind = "text/html" if self.path.endswith("/") else "application/octet-stream"
            self.reply(404 if body is None else 200, body or b"", [("Content-Type", kind)])

    with LoopbackHttp(Index) as server:
        address = f"{server.url}/simple"
        yield {
            "UV_DEFAULT_INDEX": address,
            "UV_CACHE_DIR": str(folder / "cache"),
            "UV_NO_CONFIG": "1",
            "NO_PROXY": "127.0.0.1",
        }
