"""Passes: functions from modules to modules, and the context they run in."""

from .._ir.transform import *  # noqa: F401,F403
from .._ir.transform import __all__ as __all__
