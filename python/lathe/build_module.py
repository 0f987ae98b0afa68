"""lower and build: from schedules and functions to loops and to code that runs."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Union

from . import error
from ._ffi import call
from ._ir.module import IRModule
from ._ir.transform import PassContext
from .runtime.module import Module
from .target import Target, resolve
from .te.operation import te_args
from .te.schedule import Schedule as TeSchedule
from .te.tensor import PlaceholderOp, Tensor
from .tir.function import PrimFunc
from .tir.schedule import Schedule as TirSchedule

Input = Union[TeSchedule, TirSchedule, PrimFunc, IRModule]


def _functions(
    inp: Input, args: Optional[Sequence[Any]], name: Optional[str], binds: Optional[Dict[Any, Any]]
) -> List[PrimFunc]:
    """The functions that the input stands for, not lowered yet, under their names."""
    if isinstance(inp, TeSchedule):
        if args is None:
            raise error.ArgumentError(
                "args must be given to build or lower a te schedule: the tensors and variables in the order of the parameters"
            )
        return [call("te_schedule_emit", inp, name or "main", te_args(args, binds))]
    if isinstance(inp, TirSchedule):
        inp = inp.mod
    if isinstance(inp, PrimFunc):
        return [call("primfunc_with", inp, name, None) if name else inp]
    if isinstance(inp, IRModule):
        return [call("primfunc_with", f, var.name_hint, None) for var, f in inp.functions.items()]
    raise error.TypeError(f"build and lower take a schedule, a PrimFunc or an IRModule, not a {type(inp).__name__}")


def _is_computed(arg: Any) -> bool:
    return isinstance(arg, Tensor) and not isinstance(arg.op, PlaceholderOp)


def _config(config: Optional[Dict[str, Any]]) -> List[Any]:
    return [[k, v] for k, v in (config or {}).items()]


def lower(
    inp: Input,
    args: Optional[Sequence[Any]] = None,
    name: str = "main",
    binds: Optional[Dict[Any, Any]] = None,
    simple_mode: bool = False,
    config: Optional[Dict[str, Any]] = None,
) -> IRModule:
    """The loops as they will run: blocks gone, buffers flat, guards moved out of main
    bodies, vector loops as vectors.  With simple_mode the text is the compact form.  Where no result stands among
    the arguments of a te schedule, its outputs follow them."""
    target = resolve(None)
    mod = IRModule()
    if isinstance(inp, TeSchedule) and args is not None and not any(_is_computed(a) for a in args):
        args = list(args) + [op.output(i) for op in inp.outputs for i in range(op.num_outputs)]  # to look at
    for f in _functions(inp, args, name if not isinstance(inp, (IRModule, TirSchedule)) else None, binds):
        mod[f.name] = call("lower", f, target._h, _config(config))
    for p in PassContext.current().lower_passes:
        mod = p(mod)
    mod.simple_mode = simple_mode
    return mod


def build(
    inputs: Union[Input, Dict[Any, IRModule], List[Any]],
    args: Optional[Sequence[Any]] = None,
    target: Union[None, str, Dict[str, Any], Target] = None,
    target_host: Union[None, str, Target] = None,
    runtime: Any = None,
    name: str = "default_function",
    binds: Optional[Dict[Any, Any]] = None,
    config: Optional[Dict[str, Any]] = None,
) -> Module:
    """Compiles.  The result is called like a function: func(a, b, c)."""
    if isinstance(inputs, dict):
        if len(inputs) != 1:
            raise error.UnsupportedError("build: one target at a time; build each module of the dictionary on its own")
        ((target, inputs),) = inputs.items()
    target = resolve(target)
    items = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    functions: List[PrimFunc] = []
    for item in items:
        own = None if isinstance(item, (IRModule, TirSchedule)) else name
        functions += _functions(item, args, own, binds)
    if PassContext.current().lower_passes:
        with target:
            functions = [lower(f, name=f.name, config=config)[f.name] for f in functions]
    built = call("build", functions, target._h, _config(config))
    return Module(built, [f.name for f in functions], target)
