"""Which executor and runtime relay.build is for, under TVM's names."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ... import error


class _Choice:
    flag_registry_name = ""
    known: Dict[str, Dict[str, Any]] = {}  # name -> its options, each with its default

    def __init__(self, name: str, options: Optional[Dict[str, Any]] = None):
        if name not in self.known:
            raise error.ArgumentError(
                f"there is no {self.flag_registry_name} '{name}'; there are {', '.join(self.known)}"
            )
        self.name, self.options = name, dict(options or {})

    def __getitem__(self, name: str) -> Any:
        return self.options[name]

    def __contains__(self, name: str) -> bool:
        return name in self.options

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and (self.name, self.options) == (other.name, other.options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.options!r})"

    @classmethod
    def of(cls, given: Any) -> Any:
        """What was asked for, by name or as an object; None stays None."""
        choice = given if isinstance(given, _Choice) or given is None else cls(given)
        if choice is not None and not isinstance(choice, cls):
            raise error.UnsupportedError(
                f"relay.build: {choice!r} is no {cls.flag_registry_name}; there are {', '.join(cls.known)}"
            )
        return choice


class Executor(_Choice):
    """Executor("graph"), Executor("vm"): a model has the one it needs, by whether its sizes are known.

    Executor("aot", {"interface-api": "c", "unpacked-api": True}): a program ahead of time, plain C without a runtime.
    interface-api is "packed" (the default) or "c": what tvmgen_NAME_run takes; or "plain": there is none beside
    NAME_run.  Kernels are always called directly, so unpacked-api says nothing of them; as in TVM, the C interface goes with True.  Beyond TVM's,
    "workspace-io": True puts inputs and outputs into the workspace."""

    flag_registry_name = "executor"
    known = {
        "graph": {"link-params": False},
        "vm": {},
        "aot": {"interface-api": "packed", "unpacked-api": False, "link-params": True, "workspace-byte-alignment": 8,
                "constant-byte-alignment": 8, "workspace-io": False},
    }  # fmt: skip

    def aot_options(self) -> Dict[str, Any]:
        """The options of a program ahead of time, checked, as the compiler takes them."""
        rows = self.known["aot"]
        for name in self.options:
            if name not in rows:
                raise error.ArgumentError(f"{self!r}: there is no option '{name}'; there are {', '.join(rows)}")
        given = {**rows, **self.options}
        interface = given["interface-api"]
        if interface not in ("c", "packed", "plain"):
            raise error.ArgumentError(f"{self!r}: interface-api is 'c', 'packed' or 'plain', not '{interface}'")
        if interface == "c" and not given["unpacked-api"]:
            raise error.ArgumentError(f"{self!r}: the C interface goes with unpacked-api=True")
        if not given["link-params"]:
            raise error.UnsupportedError(f"{self!r}: weights are part of the program; link-params cannot be False")
        io = "workspace" if given["workspace-io"] else "caller"
        return {"interface": "plain" if io == "workspace" else interface, "io": io}


class Runtime(_Choice):
    """Runtime("cpp"), which is liblathe_rt.  Runtime("crt") goes with Executor("aot"), which needs none."""

    flag_registry_name = "runtime"
    known: Dict[str, Dict[str, Any]] = {"cpp": {}, "crt": {}}
