"""The schema of a collection: what its members and their rows must have, as a value of JSON.

columns      name -> type; the table has no other columns
required     names of columns without missing values
variables    name -> {"dims": [...], "dtype": "...", "attributes": {...}}, each part if wanted
attributes   name -> value of the group; null is any value
rules        rules of `frazil.pipeline`, with paths in the member
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from frazil.display import suggest
from frazil.errors import InvalidInputError
from frazil.lazy_names import ModuleOnDemand
from frazil.members.table import TYPES, attributes_of
from frazil.repository.session.session import Session

if TYPE_CHECKING:
    from frazil.pipeline.validation import operation as validation
    from frazil.pipeline.validation import rules as validation_rules
else:
    validation = ModuleOnDemand("frazil.pipeline.validation.operation")
    validation_rules = ModuleOnDemand("frazil.pipeline.validation.rules")

_PARTS: Final = {"columns": dict, "required": list, "variables": dict, "attributes": dict, "rules": list}
_OF_VARIABLE: Final = ("dims", "dtype", "attributes")


def checked_schema(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a schema as JSON. Raises ``InvalidInputError`` for an unknown part, type or rule."""
    parts = dict(given or {})
    if parts.get("rules"):
        rules = [
            each.as_dict() if isinstance(each, validation_rules.Rule) else each for each in parts["rules"]
        ]
        parts["rules"] = [each.as_dict() for each in validation_rules.rules_from(rules)]
    schema: dict[str, Any] = json.loads(json.dumps(parts, default=str))
    for part, value in schema.items():
        if not isinstance(value, _PARTS.get(part, ())):
            _refuse(f"the parts {', '.join(_PARTS)} as mappings and lists", f"{part}={value!r:.100}")
    for name, kind in schema.get("columns", {}).items():
        if kind not in TYPES:
            _refuse(f"a type of {', '.join(TYPES)} for the column `{name}`", repr(kind))
    for name, parts in schema.get("variables", {}).items():
        if not isinstance(parts, dict) or set(parts) - set(_OF_VARIABLE):
            _refuse(f"{', '.join(_OF_VARIABLE)} of the variable `{name}`", repr(parts))
    return schema


def _refuse(expected: str, found: str) -> None:
    raise InvalidInputError(f"a schema must have {expected}, got {found}")


def require_columns(schema: Mapping[str, Any], names: Iterable[str], known: Mapping[str, Any]) -> None:
    """Raise ``InvalidInputError`` for a column that neither the schema nor the table has."""
    for name in names if "columns" in schema else ():
        if name not in known:
            raise InvalidInputError(
                f"a column must be one of {', '.join(known)}, got {name!r}{suggest(name, known)}"
            )


def misfits(schema: Mapping[str, Any], session: Session, path: str) -> Iterator[str]:
    """Yield what is wrong with the group of a member: what the schema expects, and what was found."""
    group = session.workspace.node(path)
    found = {} if group is None else attributes_of(group)
    yield from _differences("the group", schema.get("attributes", {}), found)
    for name, parts in schema.get("variables", {}).items():
        node = session.workspace.node(f"{path}/{name}")
        if node is None or node.array is None:
            yield f"the variable `{name}`: expected an array, found {'none' if node is None else 'a group'}"
            continue
        document = json.loads(node.user_data)
        actual = {"dims": document.get("dimension_names"), "dtype": document["data_type"]}
        for part in ("dims", "dtype"):
            if part in parts and actual[part] != parts[part]:
                yield f"the variable `{name}`: expected {part} {parts[part]}, found {actual[part]}"
        yield from _differences(f"the variable `{name}`", parts.get("attributes", {}), attributes_of(node))
    if schema.get("rules"):
        rules = validation_rules.rules_from(schema["rules"])
        placed = [replace(each, path=f"{path}/{each.path.strip('/')}") for each in rules]
        readable = session if session.read_only else session.fork()  # tasks get a pickled session
        for row in validation.check_rules(readable, placed, engine="inline"):
            if not row.ok:
                yield f"{row.rule} {row.path}: expected {row.expected}, found {row.found}"


def _differences(what: str, expected: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    for name, value in expected.items():
        if name not in found or (value is not None and found[name] != value):
            text = "any value" if value is None else repr(value)
            yield f"{what}: expected the attribute `{name}` with {text}, found {found.get(name)!r}"
