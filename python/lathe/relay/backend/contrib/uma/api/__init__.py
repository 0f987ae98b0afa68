"""Names that TVM has here."""

from .utils import PassPhase

__all__ = ["PassPhase"]
