"""The dot product of AMD's GPUs."""

from .dot_product_common import AMDGPU_SDOT4_INTRIN

__all__ = ["AMDGPU_SDOT4_INTRIN"]
