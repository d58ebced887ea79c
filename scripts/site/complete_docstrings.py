"""An extension of griffe, which only reads the source: what docstrings and signatures get by an import."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

#: The decorators that list options in the signature, or describe arguments in the docstring.
DECORATORS = {"with_argument_docs", "with_keywords", "with_options"}
#: An example outside of a section `Examples`.
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class CompleteDocstrings(griffe.Extension):
    """Completes docstrings and signatures as users see them, and makes blocks of examples."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Complete a function, and make blocks of the examples of any object."""
        if isinstance(obj, griffe.Function) and any(
            decorator.callable_path.rpartition(".")[2] in DECORATORS for decorator in obj.decorators
        ):
            complete(obj)
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)


def complete(function: griffe.Function) -> None:
    """Import the module of a decorated function, and copy the docstring and the options of its value."""
    value: Any = importlib.import_module(function.module.path)
    for name in function.path.removeprefix(f"{function.module.path}.").split("."):
        value = getattr(value, name)
    if function.docstring is not None:
        function.docstring.value = inspect.cleandoc(value.__doc__)
    listed = inspect.signature(value).parameters
    own = [each for each in function.parameters if each.name in listed]
    options = [
        griffe.Parameter(
            name,
            annotation=str(parameter.annotation),
            kind=griffe.ParameterKind.keyword_only,
            default=None if parameter.default is parameter.empty else repr(parameter.default),
        )
        for name, parameter in listed.items()
        if name not in function.parameters
    ]
    function.parameters = griffe.Parameters(*own, *options)
