"""Tensor intrinsics by TVM's names: dot products of bytes.  Those of matrix units are absent."""

from . import arm_cpu, dot_product_common, hexagon, rocm, x86

__all__ = ["arm_cpu", "dot_product_common", "hexagon", "rocm", "x86"]
