"""Passes and the context they run in (the same as lathe.ir.transform)."""

from ._ir.transform import *  # noqa: F401,F403
from ._ir.transform import __all__ as __all__
