"""Frontends that TVM had and Lathe does not: each says the way through a format that Lathe reads."""

from __future__ import annotations

from typing import Any, Callable

from ... import error

WAYS = {
    "from_mxnet": "MXNet is no longer developed; its own mxnet.onnx.export_model writes an ONNX file: from_onnx",
    "from_coreml": "coremltools and onnxmltools write older models as ONNX files: from_onnx",
    "from_caffe": "caffe2onnx writes an ONNX file: from_onnx",
    "from_caffe2": "Caffe2 is part of PyTorch now: from_pytorch, or from_onnx for what it exported",
    "from_oneflow": "oneflow_onnx writes an ONNX file: from_onnx",
}


def _refusing(name: str, way: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise error.UnsupportedError(f"{name} is not supported; {way}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Not supported: {way}."
    return refuse


def __getattr__(name: str) -> Any:
    if name in WAYS:
        return _refusing(name, WAYS[name])
    raise AttributeError(f"module 'lathe.relay.frontend' has no attribute {name!r}")
