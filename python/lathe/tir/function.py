"""Functions over buffers and scalars."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from .. import error
from .._ffi import WORLD, Object, call, register_object
from .buffer import Buffer, decl_buffer
from .expr import PrimExpr, Range, Var, as_tuple, convert
from .stmt import annotation_value


@register_object("primfunc")
class PrimFunc(Object):
    """A function over buffers and scalars.

    params are variables, or buffers; buffer_map gives the buffer behind a handle."""

    def __init__(
        self,
        params: Sequence[Any],
        body: Any,
        ret_type: Any = None,
        buffer_map: Optional[Dict[Var, Buffer]] = None,
        attrs: Optional[Dict[str, Any]] = None,
        span: Any = None,
    ):
        by_var = buffer_map or {}
        resolved = [by_var.get(p, p) if isinstance(p, Var) else _as_buffer(p) for p in params]
        attrs = dict(attrs or {})
        f = call("primfunc", WORLD, str(annotation_value(attrs.get("global_symbol", "main"))), resolved, body)
        self._adopt(call("primfunc_with", f, None, [[k, v] for k, v in attrs.items()]) if attrs else f)

    def _fields(self) -> List[Any]:
        return call("primfunc_fields", self)

    @property
    def name(self) -> str:
        """Its name."""
        return self._fields()[0]

    @property
    def params(self) -> List[Var]:
        """The parameters: scalars, and the handle behind each buffer."""
        return [v for v, _ in self._fields()[1]]

    @property
    def buffer_map(self) -> Dict[Var, Buffer]:
        """The buffer behind each handle among the parameters."""
        return {v: b for v, b in self._fields()[1] if b is not None}

    @property
    def attrs(self) -> Dict[str, Any]:
        """Its attributes."""
        name, _, pairs, _ = self._fields()
        out = {k: annotation_value(v) for k, v in pairs}
        out.setdefault("global_symbol", name)
        return out

    @property
    def body(self) -> Any:
        """The statement it runs."""
        return self._fields()[3]

    def with_attr(self, attr_key_or_dict: Any, attr_value: Any = None) -> "PrimFunc":
        """A copy with attributes set; "global_symbol" is its name."""
        new = attr_key_or_dict if isinstance(attr_key_or_dict, dict) else {attr_key_or_dict: attr_value}
        name = new.get("global_symbol")
        return call("primfunc_with", self, name, [[k, v] for k, v in new.items()])

    def with_body(self, new_body: Any, span: Any = None) -> "PrimFunc":
        """A copy that runs another statement."""
        name, params, pairs, _ = self._fields()
        f = call("primfunc", WORLD, name, [v if b is None else b for v, b in params], new_body)
        return call("primfunc_with", f, name, [[k, v] for k, v in pairs])

    @property
    def __name__(self) -> str:
        """The name of the Python function it was written as."""
        return str(self._fields()[0])

    def without_attr(self, attr_key: str) -> "PrimFunc":
        """A copy without an attribute."""
        return call("primfunc_with", self, None, [[attr_key, None]])

    def specialize(self, param_map: Dict[Var, Any]) -> "PrimFunc":
        """A copy for fixed sizes: a scalar parameter gets a value and goes away, or a buffer
        parameter gets the shape of the buffer given, which tells the sizes in it."""
        variables: List[Var] = []
        values: List[PrimExpr] = []
        buffers = self.buffer_map

        def give(var: Var, value: Any) -> None:
            for v, old in zip(variables, values):
                if v.same_as(var) and str(old) != str(value):
                    raise error.ArgumentError(f"specialize: '{var.name}' would be both {old} and {value}")
            variables.append(var)
            values.append(convert(value))

        for param, value in param_map.items():
            if not isinstance(value, Buffer):
                if param not in self.params or param in buffers:
                    raise error.ArgumentError(f"specialize: '{param.name}' is no scalar parameter of '{self.name}'")
                give(param, value)
                continue
            old = buffers.get(param)
            if old is None:
                raise error.ArgumentError(f"specialize: '{param.name}' is no buffer parameter of '{self.name}'")
            if len(old.shape) != len(value.shape) or old.dtype != value.dtype:
                raise error.ShapeError(
                    f"specialize: buffer '{old.name}' has {len(old.shape)} dimensions of {old.dtype}, the one given "
                    f"{len(value.shape)} of {value.dtype}"
                )
            for a, b in zip(old.shape, value.shape):
                if isinstance(a, Var):
                    give(a, b)
                elif str(a) != str(b):
                    raise error.ShapeError(f"specialize: buffer '{old.name}' has size {a}, the one given {b}")
        return call("primfunc_specialize", self, variables, values)

    def script(self, **_kwargs: Any) -> str:
        """TVMScript; `lathe.script.from_source` reads it back."""
        return call("primfunc_script", self)

    def show(self, style: Optional[str] = None, **_kwargs: Any) -> None:
        """Prints the script, in colour on a terminal."""
        from ..script.highlight import cprint

        cprint(self.script(), style)

    def __str__(self) -> str:
        return self.script()

    __repr__ = __str__

    def check(self) -> None:
        """Raises if it is not well formed, or provably reads or writes out of bounds."""
        call("primfunc_check", self)

    def interpret(self, *args: Any) -> None:
        """Runs it naively on arrays and scalars, checking every access: what it means."""
        call("primfunc_interpret", self, self._interpreter_args(args))

    def _interpreter_args(self, args: Sequence[Any]) -> List[Any]:
        rows = self._fields()[1]
        if len(args) != len(rows):
            raise error.ArgumentError(f"{self.name}: takes {len(rows)} arguments, {len(args)} were given")
        return [interpreter_arg(a, b.dtype if b is not None else v.dtype) for a, (v, b) in zip(args, rows)]


def interpreter_arg(a: Any, dtype: str) -> List[Any]:
    """An array or a scalar as the interpreters take it."""
    from ..runtime.ndarray import NDArray, as_ndarray

    if isinstance(a, (int, float)) or (
        hasattr(a, "tolist") and getattr(a, "ndim", 1) == 0 and not isinstance(a, NDArray)
    ):
        return [a, dtype]
    t = as_ndarray(a)
    return [t.data_address, t.dtype, list(t.shape), t.element_strides()]


def _as_buffer(p: Any) -> Any:
    """A tensor stands for a buffer of its shape."""
    if isinstance(p, Buffer):
        return p
    if hasattr(p, "op") and hasattr(p, "shape"):
        return decl_buffer(p.shape, p.dtype, p.name)
    raise error.TypeError(f"a parameter is a Var or a Buffer, not a {type(p).__name__}")


@register_object("tensorintrin")
class TensorIntrin(Object):
    """What an instruction computes (desc) and how it is emitted (impl)."""

    _registry: Dict[str, "TensorIntrin"] = {}

    def __init__(self, desc: PrimFunc, impl: PrimFunc, name: str = "tensor_intrin"):
        self._adopt(call("tensor_intrin", name, desc, impl))

    def _fields(self) -> List[Any]:
        return call("tensor_intrin_fields", self)

    name = property(lambda self: self._fields()[0], doc="its name")
    desc = property(lambda self: self._fields()[1], doc="what it computes")
    impl = property(lambda self: self._fields()[2], doc="what is emitted")

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> None:
        """Makes an intrinsic known by name, for `Schedule.tensorize`."""
        if name in TensorIntrin._registry and not override:
            raise error.ArgumentError(
                f"tensor intrinsic '{name}' is registered already; pass override=True to replace it"
            )
        TensorIntrin._registry[name] = TensorIntrin(desc, impl, name)

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> Optional["TensorIntrin"]:
        """The intrinsic registered under a name."""
        found = TensorIntrin._registry.get(name)
        if found is None and not allow_missing:
            known = ", ".join(sorted(TensorIntrin._registry)) or "none"
            raise error.ArgumentError(f"there is no tensor intrinsic '{name}'; registered are {known}")
        return found


class IndexMap:
    """A map of indices: new indices as expressions of the old ones."""

    AXIS_SEPARATOR = "axis_separator"

    def __init__(
        self, initial_indices: Sequence[Var], final_indices: Sequence[PrimExpr], inverse_index_map: Any = None
    ):
        self.initial_indices, self.final_indices = list(initial_indices), [convert(e) for e in final_indices]
        self._separators: List[int] = []

    @staticmethod
    def from_func(mapping_function: Callable[..., Any], ndim: Optional[int] = None, inverse_index_map: Any = None, *,
                  index_dtype: str = "int32") -> "IndexMap":
        """The map that a Python function describes: lambda i, j: (i // 4, j, i % 4)."""
        found, separators = IndexMap.from_func_with_separators(mapping_function, ndim, index_dtype=index_dtype)
        if separators:
            raise error.ArgumentError("this index map has axis separators, which from_func_with_separators gives too")
        return found

    @staticmethod
    def from_func_with_separators(mapping_function: Callable[..., Any], ndim: Optional[int] = None,
                                  inverse_index_map: Any = None, *, index_dtype: str = "int32"
                                  ) -> Tuple["IndexMap", List[int]]:
        """The map that a Python function describes, and the places of the axis separators among its results."""
        variables, given = _trace(mapping_function, ndim, index_dtype)
        results: List[Any] = []
        separators: List[int] = []
        for r in given:
            if isinstance(r, str) and r == IndexMap.AXIS_SEPARATOR:
                separators.append(len(results))
            else:
                results.append(r)
        found = IndexMap(variables, results)
        found._separators = separators
        return found, separators

    def map_indices(self, indices: Sequence[Any]) -> List[PrimExpr]:
        """The new indices of these old ones, simplified."""
        out = [call("substitute", WORLD, e, self.initial_indices, list(indices)) for e in self.final_indices]
        return [call("simplify", WORLD, e) for e in out]

    def _facts(self, ranges: Sequence[Any]) -> List[Any]:
        """The old indices and where they lie: ranges, or sizes from 0 on."""
        if len(ranges) != len(self.initial_indices):
            raise error.ArgumentError(f"the index map takes {len(self.initial_indices)} indices, not {len(ranges)}")
        rows = [(r.min, r.extent) if isinstance(r, Range) else (0, r) for r in ranges]
        dtypes = [v.dtype for v in self.initial_indices]
        return [
            self.initial_indices,
            *([convert(row[k]).astype(t) for row, t in zip(rows, dtypes)] for k in (0, 1)),
        ]

    def map_ranges(self, ranges: Sequence[Range]) -> List[Range]:
        """Where the new indices lie while the old ones run over ranges."""
        facts = self._facts(ranges)
        out = []
        for e in self.final_indices:
            ends = call("relax", WORLD, e, self.initial_indices, *facts)
            if ends is None:
                raise error.ArgumentError(f"where '{e}' lies is not known")
            extent = call("simplify", WORLD, ends[1] - ends[0] + 1)
            out.append(Range.from_min_extent(call("simplify", WORLD, ends[0]), extent))
        return out

    def map_shape(self, shape: Sequence[Any]) -> List[PrimExpr]:
        """The shape of the new layout of a buffer of this shape."""
        return [call("simplify", WORLD, r.min + r.extent) for r in self.map_ranges([Range(0, s) for s in shape])]

    def inverse(self, shape: Sequence[Any]) -> "IndexMap":
        """The old indices by the new ones; an ArgumentError where two share a place or a place is left free."""
        facts = self._facts(shape)
        found, why = call("itermap", WORLD, self.final_indices, *facts, convert(True), 0, *facts)
        if found is None:
            raise error.ArgumentError(f"the index map has no inverse: {why}")
        outputs = [Var(f"axis{i}", e.dtype) for i, e in enumerate(self.final_indices)]
        return IndexMap(outputs, call("itermap_solve", WORLD, self.final_indices, *facts, outputs, *facts))

    def is_equivalent_to(self, other_map: "IndexMap") -> bool:
        """Do both give the same indices?"""
        if len(self.initial_indices) != len(other_map.initial_indices):
            return False
        theirs = other_map.map_indices(self.initial_indices)
        if len(theirs) != len(self.final_indices):
            return False
        return all(call("prove", WORLD, a.equal(b)) for a, b in zip(self.final_indices, theirs))

    def as_argument(self) -> List[Any]:
        """As the compiler takes it."""
        out: List[Any] = list(self.final_indices)
        for at in reversed(self._separators):
            out.insert(at, IndexMap.AXIS_SEPARATOR)
        return ["indexmap", self.initial_indices, out]

    def __repr__(self) -> str:
        names = ", ".join(v.name for v in self.initial_indices)
        return f"IndexMap(lambda {names}: ({', '.join(map(str, self.final_indices))}))"


def _trace(f: Callable[..., Any], ndim: Optional[int], dtype: str) -> Tuple[List[Var], List[Any]]:
    names: List[str] = []
    last: List[str] = []  # lambda *indices, n: n is the last index
    varargs: Optional[str] = None
    for p in inspect.signature(f).parameters.values():
        if p.kind == p.VAR_POSITIONAL:
            varargs = p.name
        elif p.kind == p.KEYWORD_ONLY and varargs is not None:
            last.append(p.name)
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            names.append(p.name)
        else:
            raise error.ArgumentError("an index map takes positional indices, and named ones after *args")
    if varargs is not None:
        if ndim is None:
            raise error.ArgumentError("an index map with *args needs ndim")
        names += [f"{varargs}_{i}" for i in range(ndim - len(names) - len(last))] + last
    if ndim is not None and len(names) != ndim:
        raise error.ArgumentError(f"the index map takes {len(names)} indices, the buffer has {ndim}")
    variables = [Var(n, dtype) for n in names]
    split = len(variables) - len(last)
    results = list(as_tuple(f(*variables[:split], **dict(zip(last, variables[split:])))))
    return variables, results
