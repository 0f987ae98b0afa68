"""Importers of foreign models."""

from typing import Any

from . import absent
from .darknet import from_darknet
from .keras import from_keras
from .onnx import ImportReport, from_onnx
from .paddle import from_paddle
from .pytorch import from_pytorch
from .tensorflow import from_tensorflow
from .tflite import from_tflite

__all__ = [
    "ImportReport", "from_darknet", "from_keras", "from_onnx", "from_paddle", "from_pytorch", "from_tensorflow",
    "from_tflite",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """from_mxnet and others that TVM had: calling one says the way."""
    return getattr(absent, name)
