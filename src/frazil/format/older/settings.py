"""The ``config.yaml`` of M3 to M8: as much of YAML as its writer used.

Maps by indentation, plain and quoted scalars, empty maps, and tags, which name a variant:

    store: !S3Compatible
      region: us-east-1
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from frazil.errors import ErrorKind, FormatError
from frazil.format.older.values import decoding

_LINE: Final = re.compile(
    r"""(?P<indent>[ ]*)(?P<key>"[^"]*"|'[^']*'|[^\s"'#\-!{\[][^:#]*(?::[^\s:#][^:#]*)*):"""
    r"""(?:[ ]+(?P<tag>![\w]+))?(?:[ ]+(?P<value>\S.*?))?[ ]*"""
)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_CONSTANTS: Final[dict[str, Any]] = {"null": None, "~": None, "true": True, "false": False}
_MAX_DEPTH: Final = 16


def decode_settings(data: Any, name: str) -> dict[str, Any]:
    """The document as maps and scalars; a tagged value is a map of one key.

    Raises ``FormatError`` (``config-deserialization``) naming the file and the line.

    >>> decode_settings(b"a: 1\\nstore: !LocalFileSystem ''\\nother: !S3\\n  region: null\\n", "config.yaml")
    {'a': 1, 'store': {'LocalFileSystem': ''}, 'other': {'S3': {'region': None}}}
    """
    root: dict[str, Any] = {}
    # Maps that lines may still belong to, each with its indentation.
    open_maps: list[tuple[int, dict[str, Any]]] = [(-1, root)]
    with decoding(name):
        for number, line in enumerate(bytes(data).decode().splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#") or line.strip() == "---":
                continue
            found = _LINE.fullmatch(line)
            if found is None or len(open_maps) > _MAX_DEPTH:
                raise FormatError(
                    f"line {number}: expected `key: value`, found {line.strip()!r:.80}",
                    ErrorKind.CONFIG_DESERIALIZATION,
                )
            indent = len(found["indent"])
            while open_maps[-1][0] >= indent:
                open_maps.pop()
            value: Any = {} if found["value"] is None else _scalar(found["value"])
            open_maps[-1][1][_scalar_key(found["key"])] = (
                value if found["tag"] is None else {found["tag"][1:]: value}
            )
            if found["value"] is None:
                open_maps.append((indent, value))
    return root


def _scalar_key(text: str) -> str:
    return text[1:-1] if text[0] in "\"'" else text.strip()


def _scalar(text: str) -> Any:
    if text[0] == '"':
        return json.loads(text)
    if text[0] == "'" and text[-1] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    if text == "{}":
        return {}
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return text
