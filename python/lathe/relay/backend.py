"""Which executor and runtime relay.build is for, under TVM's names."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .. import error


class _Choice:
    flag_registry_name = ""
    known: Dict[str, bool] = {}  # name -> can be built for

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
    def check(cls, given: Any) -> None:
        """Raises unless relay.build can do what was asked for."""
        choice = given if isinstance(given, _Choice) or given is None else cls(given)
        if choice is not None and (not isinstance(choice, cls) or not cls.known[choice.name]):
            raise error.UnsupportedError(
                f"relay.build: {choice!r} is not supported; models run on the {' or '.join(k for k, v in cls.known.items() if v)} {cls.flag_registry_name}"
            )


class Executor(_Choice):
    """Executor("graph"), Executor("vm"): a model has the one it needs, by whether its sizes are known.  "aot" is refused."""

    flag_registry_name = "executor"
    known = {"graph": True, "vm": True, "aot": False}


class Runtime(_Choice):
    """Runtime("cpp"), which is liblathe_rt; "crt" is refused."""

    flag_registry_name = "runtime"
    known = {"cpp": True, "crt": False}
