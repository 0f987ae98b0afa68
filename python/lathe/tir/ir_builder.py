"""Writing a loop program statement by statement.

>>> ib = ir_builder.create()
>>> A = ib.pointer("float32", name="A")
>>> with ib.for_range(0, n, name="i") as i:
...     A[i] = A[i] + 1.0
>>> stmt = ib.get()"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple

from .. import error
from .._ffi import WORLD, call
from . import op
from .buffer import Buffer, decl_buffer
from .expr import IterVar, PrimExpr, Ramp, Var, as_tuple, convert
from .stmt import BufferStore, Evaluate, Stmt


class WithScope:
    """What a with-statement opens and closes."""

    def __init__(self, enter_value: Any, exit_cb: Callable[[], None]):
        self._enter_value, self._exit_cb = enter_value, exit_cb

    def __enter__(self) -> Any:
        return self._enter_value

    def __exit__(self, exc_type: Any, exc: Any, trace: Any) -> None:
        if exc_type is None:
            self._exit_cb()


class BufferVar:
    """A buffer that reads with A[i] and writes with A[i] = value."""

    def __init__(self, builder: "IRBuilder", buffer: Buffer, content_type: str):
        self._builder, self._buffer, self._content_type = builder, buffer, content_type

    def asobject(self) -> Var:
        """The pointer, for calls."""
        return self._buffer.data

    @property
    def dtype(self) -> str:
        """dtype of an element."""
        return self._content_type

    @property
    def buffer(self) -> Buffer:
        """The buffer behind."""
        return self._buffer

    def _index(self, index: Any) -> List[Any]:
        out = [i.var if isinstance(i, IterVar) else i for i in as_tuple(index)]
        shape = self._buffer.shape
        if len(out) == 1 and len(shape) > 1:  # one index into many dimensions: as if it were flat
            flat, unravelled = convert(out[0]), []
            for extent in reversed(shape[1:]):
                unravelled.append(flat % extent)
                flat = flat // extent
            out = [flat] + unravelled[::-1]
        lanes = call("dtype_fields", self._content_type)[3]
        if lanes > 1:
            base = convert(out[-1]) * lanes
            out[-1] = Ramp(base, 1, lanes)
        return out

    __iter__ = None  # elements are read by their indices: nothing to run through

    def __getitem__(self, index: Any) -> PrimExpr:
        return call("load", WORLD, self._buffer, self._index(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        value = convert(value)
        element = call("dtype_fields", self._content_type)[0]
        if value.dtype != element and not op.is_const(value):
            raise error.TypeError(
                f"store to '{self._buffer.name}': the buffer takes {element}, the value is {value.dtype}; cast it"
            )
        self._builder.emit(BufferStore(self._buffer, value, self._index(index)))


class IRBuilder:
    """Collects statements; the with-statements nest."""

    def __init__(self) -> None:
        self._seq: List[List[Any]] = [[]]
        self.nidx = 0

    # ---- the sequence under way

    def _pop(self) -> Stmt:
        """The innermost sequence as one statement."""
        items = self._seq.pop()
        if not items or callable(items[-1]):
            items.append(Evaluate(0))
        body = items[-1]
        for s in reversed(items[:-1]):
            body = s(body) if callable(s) else call("stmt_seq", WORLD, [s, body])
        return body

    def emit(self, stmt: Any) -> None:
        """Adds a statement, an expression to evaluate, or a function that takes what
        follows as its body."""
        if isinstance(stmt, PrimExpr):
            stmt = Evaluate(stmt)
        if not isinstance(stmt, Stmt) and not callable(stmt):
            raise error.TypeError(f"emit: wants a statement, not a {type(stmt).__name__}")
        self._seq[-1].append(stmt)

    def get(self) -> Stmt:
        """The finished statement."""
        if len(self._seq) != 1:
            raise error.ArgumentError("ir_builder.get: a with-statement of the builder is still open")
        seq = self._pop()
        self._seq = [[]]
        return seq

    # ---- scopes

    def scope_attr(self, node: Any, attr_key: str, value: Any) -> None:
        """An attribute of everything that follows in this scope."""
        var = node.data if isinstance(node, Buffer) else node if isinstance(node, (Var, IterVar)) else None
        if isinstance(node, IterVar) and attr_key in ("thread_extent", "virtual_thread"):
            extent = convert(value)
            self.emit(
                lambda body: call("stmt_for", WORLD, node.var, 0, extent, "thread_binding", node.thread_tag, body, None)
            )
            return
        value = value if isinstance(value, str) else convert(value)
        self.emit(lambda body: call("stmt_attr", WORLD, var, attr_key, value, body))

    def for_range(
        self, begin: Any, end: Any, name: str = "i", dtype: Optional[str] = None, kind: str = "serial"
    ) -> WithScope:
        """for name in [begin, end): gives the loop's variable."""
        if name == "i":
            name = chr(ord(name) + self.nidx) if self.nidx < 3 else name + "_" + str(self.nidx - 3)
            self.nidx += 1
        begin, end = convert(begin), convert(end)
        dtype = dtype or ("int64" if "int64" in (begin.dtype, end.dtype) else "int32")
        var = Var(name, dtype)
        extent = call("simplify", WORLD, end - begin)
        self._seq.append([])

        def close() -> None:
            body = self._pop()
            self.emit(call("stmt_for", WORLD, var, begin, extent, kind, None, body, None))

        return WithScope(var, close)

    def while_loop(self, condition: Any) -> WithScope:
        """Repeats while the condition holds."""
        self._seq.append([])

        def close() -> None:
            body = self._pop()
            self.emit(call("stmt_while", WORLD, convert(condition), body))

        return WithScope(None, close)

    def if_scope(self, cond: Any) -> WithScope:
        """Runs what is inside where the condition holds."""
        self._seq.append([])

        def close() -> None:
            self.emit(call("stmt_if", WORLD, convert(cond), self._pop(), None))

        return WithScope(None, close)

    def else_scope(self) -> WithScope:
        """The other branch of the if_scope just closed."""
        before = self._seq[-1]
        if not before or type(before[-1]).__name__ != "IfThenElse" or before[-1].else_case is not None:
            raise error.ArgumentError("else_scope can only follow an if_scope")
        branch = before.pop()
        self._seq.append([])

        def close() -> None:
            self.emit(call("stmt_if", WORLD, branch.condition, branch.then_case, self._pop()))

        return WithScope(None, close)

    def new_scope(self) -> WithScope:
        """A scope of its own for allocations and attributes."""
        self._seq.append([])
        return WithScope(None, lambda: self.emit(self._pop()))

    # ---- values and memory

    def let(self, var_name: str, value: Any) -> Var:
        """A variable with a value, from here to the end of the scope."""
        value = convert(value)
        var = Var(var_name, value.dtype)
        self.emit(lambda body: call("stmt_let", WORLD, var, value, body))
        return var

    def allocate(
        self, dtype: str, shape: Any, name: str = "buf", axis_separators: Any = None, scope: str = ""
    ) -> BufferVar:
        """Memory that exists from here to the end of the scope."""
        buffer = decl_buffer(shape, dtype, name, scope=scope or "global", axis_separators=axis_separators)
        self.emit(lambda body: call("stmt_alloc", WORLD, buffer, body))
        return BufferVar(self, buffer, dtype)

    def pointer(self, content_type: str, name: str = "ptr", scope: str = "") -> BufferVar:
        """A parameter: memory that the caller hands in."""
        buffer = decl_buffer(_unknown_extent(name), content_type, name, scope=scope)
        return BufferVar(self, buffer, content_type)

    def buffer_ptr(self, buf: Any, shape: Any = None) -> BufferVar:
        """A buffer (or an extern's tensor) to read and write."""
        if not isinstance(buf, Buffer):
            raise error.TypeError(f"buffer_ptr: wants a Buffer, not a {type(buf).__name__}")
        if shape is not None:
            buf = decl_buffer(shape, buf.dtype, buf.name, data=buf.data, scope=buf.scope())
        return BufferVar(self, buf, buf.dtype)

    def likely(self, expr: Any) -> PrimExpr:
        """A condition that usually holds."""
        return op.likely(expr)


def _unknown_extent(name: str) -> Tuple[Any, ...]:
    from .expr import SizeVar

    return (SizeVar(name + "_size", "int32"),)


def create() -> IRBuilder:
    """A new builder."""
    return IRBuilder()
