"""Passes and the context they run in (the same as lathe.ir.transform)."""

from .ir.transform import *  # noqa: F401,F403
from .ir.transform import PassContext, Sequential, function_pass, module_pass  # noqa: F401
