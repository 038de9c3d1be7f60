"""How commands end: what people can mend is one line and exit code 2, a bug is a traceback."""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from hacpo.errors import HacpoError

FIXABLE = 2
INTERRUPTED = 130


class Group(TyperGroup):
    """The top of the command tree: every command runs inside its `invoke`."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HacpoError as error:
            if os.environ.get("HACPO_DEBUG"):
                raise
            say(f"error: {error}")
            raise typer.Exit(FIXABLE) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def say(text: str) -> None:
    """One line for people, beside the results on stdout."""
    print(f"hacpo: {' '.join(text.split())}", file=sys.stderr, flush=True)


def examples(*lines: str, note: str = "") -> str:
    """Epilog of a command's help."""
    shown = "\n".join(["Examples:", *(f"$ {line}" for line in lines)])
    return f"{shown}\n\n{note}" if note else shown
