"""Operators.  The functions are made from the compiler's own table (`lathe ops`), under
TVM's names: relay.add, relay.nn.conv2d, relay.image.resize2d."""

from ..op_rows import OpRow, row, rows
from ..expr import Op
from .register import BROADCAST, COMM_REDUCE, ELEMWISE, INJECTIVE, OPAQUE, OUT_ELEMWISE_FUSABLE, register

__all__ = [
    "BROADCAST", "COMM_REDUCE", "ELEMWISE", "INJECTIVE", "OPAQUE", "OUT_ELEMWISE_FUSABLE", "Op", "OpRow", "get", "register", "row", "rows",
]


def get(op_name: str) -> Op:
    """The operator of that name."""
    return Op.get(op_name)
