"""Operators relay.qnn.*.

Written by tools/stubs.py from the compiler's table."""

from . import op as op
from .op import *
