"""Relay text, under TVM's name for it (the same as lathe.relay.parser)."""

from .relay.parser import *  # noqa: F401,F403
from .relay.parser import fromtext, parse  # noqa: F401
