"""The adapter of neuroglancer 2.41.2: its key-value store for Icechunk, in Chromium.

cd kit/adapters/neuroglancer && npm install --ignore-scripts && node build.mjs PAGE
pip install playwright; python kit/adapters/neuroglancer_chromium.py PAGE /usr/bin/chromium
"""

from __future__ import annotations

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from icechunk_kit.adapter import serve
from playwright.sync_api import sync_playwright

PAGE = Path(sys.argv[1])
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


class Files(BaseHTTPRequestHandler):
    """The page, and the repository of the request below /r/."""

    protocol_version = "HTTP/1.1"
    repository = PAGE

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        inside = url.path.removeprefix("/r/")
        path = (
            self.repository / inside if inside != url.path else PAGE / (url.path.strip("/") or "index.html")
        )
        if not path.is_file():
            self.answer(404, b"")
            return
        kind = {".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm"}.get(
            path.suffix, ""
        )
        data = path.read_bytes()
        span = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if span is None:
            self.answer(200, data, {"Content-Type": kind})
            return
        first = int(span[1]) if span[1] else max(len(data) - int(span[2]), 0)
        last = min(int(span[2] or len(data)) if span[1] else len(data), len(data) - 1)
        self.answer(206, data[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(data)}"})

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            "Accept-Ranges": "bytes",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_address[1]}"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=sys.argv[2], args=["--no-sandbox"])

        def values(location: dict[str, Any], ref: dict[str, str], keys: list[str]) -> list[str | None]:
            if "path" not in location or location.get("containers") or "snapshot_id" in ref:
                raise NotImplementedError
            Files.repository = Path(location["path"])
            ((kind, name),) = ref.items()
            # The listing that it needs to find a branch is not part of this server
            file = Files.repository / "refs" / f"{kind}.{name}" / "ref.json"
            version = json.loads(file.read_text())["snapshot"] if kind == "branch" else f"tag.{name}"
            page = browser.new_page()  # a new one: the viewer caches what it read
            try:
                page.goto(f"http://{address}/")
                page.wait_for_function("window.viewer")
                result: list[str | None] = page.evaluate(
                    READ, [f"http://{address}/r/|icechunk:@{version}/", keys]
                )
            finally:
                page.close()
            return result

        def read(location: dict[str, Any], ref: dict[str, str], path: str, chunks: list[list[int]]) -> Any:
            return values(
                location, ref, ["/".join([path.strip("/"), "c", *map(str, i)]).strip("/") for i in chunks]
            )

        def metadata(location: dict[str, Any], ref: dict[str, str], path: str) -> Any:
            (document,) = values(location, ref, [f"{path.strip('/')}/zarr.json".strip("/")])
            if document is None:
                raise KeyError(path)
            return json.loads(bytes.fromhex(document))

        serve(
            {"read": read, "metadata": metadata},
            lambda error: "not-found" if isinstance(error, KeyError) else "other",
        )
        browser.close()


if __name__ == "__main__":
    main()
