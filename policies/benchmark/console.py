"""Where commands print: text is shown as it is, whatever is in it and whatever the terminal knows.

Names of folders, settings and policies, and messages about them, may hold anything.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

# What tables have beyond ASCII, where the terminal has no more than that.
_ASCII = str.maketrans(
    {"–": "-", "±": "+-", "×": "x", "…": "...", "λ": "lambda", "μ": "mu", "ν": "nu"}
)


class PlainConsole(Console):
    """A console on which brackets and colons are no markup, and nothing printed moves the cursor.

    Characters that are not printable or unknown to the terminal are shown as Python escapes them.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """See `Console.render_str`, which rich calls for every text that is given as a string."""
        return super().render_str(shown(text, self.encoding), **options)


def shown(text: str, encoding: str) -> str:
    """The text as a terminal of this encoding can show it."""
    if not encoding.startswith("utf"):
        text = text.translate(_ASCII)
    text = "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode()
        for one in text
    )
    return text.encode(encoding, "backslashreplace").decode(encoding)
