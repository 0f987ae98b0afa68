"""Annotations: where parts of a model are computed, and by whose code."""

from __future__ import annotations

from typing import Any, Sequence

from ...target.virtual_device import device_text
from ..expr import Function, as_expr, call_op


def on_device(body: Any, device: Any, constrain_result: bool = False, constrain_body: bool = True) -> Any:
    """The same value; with constrain_body it is computed on the device, with constrain_result it is wanted there.
    relay.transform.PlanDevices finds what this leaves open, and inserts the copies."""
    where = device_text(device, "on_device")
    return call_op(
        "on_device",
        [as_expr(body)],
        virtual_device=where,
        constrain_result=bool(constrain_result),
        constrain_body=bool(constrain_body),
    )


def device_copy(data: Any, src_device: Any, dst_device: Any) -> Any:
    """The same elements in memory of another device."""
    source, to = device_text(src_device, "device_copy"), device_text(dst_device, "device_copy")
    return call_op("device_copy", [as_expr(data)], src_virtual_device=source, dst_virtual_device=to)


def function_on_device(function: Function, param_devices: Sequence[Any], result_device: Any) -> Function:
    """The function with its parameters and its result on these devices."""
    params = ",".join(device_text(d, "function_on_device") for d in param_devices)
    attrs = {
        "param_virtual_devices": params,
        "result_virtual_device": device_text(result_device, "function_on_device"),
    }
    return function.with_attr(attrs)


def compiler_begin(data: Any, compiler: str) -> Any:
    """The same value, on its way into a region of an external compiler (relay.transform.PartitionGraph)."""
    return call_op("annotation.compiler_begin", [as_expr(data)], compiler=compiler)


def compiler_end(data: Any, compiler: str) -> Any:
    """The same value, which a region of an external compiler gives."""
    return call_op("annotation.compiler_end", [as_expr(data)], compiler=compiler)


__all__ = ["compiler_begin", "compiler_end", "device_copy", "function_on_device", "on_device"]
