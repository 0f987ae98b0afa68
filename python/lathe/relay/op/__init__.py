"""Operators.  The functions are made from the compiler's own table (`lathe ops`), under
TVM's names: relay.add, relay.nn.conv2d, relay.image.resize2d, and the same as relay.op.add, relay.op.nn.conv2d."""

import sys as _sys

from ..op_rows import OpRow, row, rows
from ..expr import Op
from . import annotation, contrib
from .gradients import register_gradient
from .register import BROADCAST, COMM_REDUCE, ELEMWISE, INJECTIVE, OPAQUE, OUT_ELEMWISE_FUSABLE, TUPLE, register
from .table import _absent

__all__ = [
    "BROADCAST",
    "COMM_REDUCE",
    "ELEMWISE",
    "INJECTIVE",
    "OPAQUE",
    "OUT_ELEMWISE_FUSABLE",
    "Op",
    "OpPattern",
    "OpRow",
    "TUPLE",
    "annotation",
    "contrib",
    "get",
    "op",
    "register",
    "register_gradient",
    "row",
    "rows",
]


class OpPattern:
    """How an operator fuses with others."""

    ELEMWISE, BROADCAST, INJECTIVE, COMM_REDUCE = ELEMWISE, BROADCAST, INJECTIVE, COMM_REDUCE
    OUT_ELEMWISE_FUSABLE, TUPLE, OPAQUE = OUT_ELEMWISE_FUSABLE, TUPLE, OPAQUE


def get(op_name: str) -> Op:
    """The operator of that name."""
    return Op.get(op_name)


op = _sys.modules[__name__]  # TVM's relay.op.op, where it keeps get and register
globals()["__getattr__"] = _absent(__name__)  # (a type checker would take a definition for a promise of every name)
