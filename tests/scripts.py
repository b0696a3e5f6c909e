"""The scripts of the examples as modules.

A run has no key if its policy's file imports this one, but `tests.support` is free to be imported.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from tests.support import EXAMPLES


def example(name: str) -> ModuleType:
    """A script of the examples as a module."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))
