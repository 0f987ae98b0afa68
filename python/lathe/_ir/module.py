"""Modules: named functions."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Union

from .. import error
from .._ffi import WORLD, Object, call, register_object
from .._ffi.core import KIND_NUMBER


class GlobalVar:
    """The name of a function of a module."""

    def __init__(self, name_hint: str):
        self.name_hint = name_hint

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, GlobalVar) and other.name_hint == self.name_hint

    def __hash__(self) -> int:
        return hash(self.name_hint)

    def __repr__(self) -> str:
        return f'I.GlobalVar("{self.name_hint}")'

    __str__ = __repr__


@register_object("module")
class IRModule(Object):
    """A set of named functions."""

    #: str() gives the compact form: what lower(…, simple_mode=True) sets.
    simple_mode = False

    def __init__(self, functions: Optional[Dict[Union[str, GlobalVar], Any]] = None):
        self._adopt(call("module"))
        for name, f in (functions or {}).items():
            self[name] = f

    @staticmethod
    def from_expr(expr: Any, functions: Optional[Dict[Any, Any]] = None) -> "IRModule":
        """A module with one function, named by its global_symbol, or main.  Any graph
        expression becomes a function of its free variables."""
        mod = IRModule(functions)
        if isinstance(expr, Object) and expr._kind == KIND_NUMBER["node"] and not is_graph_function(expr):
            expr = call("node_func", WORLD, call("node_free_vars", expr), expr, None, [])
        mod[(expr.attrs or {}).get("global_symbol", "main")] = expr
        return mod

    # ---- the functions

    def __setitem__(self, name: Any, func: Any) -> None:
        if hasattr(name, "_header"):  # relay.GlobalTypeVar = relay.TypeData
            call("module_add_data", self, name._header)
            return
        graph = func._kind == KIND_NUMBER["node"]
        call("module_set_graph" if graph else "module_set", self, _name(name), func)

    def __getitem__(self, name: Union[str, GlobalVar]) -> Any:
        f = call("module_get", self, _name(name)) or call("module_get_graph", WORLD, self, _name(name))
        if f is None:
            have = ", ".join(call("module_names", self)) or "none"
            raise error.ArgumentError(f"the module has no function '{_name(name)}'; it has {have}")
        return f

    def __contains__(self, name: Union[str, GlobalVar]) -> bool:
        return _name(name) in call("module_names", self)

    def __len__(self) -> int:
        return len(call("module_names", self))

    def update_func(self, var: GlobalVar, func: Any) -> None:
        """Replaces the function under a name."""
        self[var] = func

    def update(self, other: Union["IRModule", Dict[Any, Any]]) -> None:
        """Adds or replaces the functions of another module."""
        for name, f in (other.functions if isinstance(other, IRModule) else other).items():
            self[name] = f

    def get_global_vars(self) -> List[GlobalVar]:
        """The names, in the order they were added."""
        return [GlobalVar(n) for n in call("module_names", self)]

    def get_global_var(self, name: str) -> GlobalVar:
        """The name, if there is such a function."""
        self[name]  # pylint: disable=pointless-statement
        return GlobalVar(name)

    @property
    def functions(self) -> Dict[GlobalVar, Any]:
        """Every function under its name."""
        return {v: self[v] for v in self.get_global_vars()}

    def get_type(self, name: str) -> List[Any]:
        """The name of a data type of the module, then its constructors."""
        found = {call("data_fields", h)[0]: h for h in call("module_data", WORLD, self)}
        if name not in found:
            raise error.ArgumentError(f"the module has no type '{name}'; it has {', '.join(found) or 'none'}")
        header = found[name]
        return [header.func] + [call("node_ctor", WORLD, header, i) for i in range(len(call("data_fields", header)[2]))]

    # ---- text

    def script(self, **_kwargs: Any) -> str:
        """TVMScript; `lathe.script.from_source` reads it back."""
        return call("module_script", self)

    def show(self, style: Optional[str] = None, **_kwargs: Any) -> None:
        """Prints the text, in colour on a terminal."""
        from ..script.highlight import cprint

        cprint(str(self), style)

    def _is_graph(self) -> bool:
        return call("module_has_graph", self)

    def __str__(self) -> str:
        if self._is_graph():
            return call("module_text", self, False)
        return self._compact() if self.simple_mode else self.script()

    def _compact(self) -> str:
        return "\n".join(call("primfunc_compact", f).rstrip("\n") for f in self.functions.values())

    __repr__ = __str__

    def astext(self, show_meta_data: bool = True) -> str:
        """Relay text of a module of graphs (with the values of large constants it can be
        parsed again), else the same as script()."""
        return call("module_text", self, show_meta_data) if self._is_graph() else self.script()

    def __eq__(self, other: Any) -> bool:
        return self.same_as(other)

    def __hash__(self) -> int:
        return Object.__hash__(self)


def is_graph_function(x: Any) -> bool:
    """Is it a function of graphs, relay.Function?"""
    return isinstance(x, Object) and x._kind == KIND_NUMBER["node"] and call("node_kinds")[x._detail] == "func"


def _name(name: Union[str, GlobalVar]) -> str:
    return name.name_hint if isinstance(name, GlobalVar) else name
