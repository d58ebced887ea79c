"""The clauses of statements that Frazil has. All others are refused, because nothing would honour them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from sqlglot import exp

from frazil.errors import ErrorKind, InvalidInputError

#: Class of a statement in sqlglot, or of a part of it -> the arguments of it that Frazil honours. The classes
#: are names, because versions of sqlglot have others.
_CLAUSES: Final[Mapping[str, str]] = {
    "Insert": "this expression source with_ partition by_name where overwrite",
    "Update": "this expressions from_ where with_",
    "Delete": "this where with_",
    "Merge": "this using on using_cond whens with_",
    "TruncateTable": "expressions",
    "Create": "this kind replace expression exists properties with_",
    "Drop": "tables kind exists cascade restrict purge",  # nothing depends on an array
    "Alter": "this kind actions exists",
    "AlterSet": "expressions",
    "Table": "this db catalog alias joins pivots sample version partition",
    "Schema": "this expressions",
    "Identifier": "this quoted",
    "ColumnDef": "this kind constraints exists",
    "ColumnConstraint": "this kind",
    "CommentColumnConstraint": "this",
    "NotNullColumnConstraint": "allow_null",  # of labels; `require_nullable` checks other columns
    "PrimaryKeyColumnConstraint": "this",
    "Constraint": "this expressions",
    "PrimaryKey": "expressions include options",  # such as NOT ENFORCED
    "Property": "this value",
    "FileFormatProperty": "this",
    "LocationProperty": "this",
    "OptionsProperty": "expressions",
    "PartitionedByProperty": "this",
    "SchemaCommentProperty": "this",
    "WithDataProperty": "no",
}
#: The parts of these must all be in the table.
_DECLARATIONS: Final = (exp.Schema, exp.Properties, exp.ColumnConstraint, exp.Constraint)
#: What is inside of these is no clause.
_OPAQUE: Final = (exp.Query, exp.DataType, exp.PartitionedByProperty)
#: Argument or class of a clause -> what to type instead.
_ADVICE: Final[Mapping[str, str]] = {
    "alternative": "Type MERGE INTO",
    "conflict": "Type MERGE INTO",
    "default": "Type VALUES with the labels of the new cells",
    "position": "Leave it out: the new column is the last one",
    "returning": "Leave it out, and run SELECT after the statement",
    "using": "Type WHERE with a subquery",
    "when": "Type VERSION AS OF or TIMESTAMP AS OF",
    "ComputedColumnConstraint": "Compute the column in CREATE TABLE ... AS SELECT",
    "DefaultColumnConstraint": "Leave it out, and write the values with UPDATE or INSERT",
    "LikeProperty": "Type CREATE TABLE ... AS SELECT ... WITH NO DATA",
    "TemporaryProperty": "Type CREATE TEMPORARY VIEW, or leave it out",
    "UniqueColumnConstraint": "Type PRIMARY KEY for the dimensions, or leave it out",
}


def refused(text: str) -> InvalidInputError:
    """Return the error (``not-allowed``) for a statement that a grid has no meaning for."""
    return InvalidInputError(text, ErrorKind.NOT_ALLOWED)


def require_clauses(tree: exp.Expr, name: str) -> None:
    """Raise ``InvalidInputError`` for a clause of a statement about a table that Frazil does not honour."""
    for key, value in _others(tree):
        clause = value.sql("spark") if isinstance(value, exp.Expr) else key.replace("_", " ").upper()
        words = f"{tree.key} {tree.args.get('kind') or ''}".upper().strip()
        raise refused(
            f"{words} of `{name}` must have only clauses that Frazil has, got {clause}. "
            f"{_ADVICE.get(key, 'Leave it out')}"
        )


def _others(tree: exp.Expr) -> Iterator[tuple[str, Any]]:
    """Yield the clauses that are not in the table: the argument or the class, and the value."""
    for each in tree.walk(prune=lambda node: isinstance(node, _OPAQUE)):
        honoured = _CLAUSES.get(type(each).__name__)
        if honoured is not None:
            yield from (pair for pair in each.args.items() if pair[1] and pair[0] not in honoured.split())
        elif isinstance(each.parent, _DECLARATIONS) and each.arg_key != "this":
            yield type(each).__name__, each


def require_nullable(columns: Iterable[exp.ColumnDef], dims: Collection[str] = ()) -> None:
    """Raise ``InvalidInputError`` for NOT NULL of a column that is no dimension."""
    for each in columns:
        constraint = each.find(exp.NotNullColumnConstraint)
        if constraint is not None and not constraint.args.get("allow_null") and each.name not in dims:
            raise refused(
                f"A column must be a dimension to be NOT NULL, got {each.name}: each cell may be without a "
                "value. Leave it out"
            )
