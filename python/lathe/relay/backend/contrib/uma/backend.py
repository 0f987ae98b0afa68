"""The base class of a backend.

>>> class Mine(UMABackend):
...     def __init__(self):
...         super().__init__()
...         self._register_pattern("dense", is_op("nn.dense")(wildcard(), is_constant()))
...         self._register_codegen(fmt="c", generate=c_source)     # of a relay.Function
...
...     @property
...     def target_name(self):
...         return "mine"
>>> backend = Mine()
>>> backend.register()
>>> mod = backend.partition(mod, params)
>>> lib = relay.build(mod, target="llvm")                          # the rest of the model is Lathe's"""

from __future__ import annotations

import abc
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..... import error
from .....runtime.packed import register_func
from ..external import CSource, External, Module
from .api.utils import PassPhase


class UMABackend(abc.ABC):
    """What an accelerator takes and how code is made for it."""

    def __init__(self, merge_compiler_regions: bool = True) -> None:
        self._merge = merge_compiler_regions
        self._attrs: Dict[str, Any] = {}
        self._passes: List[Tuple[PassPhase, Any]] = []
        self._patterns: List[Tuple[Any, ...]] = []
        self._generate: Optional[Callable[[Any], Any]] = None
        self._make: Callable[[Any], External] = CSource

    @property
    @abc.abstractmethod
    def target_name(self) -> str:
        """The name of the compiler: of its functions, and of its patterns before a point."""

    # ---- what a backend's __init__ calls

    def _register_target_attr(self, name: str, default: Any = "") -> None:
        """Something that a user may set: backend.target_attrs[name] = value."""
        if not isinstance(default, (str, int, bool)):
            raise error.TypeError(f"the attribute '{name}' of a target is a text, a number or a bool")
        self._attrs[name] = default

    def _register_relay_pass(self, phase: PassPhase, relay_pass: Any) -> None:
        """A pass over the module."""
        if PassPhase(phase) > PassPhase.POST_PARTITIONING_1:
            raise error.ArgumentError(f"{PassPhase(phase).name} is no phase of passes over modules")
        self._passes.append((PassPhase(phase), relay_pass))

    def _register_pattern(self, name: str, pattern: Any, predicate: Optional[Callable[..., bool]] = None) -> None:
        """What the accelerator computes; earlier patterns win."""
        row = (f"{self.target_name}.{name}", pattern)
        self._patterns.append(row if predicate is None else (*row, predicate))

    def _register_codegen(
        self, fmt: str = "c", *, generate: Optional[Callable[[Any], Any]] = None, **more: Any
    ) -> None:
        """generate(func) gives C source (fmt "c"), or bytes for the plugin of the target's name (fmt "module"); or a
        CSource, Object or Module with constants of its own."""
        forms: Dict[str, Callable[[Any], External]] = {"c": CSource, "module": lambda b: Module(self.target_name, b)}
        if fmt not in forms:
            raise error.UnsupportedError(f"a code generator makes {' or '.join(forms)}, not '{fmt}'")
        if more or generate is None:
            raise error.UnsupportedError(
                "_register_codegen takes generate, a function of the relay.Function; loops are not rewritten here"
            )
        self._generate, self._make = generate, forms[fmt]

    def _register_tir_pass(self, phase: PassPhase, tir_pass: Any) -> None:
        """TVM rewrites the loops of a kernel here."""
        raise error.UnsupportedError(
            "passes over the loops of a kernel are not run here: _register_codegen(generate=…) is handed the function "
            "itself, before it is loops"
        )

    def _register_operator_strategy(self, op: str, strategy: Any, plevel: int = 11) -> None:
        """TVM takes another way to compute an operator here."""
        raise error.UnsupportedError(
            "operators have no strategies of a backend: _register_codegen(generate=…) computes what a pattern takes"
        )

    # ---- what a user calls

    @property
    def target_attrs(self) -> Dict[str, Any]:
        """What a user may set."""
        return self._attrs

    def register(self) -> None:
        """Makes the patterns and the code generator known under the target's name."""
        from ....op.contrib import register_pattern_table

        name = self.target_name
        if self._generate is None:
            raise error.ArgumentError(f"the backend '{name}' has no code generator; see _register_codegen")
        register_pattern_table(name, list(self._patterns))
        register_func("relay.ext." + name, self._generated, override=True)

    def _generated(self, func: Any) -> External:
        made = self._generate(func)  # type: ignore[misc]
        return made if isinstance(made, External) else self._make(made)

    def partition(self, mod: Any, params: Optional[Dict[str, Any]] = None, **choice: Any) -> Any:
        """The module with what the accelerator takes as functions of it; cost and target as partition_for has them."""
        from ....build_module import as_module
        from ....op.contrib import partition_for

        mod = self._run(PassPhase.PRE_PARTITIONING, as_module(mod, params))
        mod = partition_for(self.target_name, mod, merge=self._merge, **choice)
        return self._run(PassPhase.POST_PARTITIONING_1, self._run(PassPhase.POST_PARTITIONING_0, mod))

    def _run(self, phase: PassPhase, mod: Any) -> Any:
        for when, p in self._passes:
            mod = p(mod) if when == phase else mod
        return mod


__all__ = ["UMABackend"]
