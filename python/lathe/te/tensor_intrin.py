"""Tensor intrinsics of te schedules."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from .. import error
from .._ffi import WORLD, call
from ..tir.buffer import Buffer, decl_buffer
from ..tir.function import TensorIntrin
from ..tir.stmt import Stmt, stmt_seq
from .tensor import Operation, Tensor


def decl_tensor_intrin(
    op: Operation,
    fcompute: Callable[[List[Buffer], List[Buffer]], Any],
    name: str = "tensor_intrin",
    binds: Optional[Dict[Tensor, Buffer]] = None,
    scalar_params: Optional[Any] = None,
    default_buffer_params: Optional[Dict[str, Any]] = None,
) -> TensorIntrin:
    """What `Stage.tensorize` puts in place of loops that compute the same as op.

    fcompute(ins, outs) returns the statement for the whole, or a tuple (body,
    reset, update), of which the last two serve when reduce loops stay outside."""
    if not isinstance(op, Operation):
        raise error.TypeError(f"decl_tensor_intrin: wants an operation (C.op), not a {type(op).__name__}")
    if scalar_params:
        raise error.UnsupportedError(
            "decl_tensor_intrin: scalar_params are not supported; read the value from a tensor"
        )
    binds = binds or {}
    inputs = op.input_tensors
    outputs = [op.output(i) for i in range(op.num_outputs)]

    def buffer(t: Tensor) -> Buffer:
        return (
            binds[t]
            if t in binds
            else decl_buffer(t.shape, t.dtype, t.op.name, **(default_buffer_params or {"offset_factor": 1}))
        )

    ins, outs = [buffer(t) for t in inputs], [buffer(t) for t in outputs]
    result = fcompute(ins, outs)
    body, reset, update = (
        (list(result) + [None, None])[:3] if isinstance(result, (tuple, list)) else (result, None, None)
    )
    parts = [None if p is None else p if isinstance(p, Stmt) else stmt_seq(p) for p in (body, reset, update)]
    return call("decl_tensor_intrin", WORLD, name, op, ins, outs, *parts)
