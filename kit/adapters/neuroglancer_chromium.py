"""The adapter of neuroglancer 2.41.2: its key-value store for Icechunk, in Chromium.

cd kit/adapters/neuroglancer && npm install --ignore-scripts && node build.mjs PAGE
pip install playwright; python kit/adapters/neuroglancer_chromium.py PAGE /usr/bin/chromium
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from icechunk_kit.adapter import serve
from icechunk_kit.store import Store
from playwright.sync_api import Browser, sync_playwright

#: Reads keys below a URL. A key that is not there gives null.
READ = """async ([base, keys]) => {
  const context = window.viewer.dataSourceProvider.sharedKvStoreContext.kvStoreContext;
  const read = async (key) => (await context.read(base + key))?.response.arrayBuffer();
  const digits = (byte) => byte.toString(16).padStart(2, "0");
  const hex = (data) => Array.from(new Uint8Array(data), digits).join("");
  const values = [];
  for (const key of keys) {
    const data = await read(key);
    values.push(data === undefined ? null : hex(data));
  }
  return values;
}"""


class Viewer:
    """The viewer in a browser. A folder has its page, and links to the repositories that it reads."""

    def __init__(self, browser: Browser, folder: Path, store: Store) -> None:
        self.browser, self.folder = browser, folder
        self.url = "{endpoint}/{bucket}/{prefix}".format(**store.location)
        self.count = 0

    def values(self, location: dict[str, Any], ref: dict[str, str], keys: list[str]) -> list[str | None]:
        if "path" not in location or location.get("containers") or "snapshot_id" in ref:
            raise NotImplementedError
        self.count += 1
        (self.folder / str(self.count)).symlink_to(location["path"])
        ((kind, name),) = ref.items()
        # The listing that it needs to find a branch is not part of this adapter
        file = Path(location["path"]) / "refs" / f"{kind}.{name}" / "ref.json"
        version = json.loads(file.read_text())["snapshot"] if kind == "branch" else f"tag.{name}"
        page = self.browser.new_page()  # a new one: the viewer caches what it read
        try:
            page.goto(f"{self.url}/page/index.html")
            page.wait_for_function("window.viewer")
            base = f"{self.url}/{self.count}/|icechunk:@{version}/"
            values: list[str | None] = page.evaluate(READ, [base, keys])
        finally:
            page.close()
        return values

    def read(self, location: dict[str, Any], ref: dict[str, str], path: str, chunks: list[list[int]]) -> Any:
        keys = ["/".join([path.strip("/"), "c", *map(str, index)]).strip("/") for index in chunks]
        return self.values(location, ref, keys)

    def metadata(self, location: dict[str, Any], ref: dict[str, str], path: str) -> Any:
        (document,) = self.values(location, ref, [f"{path.strip('/')}/zarr.json".strip("/")])
        if document is None:
            raise KeyError(path)
        return json.loads(bytes.fromhex(document))


def kind(error: Exception) -> str:
    return "not-found" if isinstance(error, KeyError) else "other"


if __name__ == "__main__":
    with TemporaryDirectory() as root, sync_playwright() as driver, Store(Path(root), print) as store:
        (Path(root) / "page").symlink_to(Path(sys.argv[1]).resolve())
        chromium = driver.chromium.launch(executable_path=sys.argv[2], args=["--no-sandbox"])
        viewer = Viewer(chromium, Path(root), store)
        serve({"read": viewer.read, "metadata": viewer.metadata}, kind)
        chromium.close()
