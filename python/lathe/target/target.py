"""Targets: the machine that code is made for.

>>> Target("llvm -mcpu=native")
>>> Target("cuda", host="llvm -mcpu=native")
>>> with Target("c"): lathe.build(...)"""

from __future__ import annotations

import json
import threading
from typing import Any, Dict, List, Optional, Tuple, Union

from .. import error
from .._ffi import Object, call, register_object
from . import _tags

TargetSpec = Union[str, Dict[str, Any], "Target"]


class TargetKind:
    """The first word of a target: it names the device that runs the code and the code generator that writes it."""

    def __init__(self, name: str):
        self.name = name

    @property
    def device_type(self) -> int:
        """The device that its code runs on, as DLPack counts."""
        return Target(self.name).get_target_device_type()

    @property
    def options(self) -> Dict[str, str]:
        """What may be said of a target of this kind, without the dash: name and kind of value."""
        return dict(_OPTIONS)

    @staticmethod
    def options_from_name(kind_name: str) -> Dict[str, str]:
        """The options of a kind by its name."""
        return TargetKind(Target(kind_name).kind.name).options

    def __eq__(self, other: Any) -> bool:
        return (other.name if isinstance(other, TargetKind) else other) == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


#: Options in TVM's spelling, with the type of their value.
_OPTIONS = {
    "keys": "Array", "device": "runtime.String", "model": "runtime.String", "libs": "Array", "tag": "runtime.String",
    "mcpu": "runtime.String", "mtriple": "runtime.String", "mattr": "Array", "march": "runtime.String",
    "arch": "runtime.String", "num-cores": "IntImm", "vector-width": "IntImm", "fast-math": "IntImm",
    "max_num_threads": "IntImm", "max_threads_per_block": "IntImm", "max_shared_memory_per_block": "IntImm",
    "thread_warp_size": "IntImm", "max_block_size_x": "IntImm", "max_block_size_y": "IntImm",
    "max_block_size_z": "IntImm", "registers_per_block": "IntImm", "max_function_args": "IntImm",
    "texture_spatial_limit": "IntImm", "l2_cache_size_bytes": "IntImm",
}  # fmt: skip
_SPELLING = {name.replace("_", "-"): name for name in _OPTIONS}


@register_object("target")
class _Handle(Object):
    """The target in the C library."""


_handles: Dict[Tuple[Optional[str], Optional[str]], _Handle] = {}
_entered = threading.local()


def _handle(text: Optional[str], host: Optional["Target"]) -> _Handle:
    key = (text, str(host) if host is not None else None)
    if key not in _handles:
        _handles[key] = call("target", text, host._h if host is not None else None)
    return _handles[key]


def _word(value: Any) -> str:
    """A value as an option of the text."""
    if isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    text = str(int(value) if isinstance(value, bool) else value)
    return f'"{text}"' if any(c.isspace() for c in text) else text


def _text(options: Dict[str, Any]) -> str:
    """A target's string from its dictionary."""
    kind = options.get("kind")
    if not kind:
        raise error.ArgumentError("Target: a dictionary needs the key 'kind' or 'tag'")
    return " ".join([str(kind), *(f"-{k}={_word(v)}" for k, v in options.items() if k not in ("kind", "host"))])


def _read(spec: Union[None, str, Dict[str, Any]]) -> Tuple[Optional[str], Any]:
    """The text of a target and its host, from a string of options, a tag, JSON or a dictionary."""
    if isinstance(spec, str) and spec.lstrip().startswith("{"):
        try:
            spec = json.loads(spec)
        except ValueError as e:
            raise error.ArgumentError(f"Target: '{spec}' begins like JSON and is none: {e}") from None
    if isinstance(spec, str) and _tags.find(spec.strip()) is not None:
        spec = {"tag": spec.strip()}
    if not isinstance(spec, dict):
        return spec, None
    named = spec.get("tag")
    if "kind" not in spec and named:
        known = _tags.find(named)
        if known is None:
            raise error.ArgumentError(f"Target: there is no tag '{named}'; lathe.target.list_tags() has them all")
        spec = {**known, **spec}
    return _text({k: v for k, v in spec.items() if v is not None and (k != "tag" or v)}), spec.get("host")


class Target:
    """The machine that code is made for: the device that runs it, the code generator that writes it, and the host.

    It is read from a string as TVM writes it, from a tag (`nvidia/nvidia-a100`), from JSON or from a dictionary.
    Besides `kind`, `device`, `codegen` and `host` it has what the compiler knows of the machine as attributes: mcpu,
    mtriple, features, vector_width, l1_bytes, num_cores, …"""

    def __init__(self, target: Optional[TargetSpec] = None, host: Optional[TargetSpec] = None):
        self._h: _Handle
        self._fields: Dict[str, Any]
        self._said: Dict[str, str]
        self.host: Optional[Target]
        text: Optional[str]
        if isinstance(target, Target):
            text, own = str(target), target.host
        elif target is None or isinstance(target, (str, dict)):
            text, own = _read(target)
        else:
            raise error.TypeError(f"Target: wants a string or a dictionary, not a {type(target).__name__}")
        host = own if host is None else host
        self.host = None if host is None else Target(host)
        self._h = _handle(text, self.host)
        self._fields = dict(call("target_fields", self._h))
        self._said = {_SPELLING.get(name, name): value for name, value in call("target_options", self._h)}

    @property
    def kind(self) -> TargetKind:
        """llvm, c, cuda, …"""
        return TargetKind(self._fields["kind"])

    @property
    def device(self) -> str:
        """What runs the code: cpu, gpu, microcontroller or accelerator."""
        return str(self._fields["device"])

    @property
    def codegen(self) -> str:
        """What writes the code: llvm, c or cuda; none where nothing does."""
        return str(self._fields["codegen"])

    @property
    def attrs(self) -> Dict[str, Any]:
        """Everything that is known of the machine, and what was said of it."""
        own = {k: v for k, v in self._fields.items() if k not in ("kind", "text", "keys", "host", "features")}
        return {**{k: v for k, v in self._said.items() if k not in ("keys", "tag")}, **own, **self._lists()}

    def _lists(self) -> Dict[str, List[str]]:
        return {name: _words(self._said[name]) for name in ("mattr", "libs") if name in self._said}

    @property
    def keys(self) -> List[str]:
        """What schedules are looked up by: those said, the device's name, then those of the kind."""
        return _words(self._fields["keys"])

    @property
    def features(self) -> List[str]:
        """CPU features that code may use."""
        return [f[1:] for f in (self._fields["features"] or "").split(",") if f.startswith("+")]

    @property
    def mattr(self) -> List[str]:
        """The features as they were said: +dotprod, -sve."""
        return _words(self._said.get("mattr"))

    @property
    def libs(self) -> List[str]:
        """Libraries that were asked for by name."""
        return _words(self._said.get("libs"))

    @property
    def model(self) -> str:
        """The name of the model that was said, or "unknown"."""
        return self._said.get("model", "unknown")

    @property
    def device_name(self) -> str:
        """The name of the device that was said, or ""."""
        return self._said.get("device", "")

    @property
    def tag(self) -> str:
        """The tag that it was made from, or ""."""
        return self._said.get("tag", "")

    def __getattr__(self, name: str) -> Any:
        fields, said = self.__dict__.get("_fields", {}), self.__dict__.get("_said", {})
        if name in fields:
            return fields[name]
        if name in said:
            return int(said[name]) if said[name].isdigit() else said[name]
        raise AttributeError(f"target '{fields.get('text', '')}' has no attribute '{name}'")

    def get_target_device_type(self) -> int:
        """The device type that it runs on, as DLPack counts."""
        return int(self._fields["device_type"])

    def get_kind_attr(self, attr_name: str) -> Any:
        """What is known of its kind: "keys" and "device_type"; None for anything else."""
        return {"keys": Target(self.kind.name).keys, "device_type": self.get_target_device_type()}.get(attr_name)

    def with_host(self, host: Optional[TargetSpec]) -> "Target":
        """The same target driven by that host."""
        return Target(self, host)

    def export(self) -> Dict[str, Any]:
        """A dictionary that Target() reads back."""
        out: Dict[str, Any] = {"kind": self.kind.name, "tag": self.tag, "keys": self.keys}
        for name, value in self._said.items():
            if name not in ("keys", "tag"):
                out[name] = int(value) if _OPTIONS.get(name) == "IntImm" and value.lstrip("-").isdigit() else value
        out.update(self._lists())
        if self.host is not None:
            out["host"] = self.host.export()
        return out

    def __str__(self) -> str:
        return str(self._fields["text"])

    def __repr__(self) -> str:
        return f'Target("{self}")' if self.host is None else f'Target("{self}", host="{self.host}")'

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Target) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

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
        return [row[0] for row in call("target_kinds")]

    # ---- what TVM's programs hand over as a target

    @staticmethod
    def canon_target(target: Optional[TargetSpec]) -> Optional["Target"]:
        """A target from whatever describes one; None stays."""
        return target if target is None or isinstance(target, Target) else Target(target)

    @staticmethod
    def canon_target_and_host(
        target: Optional[TargetSpec], target_host: Optional[TargetSpec] = None
    ) -> Tuple[Optional["Target"], Optional["Target"]]:
        """The target with its host, and the host."""
        if target is None:
            if target_host is not None:
                raise error.ArgumentError("a host without a target says nothing; give the target too")
            return None, None
        t = Target(target, target_host)
        return t, t.host

    @staticmethod
    def canon_multi_target(multi_targets: Any) -> Optional[List["Target"]]:
        """A list of targets from one, a list of them, or a dictionary whose values they are."""
        if multi_targets is None:
            return None
        if isinstance(multi_targets, dict) and "kind" not in multi_targets and "tag" not in multi_targets:
            multi_targets = list(multi_targets.values())
        if not isinstance(multi_targets, (list, tuple)):
            multi_targets = [multi_targets]
        return [t if isinstance(t, Target) else Target(t) for t in multi_targets]

    @staticmethod
    def canon_multi_target_and_host(target: Any, target_host: Optional[TargetSpec] = None) -> List["Target"]:
        """The same, each with the host; the current target for None."""
        targets = Target.canon_multi_target(target if target is not None else Target.current(allow_none=False)) or []
        return [t.with_host(target_host) for t in targets] if target_host is not None else targets

    @staticmethod
    def canon_target_map_and_host(
        target_map: Dict[Any, Any], target_host: Optional[TargetSpec] = None
    ) -> Tuple[Dict["Target", Any], Optional["Target"]]:
        """The keys of a dictionary as targets with their host, and the host."""
        out: Dict[Target, Any] = {}
        for key, value in target_map.items():
            t, target_host = Target.canon_target_and_host(key, target_host)
            assert t is not None
            out[t] = value
        return out, Target.canon_target(target_host)

    @staticmethod
    def target_or_current(target: Optional[TargetSpec]) -> "Target":
        """The target, or the current one; raises where there is neither."""
        found = Target.canon_target(target) or Target.current(allow_none=False)
        assert found is not None
        return found


def _words(text: Optional[str]) -> List[str]:
    return [w for w in (text or "").split(",") if w]


def resolve(target: Optional[TargetSpec]) -> Target:
    """The target given, or the current one, or this machine."""
    if target is None:
        return Target.current() or Target()
    return target if isinstance(target, Target) else Target(target)


# ---- by name, as TVM has them


def _made(kind: str, *options: str) -> Target:
    return Target(" ".join([kind, *(o for o in options if o)]))


def llvm(options: str = "") -> Target:
    """The LLVM target with more options."""
    return _made("llvm", options)


def cuda(model: str = "unknown", arch: Optional[str] = None, options: str = "") -> Target:
    """The CUDA target; an architecture such as sm_90."""
    named = "" if model in ("", "unknown") else f"-model={model}"
    return _made("cuda", named, f"-arch={arch}" if arch else "", options)


def rocm(model: str = "unknown", options: str = "") -> Target:
    """AMD's GPUs."""
    return _made("rocm", f"-model={model}", options)


def opencl(options: str = "") -> Target:
    """OpenCL devices."""
    return _made("opencl", options)


def vulkan(options: str = "") -> Target:
    """Vulkan devices."""
    return _made("vulkan", options)


def metal(options: str = "") -> Target:
    """Apple's GPUs."""
    return _made("metal", options)


def mali(model: str = "unknown", options: str = "") -> Target:
    """ARM's Mali GPUs."""
    return _made("opencl", "-device=mali", f"-model={model}", options)


def bifrost(model: str = "unknown", options: str = "") -> Target:
    """ARM's Mali GPUs of the Bifrost generation."""
    return _made("opencl", "-device=bifrost", f"-model={model}", options)


def adreno(model: str = "unknown", options: str = "", backend: str = "opencl") -> Target:
    """Qualcomm's Adreno GPUs."""
    return _made(backend, "-device=adreno", f"-model={model}", options)


def intel_graphics(model: str = "unknown", options: str = "") -> Target:
    """Intel's graphics."""
    return _made("opencl", "-device=intel_graphics", f"-model={model}", "-thread_warp_size=16", options)


#: Boards and phones by name: triple and processor.
_ARM_BOARDS = {
    "pixel2": "-mtriple=aarch64-linux-android -mcpu=cortex-a73",
    "mate10": "-mtriple=aarch64-linux-android -mcpu=cortex-a73",
    "p20": "-mtriple=aarch64-linux-android -mcpu=cortex-a73",
    "rasp3b": "-mtriple=armv7l-linux-gnueabihf -mattr=+neon",
    "rasp4b": "-mtriple=armv8l-linux-gnueabihf -mattr=+neon",
    "rasp3b64": "-mtriple=aarch64-linux-gnu -mcpu=cortex-a53",
    "rasp4b64": "-mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
    "rk3399": "-mtriple=aarch64-linux-gnu -mcpu=cortex-a72",
    "pynq": "-mtriple=armv7a-linux-eabi -mcpu=cortex-a9",
    "ultra96": "-mtriple=aarch64-linux-gnu -mcpu=cortex-a53",
}


def arm_cpu(model: str = "unknown", options: str = "") -> Target:
    """ARM's processors, by the name of a board or a phone."""
    known = _ARM_BOARDS.get(model)
    triple = known if known is not None else "-mtriple=aarch64-linux-gnu"
    return _made("llvm", "-keys=arm_cpu,cpu", "-device=arm_cpu", f"-model={model}", triple, options)


def rasp(options: str = "") -> Target:
    """A Raspberry Pi 3b."""
    return arm_cpu("rasp3b", options)


#: Microcontrollers by name: their processor.
_MICROS = {
    "host": "", "mps2_an521": "cortex-m33", "mps3_an547": "cortex-m55", "imxrt10xx": "cortex-m7",
    "nrf52840": "cortex-m4", "nrf5340dk": "cortex-m33", "sam3x8e": "cortex-m3",
    "stm32f746xx": "cortex-m7", "stm32h7xx": "cortex-m7", "stm32l4r5zi": "cortex-m4", "stm32u5xx": "cortex-m33",
}  # fmt: skip


def micro(model: str = "unknown", options: str = "") -> Target:
    """Microcontrollers, which are compiled for as C."""
    if model not in _MICROS:
        raise error.ArgumentError(f"there is no microcontroller '{model}'; there are {', '.join(sorted(_MICROS))}")
    cpu = f"-mcpu={_MICROS[model]}" if _MICROS[model] else ""
    return _made("c", "-keys=arm_cpu,cpu" if cpu else "-keys=cpu", cpu, f"-model={model}", options)


create = Target
