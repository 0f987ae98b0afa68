"""The pytest plugin of `python -m lathe.tvm -m pytest`: `import tvm` means Lathe, also in pytest's worker processes."""

from ..testing.plugin import *  # noqa: F401,F403
from . import tvm  # noqa: F401
