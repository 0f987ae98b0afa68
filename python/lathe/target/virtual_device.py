"""Devices of a model for several targets.

The targets of one device type are its devices 0, 1, … in their order: of ["llvm", "c", "cuda"] the first is cpu(0),
the second cpu(1), the third cuda(0)."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .. import error
from .._ffi import call
from ..runtime.device import Device, device as _device
from .target import Target


class VirtualDevice:
    """A device that nodes of a graph can be placed on."""

    def __init__(self, device: Any = None, target: Any = None, memory_scope: str = ""):
        if memory_scope:
            raise error.UnsupportedError(f"VirtualDevice: the memory scope '{memory_scope}' is not supported")
        self.target = Target.canon_target(target)
        if device is None and self.target is not None:
            device = Device(self.target.get_target_device_type(), 0)
        self.device: Optional[Device] = None if device is None else _device(device)
        self.memory_scope = memory_scope

    @property
    def device_type(self) -> int:
        """As DLPack counts; -1 where nothing is said."""
        return self.device.device_type if self.device is not None else -1

    @property
    def virtual_device_id(self) -> int:
        """Its number among the devices of its type; -1 where nothing is said."""
        return self.device.device_id if self.device is not None else -1

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, VirtualDevice) and (self.device, self.target) == (other.device, other.target)

    def __hash__(self) -> int:
        return hash(self.device)

    def __repr__(self) -> str:
        return f"VirtualDevice({self.device}{f', {self.target!r}' if self.target is not None else ''})"


def device_text(device: Any, what: str) -> str:
    """A device as the compiler names it: "cpu(0)"; from a device, a virtual device, or its name."""
    if isinstance(device, VirtualDevice):
        device = device.device
    if isinstance(device, str):
        return device
    if isinstance(device, int):
        device = Device(device, 0)
    if not isinstance(device, Device):
        raise error.TypeError(f"{what}: a device is wanted, such as lathe.cpu(0), not {device!r}")
    return str(device)


def of_text(text: str) -> Device:
    """A device from its name: cpu, cpu(1), cuda:0."""
    kind, number = call("device_parse", text)
    return Device(kind, number)


def _ordered(by_device: Dict[Any, Any]) -> List[Target]:
    """The targets of a dictionary by device, those of one type in the order of its numbers."""
    found = []
    for place, (key, spec) in enumerate(by_device.items()):
        dev = key if isinstance(key, Device) else of_text(device_text(key, "relay.build"))
        t = Target(spec)
        if t.get_target_device_type() != dev.device_type:
            raise error.ArgumentError(f"relay.build: the target '{t}' is given for {dev}, which it is not for")
        found.append((dev, place, t))
    for dev, place, _ in found:
        same = sorted(d.device_id for d, _, _ in found if d.device_type == dev.device_type)
        if same != list(range(len(same))):
            names = ", ".join(str(d) for d, _, _ in found)
            raise error.ArgumentError(f"relay.build: the devices {names} are not numbered from 0")
    first = {d.device_type: p for d, p, _ in reversed(found)}
    return [t for _, _, t in sorted(found, key=lambda f: (first[f[0].device_type], f[0].device_id))]


def targets_of(target: Any, target_host: Any = None) -> List[Target]:
    """The targets of a model, from whatever TVM's relay.build takes: one, a list, or a dictionary by device."""
    if isinstance(target, dict) and "kind" not in target and "tag" not in target:
        targets = _ordered(target)
    elif isinstance(target, (list, tuple)):
        targets = [t if isinstance(t, Target) else Target(t) for t in target]
    else:
        targets = [Target.canon_target(target) or Target.current() or Target()]
    if not targets:
        raise error.ArgumentError("relay.build: there is no target in the list")
    if target_host is None:
        return targets
    host = Target(target_host)
    if len(targets) == 1 and targets[0].device == "cpu" and str(host) not in (str(targets[0]), targets[0].kind.name):
        raise error.UnsupportedError(
            f"relay.build: the target '{targets[0]}' is a CPU and drives itself; a host '{host}' beside it says nothing"
        )
    return [t if t.device == "cpu" else t.with_host(host) for t in targets]


class CompilationConfig:
    """The targets of a model, for passes that want them."""

    def __init__(self, targets: List[Target]):
        self.primitive_targets = targets
        cpus = [t for t in targets if t.device == "cpu"]
        self.host_target = cpus[0] if cpus else next((t.host for t in targets if t.host is not None), None) or Target()
        self.optional_homogeneous_target = targets[0] if len(targets) == 1 else None


def make_compilation_config(_ctxt: Any, target: Any, target_host: Any = None) -> CompilationConfig:
    """The targets as relay.build would read them."""
    return CompilationConfig(targets_of(target, target_host))
