"""relay.build: from a module of graphs to a library that runs."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional, Sequence, Union

import numpy as np

from .. import error
from .._ffi import call
from .._ir.module import GlobalVar, IRModule
from .._ir.transform import BuiltinPass, PassContext
from ..runtime.aot import AotExecutorFactoryModule
from ..runtime.factory import ExecutorFactoryModule, ExecutorInstance, GraphExecutorFactoryModule
from ..runtime.ndarray import NDArray, array, empty
from ..target import Target, resolve
from ..target.virtual_device import targets_of
from . import backend
from .backend.contrib.external import code_generators
from .expr import Function, RelayExpr, as_expr, bind, const, string_numbers, string_texts
from .ty import OptionalType, SequenceType, TensorType, TupleType


def bind_params_by_name(func: Function, params: Dict[str, Any]) -> Function:
    """Parameters of the function that have these names become constants."""
    if not params:
        return func
    values = {p: const(params[p.name_hint]) for p in func.params if p.name_hint in params}
    body = bind(func.body, values)
    return Function([p for p in func.params if p not in values], body, None, None, func.attrs)


def build(
    ir_mod: Union[IRModule, Function],
    target: Any = None,
    target_host: Any = None,
    executor: Any = None,
    runtime: Any = None,
    workspace_memory_pools: Any = None,
    constant_memory_pools: Any = None,
    params: Optional[Dict[str, Any]] = None,
    mod_name: str = "default",
    *,
    entries: Optional[Sequence[str]] = None,
    weights: str = "ready",
    variants: Optional[Sequence[str]] = None,
) -> Any:
    """Compiles a model: the passes of the current PassContext, then kernels for the target.

    executor=Executor("aot", …) makes it a program ahead of time, plain C without a runtime, whose tensors lie in
    workspace_memory_pools (default: one, as large as it takes) and whose weights fit constant_memory_pools.

    Of several targets (a list, or a dictionary by device: {"cpu": "llvm", tvm.cpu(1): "c"}) each part of the model
    goes to the one that relay.annotation.on_device names, the rest to the first CPU.

    entries are functions of the module that callers see (default: main); GraphModule.entry(name) runs them.  weights:
    "ready" for the kernels, or as they were "trained": the file that export_library writes is smaller, and loading it
    brings them into form.

    variants are CPUs of the target (["x86-64-v2", "x86-64-v3"], ["generic", "generic+dotprod"]): the file that
    export_library writes holds code for each, and loading it picks the best that the machine can run."""
    executor, runtime = backend.Executor.of(executor), backend.Runtime.of(runtime)
    aot = None
    if executor is not None and executor.name == "aot":
        aot = _aot_options(executor, workspace_memory_pools)
    elif runtime is not None and runtime.name == "crt":
        raise error.UnsupportedError("relay.build: Runtime('crt') goes with Executor('aot'), a program that needs no runtime")
    elif workspace_memory_pools is not None or constant_memory_pools is not None:
        raise error.UnsupportedError("relay.build: memory pools are for Executor('aot'); storage is planned in one block")
    mod = as_module(ir_mod, params)
    targets = targets_of(target, target_host)
    handles = [t._h for t in targets]
    ctx = PassContext.current()
    c = ctx.for_compiler(handles)
    external = code_generators()
    generators = [[name, ctypes.cast(fn, ctypes.c_void_p).value] for name, fn in external]
    compiled = call("compile", mod, handles, c, None, False, None, list(entries or ()), weights, aot, generators,
                    list(variants or ()))
    del external
    ctx.notes = call("pass_context_notes", c)  # what passes had to say: which nodes stay in float, and why
    said = targets[0] if len(targets) == 1 else targets
    if aot is not None:
        lib = AotExecutorFactoryModule(compiled, said, mod_name or "default")
        _check_constants(lib, constant_memory_pools)
        return lib
    return ExecutorFactoryModule(compiled, None, {}, said, mod_name or "default")


def _aot_options(executor: backend.Executor, pools: Any) -> List[Any]:
    """The options of a program ahead of time, as the compiler takes them."""
    options = [[name, value] for name, value in executor.aot_options().items()]
    if pools is not None:
        options.append(["pools", pools.rows()])
    return options


def _check_constants(lib: AotExecutorFactoryModule, pools: Any) -> None:
    room = pools.size() if pools is not None else None
    needed = lib.report["weights_bytes"] if room is not None else 0
    if room is not None and needed > room:
        names = ", ".join(p.pool_name for p in pools.pools)
        raise error.UnsupportedError(f"the weights take {needed} bytes, {needed - room} more than the pools ({names}) have")


def as_module(ir_mod: Any, params: Optional[Dict[str, Any]] = None) -> IRModule:
    """A module whose main function has these parameters bound."""
    if isinstance(ir_mod, RelayExpr):
        ir_mod = IRModule.from_expr(ir_mod)
    if not isinstance(ir_mod, IRModule):
        raise error.TypeError(f"relay.build takes an IRModule or a function, not a {type(ir_mod).__name__}")
    if params:
        main = ir_mod["main"]
        out = call("module_copy", ir_mod)
        out["main"] = bind_params_by_name(main, params)
        return out
    return ir_mod


def optimize(mod: Any, target: Any = None, params: Optional[Dict[str, Any]] = None) -> Any:
    """The module after the passes that relay.build would run, and the parameters."""
    handles = [t._h for t in targets_of(target)]
    return call("pass_pipeline", as_module(mod, params), PassContext.current().for_compiler(handles)), {}


class _Evaluator:
    """Runs expressions: compiled, or (kind debug) by the interpreter that says what a graph means."""

    def __init__(self, mod: Optional[IRModule], target: Target, kind: str):
        self.mod, self.target, self.kind = mod, target, kind

    def evaluate(self, expr: Any = None, binds: Any = None) -> Any:
        """A Python function that runs a function, or main; of any other expression without free variables, its value."""
        mod = self.mod
        if expr is not None:
            mod = call("module_copy", self.mod) if self.mod is not None else IRModule()
            expr = mod[expr] if isinstance(expr, GlobalVar) else as_expr(expr)
            if binds:
                expr = bind(expr, binds)
            mod["main"] = expr if isinstance(expr, Function) else Function(call("node_free_vars", expr), expr)
        if mod is None:
            raise error.ArgumentError("evaluate: give an expression, or a module to create_executor")
        mod = BuiltinPass("InferType", {})(mod)
        params = mod["main"].params
        names = [p.name_hint for p in params]
        lib = build(mod, self.target) if self.kind != "debug" else None

        def run(*args: Any, **kwargs: Any) -> Any:
            unknown = [k for k in kwargs if k not in names[len(args) :]]
            values: List[Any] = list(args) + [kwargs[n] for n in names[len(args) :] if n in kwargs]
            if len(values) != len(names) or unknown:
                raise error.ArgumentError(f"the function takes {len(names)} arguments ({', '.join(names)}), {len(args) + len(kwargs)} were given")
            if lib is not None:
                return _run_compiled(lib, values)
            keep: List[Any] = []
            given = [_to_value(v, p.type_annotation, keep) for v, p in zip(values, params)]
            return _from_value(call("graph_eval", mod, "main", given))

        return run if names or expr is None or isinstance(expr, Function) else run()


def _run_compiled(lib: ExecutorFactoryModule, values: List[Any]) -> Any:
    ex = lib["default"]().executor
    for i, v in enumerate(values):
        ex.set_input(i, v)
    ex.run()
    outs = [ex.get_output(i) for i in range(len(ex.outputs))]
    return outs[0] if len(outs) == 1 else outs


def _to_value(x: Any, t: Any, keep: List[Any]) -> Any:
    """An argument as the interpreter takes it."""
    if isinstance(t, TupleType):
        return ["tuple", [_to_value(v, f, keep) for v, f in zip(x, t.fields)]]
    if isinstance(t, SequenceType):
        return ["sequence", [_to_value(v, t.element, keep) for v in x]]
    if isinstance(t, OptionalType):
        return ["optional", [] if x is None else [_to_value(x, t.element, keep)]]
    if not isinstance(x, (NDArray, np.ndarray)):
        x = np.asarray(x, dtype=t.dtype if isinstance(t, TensorType) and t.dtype != "string" else None)
    a = array(x)
    if isinstance(t, TensorType) and a.dtype != t.dtype:
        raise error.TypeError(f"an argument is {a.dtype}, the function takes {t}")
    if a.dtype == "string":
        numbers = string_numbers(np.asarray(a))
        keep.append(numbers)
        return ["tensor", numbers.ctypes.data if a.size else None, "string", list(a.shape)]
    keep.append(a)
    return ["tensor", a.data_address if a.size else None, a.dtype, list(a.shape)]


def _from_value(v: Any) -> Any:
    """What the interpreter gave, as arrays and lists of them; None for an optional that is absent."""
    if v[0] == "tensor":
        data = v[1].encode() if isinstance(v[1], str) else v[1]
        if v[2] == "string":
            return NDArray(string_texts(np.frombuffer(data, np.uint64).reshape(tuple(v[3]))), "string")
        out = empty(tuple(v[3]), v[2])
        np.asarray(out._raw)[...] = np.frombuffer(data, dtype=out._raw.dtype).reshape(tuple(v[3]))
        return out
    if v[0] == "optional":
        return _from_value(v[1][0]) if v[1] else None
    return [_from_value(x) for x in v[1]]


def create_executor(kind: str = "debug", mod: Optional[IRModule] = None, device: Any = None, target: Any = None, params: Optional[Dict[str, Any]] = None) -> _Evaluator:
    """Something whose evaluate() gives a Python function.  Kind debug asks the interpreter, which computes every operator
    by its meaning; graph, vm and aot compile."""
    if kind not in ("debug", "graph", "vm", "aot"):
        raise error.ArgumentError(f"there is no executor '{kind}'; there are debug, graph, vm and aot")
    return _Evaluator(as_module(mod, params) if mod is not None else None, resolve(target), kind)


__all__ = [
    "ExecutorFactoryModule", "ExecutorInstance", "GraphExecutorFactoryModule", "as_module", "bind_params_by_name", "build", "create_executor",
    "optimize",
]
