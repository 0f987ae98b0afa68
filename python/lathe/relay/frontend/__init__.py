"""Importers of foreign models."""

from .onnx import ImportReport, from_onnx
from .pytorch import from_pytorch
from .tflite import from_tflite

__all__ = ["ImportReport", "from_onnx", "from_pytorch", "from_tflite"]
