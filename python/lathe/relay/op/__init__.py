"""Operators.  The functions are made from the compiler's own table (`lathe ops`), under
TVM's names: relay.add, relay.nn.conv2d, relay.image.resize2d."""

from .table import OpRow, rows, row  # noqa: F401
from ..expr import Op  # noqa: F401
from .register import BROADCAST, COMM_REDUCE, ELEMWISE, INJECTIVE, OPAQUE, OUT_ELEMWISE_FUSABLE, register  # noqa: F401


def get(op_name: str) -> Op:
    """The operator of that name."""
    return Op.get(op_name)
