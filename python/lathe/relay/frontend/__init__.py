"""Importers of foreign models."""

from .onnx import ImportReport, from_onnx

__all__ = ["ImportReport", "from_onnx"]
