"""Schedules of tensor expressions: stages described in any order.

Each call is checked at once.  One that would change the result is refused with
the reason and leaves the schedule as it was."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union, overload

from .. import error
from .._ffi import WORLD, Object, call, register_object
from ..tir.expr import IntImm, IterVar, convert, as_tuple
from ..tir.function import IndexMap, TensorIntrin
from ..tir.stmt_functor import post_order_visit
from .tensor import ComputeOp, Operation, Tensor


def create_schedule(ops: Union[Operation, Tensor, Sequence[Union[Operation, Tensor]]]) -> "Schedule":
    """A schedule that computes these operations with plain loops."""
    return call("te_schedule", WORLD, [_operation("create_schedule", op) for op in as_tuple(ops)])


def _operation(where: str, x: Any) -> Operation:
    if isinstance(x, Tensor):
        return x.op
    if isinstance(x, Operation):
        return x
    raise error.TypeError(f"{where}: wants a tensor or an operation, not a {type(x).__name__}")


@register_object("teschedule")
class Schedule(Object):
    """How tensors are computed.  s[C] is the stage that computes C."""

    def __getitem__(self, k: Union[Tensor, Operation]) -> "Stage":
        stage = call("te_schedule_stage", self, _operation("schedule[…]", k))
        stage._schedule = self
        return stage

    @property
    def stages(self) -> List["Stage"]:
        """All stages, producers first."""
        out = call("te_schedule_stages", self)
        for s in out:
            s._schedule = self
        return out

    @property
    def stage_map(self) -> Dict[Operation, "Stage"]:
        """Every stage under its operation."""
        return {s.op: s for s in self.stages}

    @property
    def outputs(self) -> List[Operation]:
        """The operations whose results nothing here reads."""
        ops = [s.op for s in self.stages]
        read = {t.op for op in ops for t in op.input_tensors}
        return [op for op in ops if op not in read]

    def cache_read(self, tensor: Tensor, scope: str, readers: Union[Operation, Tensor, Sequence[Any]]) -> Tensor:
        """A copy of the tensor in a scope, which the readers read instead."""
        return call(
            "te_schedule_cache_read", self, tensor, scope, [_operation("cache_read", r) for r in as_tuple(readers)]
        )

    @overload
    def cache_write(self, tensor: Tensor, scope: str) -> Tensor: ...

    @overload
    def cache_write(self, tensor: Sequence[Tensor], scope: str) -> List[Tensor]: ...

    def cache_write(self, tensor: Union[Tensor, Sequence[Tensor]], scope: str) -> Any:
        """Computes the tensor in a scope first and copies it out at the end; returns
        the tensor in the scope."""
        out = call("te_schedule_cache_write", self, list(as_tuple(tensor)), scope)
        return out[0] if isinstance(tensor, Tensor) else out

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Any:
        """Splits a reduction in two: a tensor of partial results along axis, and the
        reduction of those."""
        out = call("te_schedule_rfactor", self, tensor, axis, factor_axis)
        return out[0] if len(out) == 1 else out

    def normalize(self) -> "Schedule":
        """The schedule itself: it is always in normal form."""
        return self

    def create_group(self, outputs: Any, inputs: Any, include_inputs: bool = False) -> Any:
        """Not available."""
        raise error.UnsupportedError("create_group is not supported; attach each stage with compute_at")


@register_object("testage")
class Stage(Object):
    """How one operation is computed."""

    _schedule: Schedule

    @property
    def op(self) -> Operation:
        """The operation as it is now (cache_write and rfactor replace it)."""
        return call("stage_op", self)

    @property
    def origin_op(self) -> Operation:
        """The operation as it was first."""
        return call("stage_origin", self)

    @property
    def leaf_iter_vars(self) -> List[IterVar]:
        """Its loops, outermost first."""
        return call("stage_leaves", self)

    @property
    def all_iter_vars(self) -> List[IterVar]:
        """The operation's axes, then the loops that splits and fuses made of them."""
        op = self.op
        roots = list(op.axis) + list(op.reduce_axis)
        known = {a._id() for a in roots}
        return roots + [a for a in self.leaf_iter_vars if a._id() not in known]

    # ---- loops

    def split(
        self, parent: IterVar, factor: Any = None, nparts: Any = None, disable_predication: bool = False
    ) -> Tuple[IterVar, IterVar]:
        """One loop becomes two: the inner of `factor` iterations, or the outer of
        `nparts`.  Returns (outer, inner)."""
        if disable_predication:
            raise error.UnsupportedError(
                "split: disable_predication is not supported; guards are removed where they can be proved"
            )
        if (factor is None) == (nparts is None):
            raise error.ArgumentError("split: give either factor or nparts")
        outer, inner = call("stage_split", self, _axis("split", parent), factor, nparts)
        return outer, inner

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: Any, y_factor: Any
    ) -> Tuple[IterVar, IterVar, IterVar, IterVar]:
        """Splits two loops and puts both outer ones first: (x_outer, y_outer, x_inner, y_inner)."""
        xo, xi = self.split(x_parent, factor=x_factor)
        yo, yi = self.split(y_parent, factor=y_factor)
        self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    def fuse(self, *args: IterVar) -> IterVar:
        """Neighbouring loops become one."""
        return call("stage_fuse", self, [_axis("fuse", a) for a in (as_tuple(args[0]) if len(args) == 1 else args)])

    def reorder(self, *args: IterVar) -> None:
        """These loops in this order; the others stay where they are."""
        call("stage_reorder", self, [_axis("reorder", a) for a in args])

    def vectorize(self, var: IterVar) -> None:
        """The loop becomes vector operations."""
        call("stage_vectorize", self, _axis("vectorize", var))

    def parallel(self, var: IterVar) -> None:
        """The loop's iterations run on all threads."""
        call("stage_parallel", self, _axis("parallel", var))

    def unroll(self, var: IterVar) -> None:
        """The loop's body is repeated instead."""
        call("stage_unroll", self, _axis("unroll", var))

    def bind(self, ivar: IterVar, thread_ivar: IterVar) -> None:
        """The loop becomes a thread axis."""
        call("stage_bind", self, _axis("bind", ivar), _axis("bind", thread_ivar))

    def env_threads(self, threads: Any) -> None:
        """Not available."""
        raise error.UnsupportedError(
            "env_threads is not supported; bind the loops of the scan's update stage to threads instead"
        )

    # ---- where it is computed

    def compute_at(self, parent: "Stage", scope: IterVar) -> None:
        """Computes it inside a loop of a stage that reads it."""
        if not isinstance(parent, Stage):
            raise error.TypeError(f"compute_at: wants a stage (s[C]), not a {type(parent).__name__}")
        call("stage_compute_at", self, parent, _axis("compute_at", scope))

    def compute_inline(self) -> None:
        """Computes it where it is read; it takes no memory."""
        call("stage_compute_inline", self)

    def compute_root(self) -> None:
        """Computes it on its own, before everything that reads it."""
        call("stage_compute_root", self)

    # ---- where it lives

    def set_scope(self, scope: str) -> None:
        """Memory that holds the result: "global", "shared", "local"."""
        call("stage_set_scope", self, scope)

    def storage_align(self, axis: IterVar, factor: int, offset: int) -> None:
        """The stride of an axis becomes k * factor + offset."""
        call("stage_storage_align", self, _axis("storage_align", axis), factor, offset)

    def double_buffer(self) -> None:
        """Two buffers in turn: one is filled while the other is read."""
        call("stage_double_buffer", self)

    def prefetch(self, tensor: Tensor, var: IterVar, offset: Any) -> None:
        """Fetches what the loop reads of a tensor, offset iterations ahead."""
        call("stage_prefetch", self, tensor, _axis("prefetch", var), offset)

    def set_store_predicate(self, predicate: Any) -> None:
        """Stores only where the condition holds."""
        call("stage_set_store_predicate", self, convert(predicate))

    # ---- how it is emitted

    def tensorize(self, var: IterVar, tensor_intrin: Union[str, TensorIntrin]) -> None:
        """A tensor intrinsic (or the name of a registered one) in place of the loops from
        var inwards."""
        intrin = TensorIntrin.get(tensor_intrin) if isinstance(tensor_intrin, str) else tensor_intrin
        call("stage_tensorize", self, _axis("tensorize", var), intrin)

    def pragma(self, var: IterVar, pragma_type: str, pragma_value: Optional[Any] = None) -> None:
        """A hint on a loop, such as "auto_unroll_max_step"."""
        value = pragma_value if pragma_value is None or isinstance(pragma_value, str) else convert(pragma_value)
        call("stage_pragma", self, _axis("pragma", var), pragma_type, value)

    def transform_layout(self, mapping_function: Callable[..., Any]) -> List[IterVar]:
        """Stores what the stage gives at mapping_function(indices), a list of indices; a placeholder is taken in that
        layout.  A compute then runs over the axes of the new layout, which are returned."""
        index = IndexMap.from_func(mapping_function, len(self.op.output(0).shape))
        leaves = call("stage_transform_layout", self, index.initial_indices, index.final_indices)
        return leaves[: len(index.final_indices)]  # the axes of reductions stand behind

    # ---- not available

    def set_axis_separators(self, axis_separators: Any) -> Any:
        """Not available."""
        raise error.UnsupportedError(
            "set_axis_separators of a te stage is not supported: buffers are flattened to one dimension"
        )

    def rolling_buffer(self) -> Any:
        """Not available."""
        raise error.UnsupportedError(
            "rolling_buffer of a te stage is not supported; compute the stage at a loop of its reader with compute_at"
        )

    def __repr__(self) -> str:
        return f"stage({self.op.name}, {', '.join(a.var.name for a in self.leaf_iter_vars)})"


def _axis(where: str, a: Any) -> IterVar:
    if not isinstance(a, IterVar):
        raise error.TypeError(f"{where}: wants an axis (C.op.axis[0], or what split gave), not a {type(a).__name__}")
    return a


# ---- inlining by structure


def is_injective(op: Operation) -> bool:
    """Is each element computed from elements of the inputs without a reduction?"""
    return isinstance(op, ComputeOp) and op.num_outputs == 1 and not op.reduce_axis


def _reads_by(op: Operation, fits: Callable[[List[Any], List[Any]], bool]) -> bool:
    """Do the indices of all reads of the operation fit its axes?"""
    if not is_injective(op):
        return False
    axes = [a.var for a in op.axis]
    reads: List[Any] = []
    for body in op.body:
        post_order_visit(body, lambda e: reads.append(e) if hasattr(e, "indices") and hasattr(e, "buffer") else None)
    return all(fits(list(e.indices), axes) for e in reads)


def _is_elementwise(indices: List[Any], axes: List[Any]) -> bool:
    return len(indices) == len(axes) and all(i.same_as(a) for i, a in zip(indices, axes))


def _is_broadcast(indices: List[Any], axes: List[Any]) -> bool:
    place = -1
    for i in indices:
        if isinstance(i, IntImm):
            continue
        here = next((k for k, a in enumerate(axes) if i.same_as(a)), -1)
        if here <= place:
            return False
        place = here
    return True


def _inline(sch: Schedule, wanted: Callable[[Operation], bool]) -> None:
    results = sch.outputs
    for stage in sch.stages:
        op = stage.op
        if op not in results and wanted(op):
            stage.compute_inline()


def AutoInlineElemwise(sch: Schedule) -> None:  # pylint: disable=invalid-name
    """Computes where they are read all stages that read their inputs at their own indices, but the results."""
    _inline(sch, lambda op: _reads_by(op, _is_elementwise))


def AutoInlineBroadcast(sch: Schedule) -> None:  # pylint: disable=invalid-name
    """The same for stages that read their inputs at some of their own indices, in order."""
    _inline(sch, lambda op: _reads_by(op, _is_broadcast))


def AutoInlineInjective(sch: Schedule) -> None:  # pylint: disable=invalid-name
    """Computes where they are read all stages without a reduction, but the results."""
    _inline(sch, is_injective)


AutoInlineElemWise = AutoInlineElemwise
