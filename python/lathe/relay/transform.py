"""Passes over graphs.  Each pass of the compiler's table is a function here that makes it:
relay.transform.FuseOps(fuse_opt_level=2)(mod)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

import numpy as np

from .. import error
from .._ffi import answer, call, callback_scope
from .._ir.module import IRModule
from .._ir.transform import BuiltinPass, FunctionPass, ModulePass, Pass, PassContext, Sequential, function_pass, module_pass
from ..target.virtual_device import CompilationConfig, targets_of
from .adt import Constructor
from .expr import Call, Constant, Function, GlobalVar, Op, Var, const, fold_expr
from .expr_functor import ExprMutator
from .gradient import FirstOrderGradient, gradient
from .op.contrib.register import takers


def _maker(name: str, doc: str, options: Any) -> Callable[..., Pass]:
    names = [o[0] for o in options]

    def make(*args: Any, **kwargs: Any) -> Pass:
        if len(args) > len(names):
            raise error.ArgumentError(f"{name} takes {len(names)} options ({', '.join(names) or 'none'}), {len(args)} were given")
        values: Dict[str, Any] = dict(zip(names, args))
        values.update(kwargs)
        unknown = [k for k in values if k not in names]
        if unknown:
            raise error.ArgumentError(f"{name} has no option '{unknown[0]}'; it has {', '.join(names) or 'none'}")
        return BuiltinPass(name, {k: v for k, v in values.items() if v is not None})

    make.__name__ = make.__qualname__ = name
    make.__doc__ = "\n".join([doc, ""] + [f"{o[0]}: {o[1]}, default {o[2]}. {o[3]}" for o in options]).strip()
    return make


for _name, _doc, _scope, _level, _options in call("pass_table"):
    globals()[_name] = _maker(_name, _doc, _options)


_plan_devices = globals()["PlanDevices"]


def PlanDevices(config: Any = None, targets: Any = None) -> Pass:  # noqa: N802
    """Gives every node a device and copies values between them; the targets as relay.build takes them, or a
    CompilationConfig of them.  None: the current target."""
    given = config if targets is None else targets
    if given is None:
        return _plan_devices()
    listed = given.primitive_targets if isinstance(given, CompilationConfig) else targets_of(given)
    return _plan_devices(";".join(str(t) for t in listed))


class _ExternalPass(BuiltinPass):
    """A pass that is told what external compilers take: rows of its context, with functions that are asked."""

    def __init__(self, name: str, options: Dict[str, Any], add: Callable[[Any, List[Any]], None]):
        super().__init__(name, options)
        self._add = add

    def context(self, ctx: PassContext) -> Any:
        c = super().context(ctx)
        self._kept: List[Any] = []
        self._add(c, self._kept)
        return c


_AskFn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


def _asked(fn: Callable[[Any], Any], kept: List[Any]) -> Any:
    """The address of the C function that asks fn(expr) for a bool."""
    hold: List[Any] = []

    def run(_user: Any, _n: int, args: int, out: int) -> int:
        with callback_scope(args) as (expr, failed):
            try:
                answer(out, bool(fn(expr)), hold)
                return 0
            except BaseException as e:  # pylint: disable=broad-except
                failed(e)
                return -1

    kept.append(_AskFn(run))
    return ctypes.cast(kept[-1], ctypes.c_void_p).value


def MergeComposite(pattern_table: Any) -> Pass:  # noqa: N802
    """What matches a pattern becomes a function with the attribute Composite and the pattern's name.  A table is a list
    of (name, pattern) or (name, pattern, check); check(expr) answers whether a match counts."""
    rows = []
    for row in pattern_table:
        if not isinstance(row, (list, tuple)) or len(row) not in (2, 3) or not isinstance(row[0], str):
            raise error.TypeError(f"MergeComposite: a row of a table is (name, pattern) or (name, pattern, check), not {row!r}")
        rows.append((row[0], row[1].rows(), row[2] if len(row) == 3 else None))

    def add(c: Any, kept: List[Any]) -> None:
        for name, pattern, check in rows:
            call("pass_context_composite", c, name, pattern, _asked(check, kept) if check is not None else None, 0)

    return _ExternalPass("MergeComposite", {}, add)


def AnnotateTarget(  # noqa: N802
    targets: Any, include_non_call_ops: bool = True, *, wanted: Optional[Callable[[str, Any], bool]] = None
) -> Pass:
    """Marks what external compilers take: operators for which lathe.ir.register_op_attr has "target.NAME", and composite
    functions of their patterns.  Of several compilers the first that takes a call has it.  wanted(compiler, call) may
    keep an operator from a compiler that takes it."""
    names = [targets] if isinstance(targets, str) else [str(t) for t in targets]

    def add(c: Any, kept: List[Any]) -> None:
        for name in names:
            for op, fn in takers(name).items():
                asked = fn if wanted is None else lambda e, fn=fn, name=name: fn(e) and wanted(name, e)
                call("pass_context_offload", c, name, op, _asked(asked, kept), 0)

    options = {"targets": ",".join(names), "include_non_call_ops": bool(include_non_call_ops)}
    return _ExternalPass("AnnotateTarget", options, add)


def InferTypeLocal(expr: Any) -> Any:  # noqa: N802
    """The type of an expression, from those of its parts."""
    t = call("node_type", expr)
    if t is None:
        t = call("node_type", BuiltinPass("InferType", {})(IRModule.from_expr(expr))["main"].body)
    return t


def _of_expr(name: str, expr: Any, mod: Any) -> Any:
    """The expression after a pass of the table."""
    holder = IRModule.from_expr(expr) if mod is None else IRModule(dict(mod.functions))
    is_function = isinstance(expr, Function)
    if mod is not None:
        holder["main"] = expr if is_function else Function(call("node_free_vars", expr), expr)
    out = BuiltinPass(name, {})(BuiltinPass("InferType", {})(holder))["main"]
    return out if is_function else out.body


def FoldConstantExpr(expr: Any, mod: Any = None, fold_qnn: bool = False) -> Any:  # noqa: N802
    """The expression with its constant parts computed."""
    return _of_expr("FoldConstant", expr, mod)


def ToANormalFormExpr(expr: Any) -> Any:  # noqa: N802
    """The expression with a let for every intermediate value."""
    return _of_expr("ToANormalForm", expr, None)


def BatchingOps() -> Pass:  # noqa: N802
    """Convolutions, matrix products and batched products that share their data, each kind as one."""
    names = ("CombineParallelConv2D", "CombineParallelDense", "CombineParallelBatchMatmul")
    return Sequential([BuiltinPass(n, {}) for n in names], name="BatchingOps")


def LazyGradientInit() -> Pass:  # noqa: N802
    """Gives the module back: gradients that are zero are not made here in the first place."""
    return module_pass(lambda mod, _ctx: mod, opt_level=0, name="LazyGradientInit")


class _Rewritten(ExprMutator):
    """A graph in which calls of operators become what a function makes of them; None: the call stays."""

    def __init__(self, rule: Callable[[Any], Any]):
        super().__init__()
        self._rule = rule

    def visit_call(self, call: Any) -> Any:  # pylint: disable=redefined-outer-name
        new = super().visit_call(call)
        found = self._rule(new) if isinstance(new, Call) and isinstance(new.op, Op) else None
        return new if found is None else found


def DivToMul() -> Pass:  # noqa: N802
    """Divisions of floats by a constant become multiplications with its reciprocal."""

    def rule(node: Call) -> Any:
        if node.op.name != "divide" or not isinstance(node.args[1], Constant):
            return None
        value = node.args[1].data.numpy()
        if value.dtype.kind != "f":
            return None
        with np.errstate(divide="ignore"):
            return node.args[0] * const((1 / value).astype(value.dtype))

    return function_pass(lambda fn, _mod, _ctx: _Rewritten(rule).visit(fn), opt_level=0, name="DivToMul")


class _Expanded(ExprMutator):
    """Constructors and names of functions that stand alone, as functions that call them."""

    def __init__(self, mod: IRModule, constructors: bool, names: bool):
        super().__init__()
        self._mod, self._constructors, self._names = mod, constructors, names

    def _function(self, value: Any, types: Any, result: Any) -> Function:
        params = [Var(f"eta_expand_param{i}", t) for i, t in enumerate(types)]
        return Function(params, Call(value, params), result)

    def visit_call(self, call: Any) -> Any:  # pylint: disable=redefined-outer-name
        if isinstance(call.op, (Constructor, GlobalVar)):  # what is called stays
            self.memo_map[call.op] = call.op
            done = super().visit_call(call)
            del self.memo_map[call.op]
            return done
        return super().visit_call(call)

    def visit_constructor(self, con: Any) -> Any:
        if not self._constructors:
            return con
        header = con.belong_to
        return self._function(con, con.inputs, header(*call("data_fields", header._header)[1]))

    def visit_global_var(self, gv: Any) -> Any:
        fn = self._mod[gv.name_hint] if self._names else None
        if not isinstance(fn, Function):
            return gv
        return self._function(gv, [p.type_annotation for p in fn.params], fn.ret_type)


def EtaExpand(expand_constructor: bool = False, expand_global_var: bool = False) -> Pass:  # noqa: N802
    """Constructors and functions of the module that are used as values become functions that call them."""

    def run(mod: IRModule, _ctx: Any) -> IRModule:
        out = call("module_copy", mod)
        for gv, fn in mod.functions.items():
            if isinstance(fn, Function):
                out[gv] = _Expanded(mod, expand_constructor, expand_global_var).visit(fn)
        return out

    return module_pass(run, opt_level=1, name="EtaExpand")


def build_config(**kwargs: Any) -> PassContext:
    """A PassContext, by its older name."""
    return PassContext(**kwargs)


__all__ = [
    "AnnotateTarget", "BatchingOps", "BuiltinPass", "DivToMul", "EtaExpand", "FirstOrderGradient", "FoldConstantExpr",
    "FunctionPass", "InferTypeLocal", "LazyGradientInit", "MergeComposite", "ModulePass", "Pass", "PassContext",
    "Sequential", "ToANormalFormExpr", "build_config", "fold_expr", "function_pass", "gradient", "module_pass",
]

if TYPE_CHECKING:  # the passes of the table, as the stubs of tools/stubs.py have them
    from . import _passes
    from ._passes import *  # noqa: F403

    __all__ += _passes.__all__
