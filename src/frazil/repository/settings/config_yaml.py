"""``config.yaml``: the configuration of a repository of spec version 1.

The same document as in version 2, in YAML. Only the variants look different: a tag before the content,
``store: !s3 {...}``. They become the maps of one key that ``config_document`` reads and writes.

Plain words are null, booleans and numbers as in YAML 1.2, which the reference's library follows: no dates, no
``yes``. Anchors are refused: nobody writes them here, and a few lines of them can stand for gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Buffer
from typing import Any, ClassVar, Final

import yaml  # type: ignore[import-untyped]  # it has no types of its own

from frazil.errors import ErrorKind, FormatError
from frazil.format.keys import CONFIG
from frazil.repository.settings.forms import Variant

MAX_BYTES: Final = 1 << 20

#: Tag, pattern, possible first characters of plain words that are no text.
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


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # Any, without types
    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
    #: What JSON has, and no dates, sets or bytes, not even behind their tags.
    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        tag: make
        for tag, make in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in ("null", "bool", "int", "float", "str", "seq", "map")
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias, which no writer of configurations uses")
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # Any, without types
    """Quotes what either version of YAML would take for something else than text."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: list(resolvers) for first, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def choose_scalar_style(self) -> str:
        """Words behind a tag are plain too, where they can be: PyYAML would quote them all."""
        event = self.event
        if event.tag and event.tag.startswith("!") and not event.style:
            analysis = self.analyze_scalar(event.value)
            if analysis.allow_block_plain and not analysis.multiline:
                return ""
        style: str = super().choose_scalar_style()
        return style


for _tag, _pattern, _first in _WORDS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^{_pattern}$"), _first)


def _load_variant(loader: _Loader, tag: str, node: yaml.Node) -> Variant:
    if isinstance(node, yaml.MappingNode):
        return Variant({tag: loader.construct_mapping(node, deep=True)})
    if isinstance(node, yaml.SequenceNode):
        return Variant({tag: loader.construct_sequence(node, deep=True)})
    # Behind a tag a word is not resolved; an Axis is a number all the same.
    plain = node.style is None
    if not node.value:
        return Variant({tag: None if plain else ""})
    kind = loader.resolve(yaml.ScalarNode, node.value, (plain, not plain))
    return Variant({tag: loader.construct_object(yaml.ScalarNode(kind, node.value))})


_TEXT: Final = "tag:yaml.org,2002:str"
_Loader.add_multi_constructor("!", _load_variant)


def _dump_variant(dumper: _Dumper, variant: Variant) -> yaml.Node:
    ((tag, content),) = variant.items()
    node: yaml.Node = dumper.represent_data(content)
    if isinstance(node, yaml.ScalarNode) and isinstance(content, str):
        kind = dumper.resolve(yaml.ScalarNode, content, (True, False))
        node.style = "'" if kind != _TEXT or not content else None
    node.tag = f"!{tag}"
    return node


_Dumper.add_representer(Variant, _dump_variant)


def dump_config(document: dict[str, Any]) -> bytes:
    """The file of a document that ``config_document.to_document`` made.

    >>> dump_config({"store": Variant({"s3": {"region": None}}), "name": "on"}).decode().splitlines()
    ['store: !s3', '  region: null', "name: 'on'"]
    """
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=1 << 30
    )
    return text.encode()


def _has_content(text: str) -> bool:
    return any(isinstance(event, yaml.DocumentStartEvent) for event in yaml.parse(text, _Loader))


def load_config(data: Buffer, name: str = CONFIG) -> dict[str, Any]:
    """The document of a file, for ``config_document.from_document``.

    Raises ``FormatError`` (``config-deserialization``).

    >>> load_config(b"store: !s3\\n  region: null\\nsize: 5")
    {'store': {'s3': {'region': None}}, 'size': 5}
    """
    raw = bytes(data)
    try:
        if len(raw) > MAX_BYTES:
            raise yaml.YAMLError(f"{len(raw)} bytes, at most {MAX_BYTES} expected")
        text = raw.decode()
        document = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        raise FormatError(
            f"{name}: {' '.join(str(error).split())}", ErrorKind.CONFIG_DESERIALIZATION
        ) from error
    if document is None and not _has_content(text):
        return {}  # an empty file, or one of comments
    if not isinstance(document, dict):
        actual = type(document).__name__
        raise FormatError(f"{name}: expected a map, found {actual}", ErrorKind.CONFIG_DESERIALIZATION)
    return document
