"""Targets: the machine that code is made for.

>>> Target("llvm -mcpu=native")
>>> with Target("c"): lathe.build(...)"""

from __future__ import annotations

import threading
from typing import Any, Dict, List, Optional, Union

from . import error
from ._ffi import Object, call, register_object


class TargetKind:
    """llvm, c or cuda."""

    def __init__(self, name: str):
        self.name = name

    def __eq__(self, other: Any) -> bool:
        return (other.name if isinstance(other, TargetKind) else other) == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


@register_object("target")
class _Handle(Object):
    """The target in the C library."""


_handles: Dict[Optional[str], _Handle] = {}
_entered = threading.local()


def _handle(text: Optional[str]) -> _Handle:
    if text not in _handles:
        _handles[text] = call("target", text)
    return _handles[text]


def _text(spec: Union[str, Dict[str, Any]]) -> str:
    """A target's string from its dictionary."""
    if isinstance(spec, str):
        return spec
    options = dict(spec)
    kind = options.pop("kind", None)
    if not kind:
        raise error.ArgumentError("Target: a dictionary needs the key 'kind'")
    out = [str(kind)]
    for key, value in options.items():
        if key == "host":
            continue
        if isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        out.append(f"-{key}={int(value) if isinstance(value, bool) else value}")
    return " ".join(out)


class Target:
    """The machine that code is made for, read from a string as TVM writes it.

    Besides `kind` and `attrs` it has what the compiler knows of the machine as
    attributes: mcpu, mtriple, features, vector_width, l1_bytes, num_cores, …"""

    def __init__(self, target: Union[str, Dict[str, Any], "Target", None] = None, host: Any = None):
        self._h: _Handle
        self._fields: Dict[str, Any]
        self.host: Optional[Target]
        if isinstance(target, Target):
            self._h, self._fields = target._h, target._fields
            self.host = target.host if host is None else Target(host)
            return
        if target is not None and not isinstance(target, (str, dict)):
            raise error.TypeError(f"Target: wants a string or a dictionary, not a {type(target).__name__}")
        self._h = _handle(None if target is None else _text(target))
        self._fields = dict(call("target_fields", self._h))
        if host is None and isinstance(target, dict):
            host = target.get("host")
        self.host = None if host is None else Target(host)

    @property
    def kind(self) -> TargetKind:
        """llvm, c or cuda."""
        return TargetKind(self._fields["kind"])

    @property
    def attrs(self) -> Dict[str, Any]:
        """Everything that is known of the machine."""
        return {k: v for k, v in self._fields.items() if k not in ("kind", "text")}

    @property
    def keys(self) -> List[str]:
        """What schedules look for: cpu or gpu, and the kind."""
        return [self._fields["kind"], "gpu"] if self._fields["kind"] == "cuda" else ["cpu"]

    @property
    def features(self) -> List[str]:
        """CPU features that code may use."""
        return [f[1:] for f in (self._fields["features"] or "").split(",") if f.startswith("+")]

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("_fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(f"target '{fields.get('text', '')}' has no attribute '{name}'")

    def get_target_device_type(self) -> int:
        """The device type that it runs on, as DLPack counts."""
        return 2 if self._fields["kind"] == "cuda" else 1

    def __str__(self) -> str:
        return self._fields["text"]

    def __repr__(self) -> str:
        return f'Target("{self}")'

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Target) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    # ---- with target:

    def __enter__(self) -> "Target":
        stack = _entered.__dict__.setdefault("stack", [])
        stack.append(self)
        return self

    def __exit__(self, exc_type: Any, exc: Any, trace: Any) -> None:
        _entered.stack.pop()

    @staticmethod
    def current(allow_none: bool = True) -> Optional["Target"]:
        """The innermost target of a with-statement."""
        stack = getattr(_entered, "stack", [])
        if not stack and not allow_none:
            raise error.ArgumentError("there is no current target; use `with lathe.target.Target(...):`")
        return stack[-1] if stack else None

    @staticmethod
    def list_kinds() -> List[str]:
        """The kinds of targets there are."""
        return call("target_kinds")


def resolve(target: Union[None, str, Dict[str, Any], Target]) -> Target:
    """The target given, or the current one, or this machine."""
    if target is None:
        return Target.current() or Target()
    return target if isinstance(target, Target) else Target(target)


def llvm(options: str = "") -> Target:
    """The LLVM target with more options."""
    return Target(f"llvm {options}".strip())


def cuda(model: str = "", options: str = "") -> Target:
    """The CUDA target."""
    return Target(f"cuda {options}".strip())


create = Target
