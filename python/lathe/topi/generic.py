"""Schedules for tensors of topi.

All of them are one: what each element takes from one element of its inputs is computed where it is read,
other stages fill buffers of their own; the outer loops of each stage run on all threads, the innermost as vectors."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from .. import error, te, tir
from ..te.schedule import is_injective

_LANES = 16


def schedule(outs: Any) -> te.Schedule:
    """A schedule for these tensors."""
    outs = [outs] if isinstance(outs, te.Tensor) else list(outs)
    s = te.create_schedule([t.op for t in outs])
    readers: Dict[te.Operation, List[te.Operation]] = {}
    ops = [stage.op for stage in s.stages]
    for op in ops:
        for t in op.input_tensors:
            readers.setdefault(t.op, []).append(op)
    results = [t.op for t in outs]
    for op in ops:
        if not isinstance(op, te.ComputeOp):
            continue
        if op not in results and is_injective(op) and _is_better_inlined(op, readers.get(op, [])):
            s[op].compute_inline()
        else:
            _loops(s[op], op)
    return s


def _is_better_inlined(op: te.Operation, readers: List[te.Operation]) -> bool:
    """A number, or what is read by one operation that reads each element once."""
    return not op.axis or (len(readers) == 1 and isinstance(readers[0], te.ComputeOp) and not readers[0].reduce_axis)


def _loops(stage: te.Stage, op: te.Operation) -> None:
    axes = list(op.axis)
    if not axes:
        return
    *outer, last = axes
    extent = last.dom.extent if last.dom is not None else None
    if not (isinstance(extent, tir.IntImm) and extent.value < _LANES):
        rest, inner = stage.split(last, factor=_LANES)
        outer.append(rest)
        stage.reorder(*outer, *op.reduce_axis, inner)
        stage.vectorize(inner)
    if outer:
        stage.parallel(stage.fuse(*outer) if len(outer) > 1 else outer[0])


def default_schedule(outs: Any, auto_inline: bool = True) -> te.Schedule:
    """The same as schedule; without auto_inline, plain loops."""
    outs = [outs] if isinstance(outs, te.Tensor) else list(outs)
    return schedule(outs) if auto_inline else te.create_schedule([t.op for t in outs])


def schedule_extern(outs: Any) -> te.Schedule:
    """Operations as they are, each on its own."""
    return default_schedule(outs, False)


def get(name: str) -> Callable[..., te.Schedule]:
    """schedule_conv2d_nchw, schedule_softmax and their like take tensors, some of them attributes as well."""
    if not name.startswith("schedule_"):
        raise AttributeError(f"there is no '{name}' here: this module has the functions schedule_*")

    def function(outs: Any, *_attributes: Any, **_named: Any) -> te.Schedule:
        return schedule(outs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = schedule.__doc__
    return function


def __getattr__(name: str) -> Any:
    return get(name)


def schedule_injective_from_existing(sch: te.Schedule, out: te.Tensor) -> te.Schedule:
    """The loops of a stage of an existing schedule."""
    if not isinstance(out.op, te.ComputeOp):
        raise error.TypeError("schedule_injective_from_existing: wants a tensor that te.compute made")
    _loops(sch[out], out.op)
    return sch
