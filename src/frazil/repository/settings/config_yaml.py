"""``config.yaml``: the configuration of a repository of spec version 1.

It contains the document of spec version 2 in YAML, with a tag before the content of a variant: ``store: !s3
{...}``. Plain words are null, booleans and numbers as in YAML 1.2: dates and ``yes`` are text. Anchors are
refused, because a few lines of them can expand to gigabytes. The number of values is limited, because each
costs 20 microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Buffer
from typing import Any, ClassVar, Final

import yaml  # type: ignore[import-untyped]  # it has no type annotations

from frazil.errors import ErrorKind, FormatError
from frazil.format.ids import CONFIG
from frazil.repository.settings.config_document import SavedVariant

MAX_BYTES: Final = 1 << 20
#: Keys, values, lists and maps of a file. One virtual chunk container has about 30.
_MOST_NODES: Final = 1 << 16
_LONGEST_NUMBER: Final = 100

#: Tag, pattern and possible first characters of plain words that are not text.
_WORDS: Final = (
    ("null", r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", list("tTfF")),
    ("int", r"(?:[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+)", list("-+0123456789")),
    (
        "float",
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))",
        list("-+0123456789."),
    ),
)


class _ConfigLoader(yaml.SafeLoader):  # type: ignore[misc]  # Any, without types
    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
    #: The types of JSON, without dates, sets and bytes, even if they are tagged.
    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        tag: make
        for tag, make in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in ("null", "bool", "int", "float", "str", "seq", "map")
    }

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise yaml.YAMLError(f"expected at most {_MOST_NODES} keys and values, got more")
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported, got one")
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # Any, without types
    """Writes YAML, and quotes text that YAML 1.1 or 1.2 would read as another type."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: list(resolvers) for first, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def choose_scalar_style(self) -> str:
        """Write words after a tag without quotes where possible; PyYAML would quote all of them."""
        event = self.event
        if event.tag and event.tag.startswith("!") and not event.style:
            analysis = self.analyze_scalar(event.value)
            if analysis.allow_block_plain and not analysis.multiline:
                return ""
        style: str = super().choose_scalar_style()
        return style


for _tag, _pattern, _first in _WORDS:
    for _class in (_ConfigLoader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^{_pattern}$"), _first)


def _load_variant(loader: _ConfigLoader, tag: str, node: yaml.Node) -> SavedVariant:
    if isinstance(node, yaml.MappingNode):
        return SavedVariant({tag: loader.construct_mapping(node, deep=True)})
    if isinstance(node, yaml.SequenceNode):
        return SavedVariant({tag: loader.construct_sequence(node, deep=True)})
    # PyYAML does not resolve a word after a tag, but the content of an Axis is a number.
    plain = node.style is None
    if not node.value:
        return SavedVariant({tag: None if plain else ""})
    kind = loader.resolve(yaml.ScalarNode, node.value, (plain, not plain))
    return SavedVariant({tag: loader.construct_object(yaml.ScalarNode(kind, node.value))})


def _load_number(loader: _ConfigLoader, node: yaml.Node) -> object:
    """Return a number. Long numbers and numbers to the base 60 are refused: they take quadratic time."""
    text = loader.construct_scalar(node)
    if len(text) > _LONGEST_NUMBER or ":" in text:
        raise yaml.YAMLError(f"expected a number of at most {_LONGEST_NUMBER} digits, got {text[:20]!r}")
    return yaml.SafeLoader.yaml_constructors[node.tag](loader, node)


for _name in ("int", "float"):
    _ConfigLoader.add_constructor(f"tag:yaml.org,2002:{_name}", _load_number)

_TEXT: Final = "tag:yaml.org,2002:str"
_ConfigLoader.add_multi_constructor("!", _load_variant)


def _dump_variant(dumper: _Dumper, variant: SavedVariant) -> yaml.Node:
    ((tag, content),) = variant.items()
    node: yaml.Node = dumper.represent_data(content)
    if isinstance(node, yaml.ScalarNode) and isinstance(content, str):
        kind = dumper.resolve(yaml.ScalarNode, content, (True, False))
        node.style = "'" if kind != _TEXT or not content else None
    node.tag = f"!{tag}"
    return node


_Dumper.add_representer(SavedVariant, _dump_variant)


def dump_config(document: dict[str, Any]) -> bytes:
    """Return the file for a document of ``config_document.to_document``.

    >>> dump_config({"store": SavedVariant({"s3": {"region": None}}), "name": "on"}).decode().splitlines()
    ['store: !s3', '  region: null', "name: 'on'"]
    """
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=1 << 30
    )
    return text.encode()


def load_config(data: Buffer, name: str = CONFIG) -> dict[str, Any]:
    r"""Return the document of a file, for ``config_document.from_document``.

    >>> load_config(b"store: !s3\n  region: null\nsize: 5")
    {'store': {'s3': {'region': None}}, 'size': 5}
    """
    raw = bytes(data)
    try:
        if len(raw) > MAX_BYTES:
            raise yaml.YAMLError(f"expected at most {MAX_BYTES} bytes, got {len(raw)}")
        text = raw.decode()
        document = yaml.load(text, _ConfigLoader)
    except (yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        raise FormatError(
            f"{name}: {' '.join(str(error).split())}", ErrorKind.CONFIG_DESERIALIZATION
        ) from error
    if document is None and not any(
        isinstance(event, yaml.DocumentStartEvent) for event in yaml.parse(text, _ConfigLoader)
    ):
        return {}  # an empty file, or a file with comments only
    if not isinstance(document, dict):
        actual = type(document).__name__
        raise FormatError(f"{name}: expected a map, got {actual}", ErrorKind.CONFIG_DESERIALIZATION)
    return document
