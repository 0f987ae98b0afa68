"""Files of tests as programs."""

from __future__ import annotations

import inspect
import sys

from .fixtures import _pytest


def main() -> None:
    """Runs the tests of the file that calls it; arguments of the command line go to pytest."""
    from . import plugin

    file = inspect.getsourcefile(sys._getframe(1))
    sys.exit(_pytest().main([str(file), *sys.argv[1:]], plugins=[plugin]))
