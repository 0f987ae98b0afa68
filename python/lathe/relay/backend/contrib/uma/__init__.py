"""UMA: an accelerator as one class, with its patterns, passes and code generator.  examples/npu/npu.py is one."""

from .api.utils import PassPhase
from .backend import UMABackend


def uma_available() -> bool:
    """TVM's question whether it was built with UMA."""
    return True


__all__ = ["PassPhase", "UMABackend", "uma_available"]
