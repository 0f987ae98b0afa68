"""Networks for people without a model, and helpers for tests of passes.

>>> mod, params = relay.testing.resnet.get_workload(num_layers=18)"""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np

from ... import nd
from ..._ir.module import IRModule
from ..._ir.transform import PassContext, Sequential
from .. import transform
from ..expr import Function, RelayExpr
from . import dcgan, densenet, dqn, inception_v3, init, layers, lstm, mlp, mobilenet, resnet, squeezenet, vgg
from ..gradient import gradient
from .grad import _np_randn_from_type, check_grad
from .init import create_workload

__all__ = [
    "check_grad",
    "count",
    "count_ops",
    "create_workload",
    "dcgan",
    "densenet",
    "dqn",
    "gradient",
    "inception_v3",
    "init",
    "layers",
    "lstm",
    "mlp",
    "mobilenet",
    "rand",
    "resnet",
    "run_infer_type",
    "run_opt_pass",
    "squeezenet",
    "vgg",
]


def rand(dtype: str = "float32", *shape: int) -> Any:
    """A tensor of random numbers from [0, 1)."""
    return nd.array(np.random.rand(*shape).astype(dtype))


def run_opt_pass(expr: RelayExpr, opt_pass: Any, import_prelude: bool = False) -> Any:
    """The expression after a pass (or a list of them)."""
    passes = opt_pass if isinstance(opt_pass, (list, tuple)) else [opt_pass]
    mod = transform.InferType()(IRModule.from_expr(expr))
    with PassContext(opt_level=3):
        mod = Sequential(list(passes))(mod)
    main = mod["main"]
    return main if isinstance(expr, Function) else main.body


def run_infer_type(expr: RelayExpr, mod: Any = None) -> RelayExpr:
    """The expression with types."""
    return run_opt_pass(expr, transform.InferType())


def count_ops(expr: RelayExpr) -> Any:
    """How often each operator is called in an expression, by name."""
    from ..analysis import list_op_freqs

    return list_op_freqs(IRModule.from_expr(expr))


def count(mod: IRModule) -> Tuple[int, Any]:
    """Number of operator calls, in all and by name."""
    from ..analysis import list_op_freqs

    ops = list_op_freqs(mod)
    return sum(ops.values()), ops
