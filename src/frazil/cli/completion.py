"""``frazil completion``: the completion of commands and options in a shell."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from frazil.cli.command import verb
from frazil.cli.output import Output

_DESCRIPTION: Final = """\
Print a program for a shell that completes commands, options, branches, tags and paths of `frazil`. In bash,
`@` and `:` do not separate words any more."""

_EXAMPLES: Final = """\
frazil completion bash   load it with: eval "$(frazil completion bash)"
frazil completion fish   save it as ~/.config/fish/completions/frazil.fish"""


@verb("completion", description=_DESCRIPTION, examples=_EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(output: Output, shell: str) -> None:
    """Print the program."""
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    group = click.get_current_context().find_root().command
    text = shell_class(group, {}, "frazil", "_FRAZIL_COMPLETE").source()
    if shell == "bash":
        text += "\n# LOCATION@VERSION:PATH is one word\nCOMP_WORDBREAKS=${COMP_WORDBREAKS//[@:]/}\n"
    output.emit({"shell": shell, "program": text}, [text])
