"""Networks for people without a model, and helpers for tests of passes.

>>> mod, params = relay.testing.resnet.get_workload(num_layers=18)"""

from __future__ import annotations

from typing import Any, Tuple

from ..._ir.module import IRModule
from ..._ir.transform import PassContext, Sequential
from .. import transform
from ..expr import Function, RelayExpr
from . import dcgan, densenet, dqn, layers, lstm, mlp, mobilenet, resnet, squeezenet, vgg
from .init import create_workload

__all__ = [
    "create_workload", "dcgan", "densenet", "dqn", "layers", "lstm", "mlp", "mobilenet", "resnet", "run_infer_type", "run_opt_pass", "squeezenet", "vgg",
]


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


def count(mod: IRModule) -> Tuple[int, Any]:
    """Number of operator calls, in all and by name."""
    from ..analysis import list_op_freqs

    ops = list_op_freqs(mod)
    return sum(ops.values()), ops
