"""Making tensors."""

from __future__ import annotations

import dis
import functools
import inspect
import re
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union, overload

from .. import error
from .._ffi import WORLD, call
from ..tir.buffer import Buffer, decl_buffer
from ..tir.expr import ExprOp, IterVar, PrimExpr, Range, SizeVar, Var, as_tuple, convert
from ..tir.function import PrimFunc, interpreter_arg
from ..tir.stmt import Evaluate, Stmt
from .tensor import Operation, Tensor, attrs_argument


def placeholder(shape: Any, dtype: Optional[str] = None, name: str = "placeholder") -> Tensor:
    """An input tensor."""
    return call("te_placeholder", WORLD, name, "float32" if dtype is None else str(dtype), _shape(name, shape))


def _shape(name: str, shape: Any) -> List[Any]:
    return [_size(name, n) for n in as_tuple(shape)]


def _size(name: str, n: Any) -> Any:
    """An extent; 32.0, as 1024 / 32 gives it, is the integer."""
    if isinstance(n, float) and n.is_integer():
        return int(n)
    if isinstance(n, float):
        raise error.TypeError(f"'{name}': the dimension {n} is not a whole number")
    if not isinstance(n, (int, ExprOp)) and not hasattr(n, "__index__"):
        raise error.TypeError(f"'{name}': a dimension is an integer or an expression, not a {type(n).__name__}: {n!r}")
    return n


# ---- compute


class TagScope:
    """The tag of computes made inside `with te.tag_scope(tag)`."""

    _open: List["TagScope"] = []

    def __init__(self, tag: str):
        self.tag = tag

    @staticmethod
    def current_tag() -> str:
        """The tag of the scope that is open, or none."""
        return TagScope._open[-1].tag if TagScope._open else ""

    def __call__(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose computes carry the tag: @te.tag_scope(tag="…")."""

        @functools.wraps(f)
        def tagged(*args: Any, **kwargs: Any) -> Any:
            with self:
                return f(*args, **kwargs)

        return tagged

    def __enter__(self) -> "TagScope":
        if TagScope._open:
            raise error.ArgumentError(
                f"tag_scope: a scope with the tag '{TagScope._open[-1].tag}' is open already; scopes do not nest"
            )
        TagScope._open.append(self)
        return self

    def __exit__(self, *_error: Any) -> None:
        TagScope._open.pop()


def tag_scope(tag: str) -> TagScope:
    """Tags the computes made inside: `with te.tag_scope("injective"): …`."""
    return TagScope(tag)


@overload
def compute(
    shape: Any,
    fcompute: Callable[..., Union[List[Any], Tuple[Any, ...]]],
    name: str = "compute",
    tag: str = "",
    attrs: Optional[Dict[str, Any]] = None,
    varargs_names: Optional[Sequence[str]] = None,
) -> Tuple[Tensor, ...]: ...


@overload
def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Optional[Dict[str, Any]] = None,
    varargs_names: Optional[Sequence[str]] = None,
) -> Tensor: ...


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Optional[Dict[str, Any]] = None,
    varargs_names: Optional[Sequence[str]] = None,
) -> Any:
    """A tensor of this shape whose element at (i, j, …) is fcompute(i, j, …).

    fcompute may return several expressions: then so many tensors are computed
    together, and a tuple of them is returned."""
    dims = _shape(name, shape)
    tag = tag or TagScope.current_tag()
    names = _index_names(fcompute, len(dims), varargs_names)
    axes = [IterVar((0, n), v, IterVar.DataPar) for v, n in zip(names, dims)]
    try:
        body = fcompute(*[a.var for a in axes])
    except NameError as e:
        _explain_recursion(e, name, fcompute)
        raise
    if body is None:
        raise error.TypeError(f"compute '{name}': the function returned None; it must return the element's expression")
    bodies = [_element(name, b) for b in as_tuple(body)]
    op = call("te_compute", WORLD, name, tag, dims, axes, bodies, attrs_argument(attrs or {}))
    return _outputs(op)


def _element(name: str, body: Any) -> PrimExpr:
    if isinstance(body, Tensor) and body.ndim:
        raise error.TypeError(
            f"compute '{name}': the function returned the tensor '{body.name}'; it must return an element of it, {body.name}[i, …]"
        )
    return convert(body)


def _outputs(op: Operation) -> Union[Tensor, Tuple[Tensor, ...]]:
    n = op.num_outputs
    return op.output(0) if n == 1 else tuple(op.output(i) for i in range(n))


def _index_names(f: Callable[..., Any], ndim: int, varargs_names: Optional[Sequence[str]]) -> List[str]:
    """Names of the axes, from the parameters of the function."""
    names: List[str] = []
    varargs = None
    for p in inspect.signature(f).parameters.values():
        if p.kind == p.VAR_POSITIONAL:
            varargs = p.name
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and (p.default is p.empty or len(names) < ndim):
            names.append(p.name)
        elif p.kind == p.KEYWORD_ONLY and p.default is p.empty:
            raise error.ArgumentError("compute: the function takes its indices as positional arguments")
    if varargs is not None and len(names) <= ndim:
        rest = ndim - len(names)
        if varargs_names is not None:
            if len(varargs_names) != rest:
                raise error.ArgumentError(f"compute: {len(varargs_names)} varargs_names for {rest} indices")
            return names + list(varargs_names)
        return names + [f"i{k}" for k in range(len(names), ndim)]
    if len(names) != ndim and not (len(names) == 0 and ndim == 0):
        raise error.ShapeError(f"compute: the function takes {len(names)} indices, the shape has {ndim} dimensions")
    return names


def _explain_recursion(e: NameError, name: str, f: Callable[..., Any]) -> None:
    """A compute whose function names the tensor being made gets a sentence about that."""
    missing = getattr(e, "name", None)
    if missing is None:
        m = re.search(r"'(\w+)'", str(e))
        missing = m.group(1) if m else None
    if missing is None or missing not in (name, _assigned_name(sys._getframe(2))):
        return
    raise error.ArgumentError(
        f"compute '{name}': its function reads '{missing}', the tensor that is being defined: a compute cannot read itself; "
        "use te.scan for a recurrence"
    ) from e


def _assigned_name(frame: Any) -> Optional[str]:
    """The name that the statement under way in a frame assigns to."""
    for ins in dis.get_instructions(frame.f_code):
        if ins.offset > frame.f_lasti and not ins.opname.startswith(("CACHE", "PRECALL", "CALL", "EXTENDED", "COPY")):
            return ins.argval if ins.opname.startswith("STORE_") and isinstance(ins.argval, str) else None
    return None


# ---- scan


def scan(
    init: Union[Tensor, Sequence[Tensor]],
    update: Union[Tensor, Sequence[Tensor]],
    state_placeholder: Union[Tensor, Sequence[Tensor]],
    inputs: Optional[Sequence[Tensor]] = None,
    name: str = "scan",
    tag: str = "",
    attrs: Optional[Dict[str, Any]] = None,
) -> Union[Tensor, Tuple[Tensor, ...]]:
    """A recurrence along the first axis: init gives the first rows, update computes
    row t from rows of state_placeholder before t."""
    lists = [list(as_tuple(x)) for x in (init, update, state_placeholder)]
    for what, items in zip(("init", "update", "state_placeholder"), lists):
        for t in items:
            if not isinstance(t, Tensor):
                raise error.TypeError(f"scan '{name}': {what} wants tensors, not a {type(t).__name__}")
    return _outputs(call("te_scan", WORLD, name, tag, *lists, list(as_tuple(inputs)) if inputs else []))


# ---- extern


def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fcompute: Callable[[List[Buffer], List[Buffer]], Any],
    name: str = "extern",
    dtype: Union[None, str, Sequence[str]] = None,
    in_buffers: Union[None, Buffer, Sequence[Buffer]] = None,
    out_buffers: Union[None, Buffer, Sequence[Buffer]] = None,
    tag: str = "",
    attrs: Optional[Dict[str, Any]] = None,
) -> Union[Tensor, Tuple[Tensor, ...]]:
    """Tensors computed by a statement: fcompute(ins, outs) gets buffers for the
    inputs and outputs, and returns a statement or a call such as tir.call_packed."""
    inputs = list(as_tuple(inputs))
    tag = tag or TagScope.current_tag()
    shapes = _extern_shapes(name, shape)
    for t in inputs:
        if not isinstance(t, Tensor):
            raise error.TypeError(f"extern '{name}': inputs are tensors, not a {type(t).__name__}")
    ins = (
        list(as_tuple(in_buffers))
        if in_buffers is not None
        else [decl_buffer(t.shape, t.dtype, t.op.name) for t in inputs]
    )
    if len(ins) != len(inputs):
        raise error.ArgumentError(f"extern '{name}': {len(ins)} in_buffers for {len(inputs)} inputs")
    if out_buffers is not None:
        outs = list(as_tuple(out_buffers))
    else:
        if shape is None:
            raise error.ArgumentError(f"extern '{name}': give the shapes of the outputs, or out_buffers")
        outs = [decl_buffer(s, t, name) for s, t in zip(shapes, _extern_dtypes(name, inputs, dtype, len(shapes)))]
    body = fcompute(ins, outs)
    if isinstance(body, PrimExpr):
        body = Evaluate(body)
    if not isinstance(body, Stmt):
        raise error.TypeError(
            f"extern '{name}': the function must return a statement or a call, not a {type(body).__name__}"
        )
    return _outputs(call("te_extern", WORLD, name, tag, inputs, ins, outs, body, attrs_argument(attrs or {})))


def _extern_shapes(name: str, shape: Any) -> List[List[Any]]:
    shape = () if shape is None else as_tuple(shape)
    return [_shape(name, s) for s in shape] if shape and isinstance(shape[0], (list, tuple)) else [_shape(name, shape)]


def _extern_dtypes(name: str, inputs: Sequence[Tensor], dtype: Any, n: int) -> List[str]:
    if dtype is None:
        kinds = {t.dtype for t in inputs}
        if len(kinds) != 1:
            raise error.ArgumentError(f"extern '{name}': the inputs do not tell the output's dtype; pass dtype")
        return list(kinds) * n
    dtypes = [str(t) for t in as_tuple(dtype)]
    if len(dtypes) not in (1, n):
        raise error.ArgumentError(f"extern '{name}': {len(dtypes)} dtypes for {n} outputs")
    return dtypes * n if len(dtypes) == 1 else dtypes


# ---- variables and axes


def var(name: str = "tindex", dtype: str = "int32", span: Any = None) -> Var:
    """A variable: a scalar parameter, or a size that shapes mention."""
    return Var(name, dtype)


def size_var(name: str = "size", dtype: str = "int32", span: Any = None) -> SizeVar:
    """A variable that is at least 0."""
    return SizeVar(name, dtype)


def reduce_axis(dom: Any, name: str = "rv", thread_tag: str = "", span: Any = None) -> IterVar:
    """An axis to reduce over; dom is a pair (begin, end)."""
    if isinstance(dom, (list, tuple)):
        dom = tuple(_size(name, n) for n in dom)
    return IterVar(dom, name, IterVar.CommReduce, thread_tag)


def thread_axis(dom: Any = None, tag: str = "", name: str = "", span: Any = None) -> IterVar:
    """A thread axis to bind loops to: thread_axis("threadIdx.x") or
    thread_axis((0, 64), "threadIdx.x")."""
    if isinstance(dom, str):
        tag, dom = dom, None
    if not tag:
        raise error.ArgumentError("thread_axis: a tag such as threadIdx.x is needed")
    return IterVar(dom, name or tag, IterVar.ThreadIndex, tag)


# ---- functions


def create_prim_func(ops: Sequence[Any], index_dtype_override: Optional[str] = None) -> PrimFunc:
    """The function that computes the outputs among ops; ops lists its parameters in
    order: placeholders, variables, results.  index_dtype_override="int64" makes loops, sizes and indices int64."""
    if index_dtype_override not in (None, "int64"):
        raise error.UnsupportedError(
            f"create_prim_func: index_dtype_override is 'int64' or None, not '{index_dtype_override}'"
        )
    return call("te_create_prim_func", "main", te_args(as_tuple(ops), None), index_dtype_override == "int64")


def te_args(args: Sequence[Any], binds: Optional[Dict[Tensor, Buffer]]) -> List[Any]:
    """Parameters as a call takes them: tensors (with the buffer bound to them, if
    any) and variables."""
    out: List[Any] = []
    for a in args:
        if isinstance(a, Tensor):
            buffer = (binds or {}).get(a)
            out.append([a, buffer] if buffer is not None else a)
        elif isinstance(a, Var):
            out.append(a)
        elif isinstance(a, Buffer):
            owner = next((t for t, b in (binds or {}).items() if b.same_as(a)), None)
            if owner is None:
                raise error.ArgumentError(
                    f"the buffer '{a.name}' among the arguments is bound to no tensor; name it in binds"
                )
            out.append([owner, a])
        else:
            raise error.TypeError(f"an argument of a function is a tensor or a variable, not a {type(a).__name__}")
    return out


def evaluate(args: Sequence[Any], values: Sequence[Any]) -> None:
    """Computes the outputs among args naively, straight from the expressions; values
    are arrays (outputs are written) and scalars."""
    if len(args) != len(values):
        raise error.ArgumentError(f"evaluate: {len(values)} values for {len(args)} arguments")
    call("te_evaluate", te_args(args, None), [interpreter_arg(v, a.dtype) for a, v in zip(args, values)])


__all__ = [
    "Range",
    "compute",
    "create_prim_func",
    "evaluate",
    "extern",
    "placeholder",
    "reduce_axis",
    "scan",
    "size_var",
    "te_args",
    "thread_axis",
    "var",
]
