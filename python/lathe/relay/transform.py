"""Passes over graphs.  Each pass of the compiler's table is a function here that makes it:
relay.transform.FuseOps(fuse_opt_level=2)(mod)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict

from .. import error
from .._ffi import call
from .._ir.transform import BuiltinPass, FunctionPass, ModulePass, Pass, PassContext, Sequential, function_pass, module_pass
from ..target.virtual_device import CompilationConfig, targets_of
from .expr import fold_expr
from .gradient import FirstOrderGradient, gradient


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


def build_config(**kwargs: Any) -> PassContext:
    """A PassContext, by its older name."""
    return PassContext(**kwargs)


__all__ = [
    "BuiltinPass", "FirstOrderGradient", "FunctionPass", "ModulePass", "Pass", "PassContext", "Sequential", "build_config",
    "fold_expr", "function_pass", "gradient", "module_pass",
]

if TYPE_CHECKING:  # the passes of the table, as the stubs of tools/stubs.py have them
    from . import _passes
    from ._passes import *  # noqa: F403

    __all__ += _passes.__all__
