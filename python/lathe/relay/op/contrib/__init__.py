"""External compilers: their tables of patterns, and those that come with Lathe.  docs/byoc.md tells how one is brought
in."""

from . import cmsisnn, dnnl, onnxruntime, openblas
from .cmsisnn import partition_for_cmsisnn
from .dnnl import partition_for_dnnl
from .onnxruntime import partition_for_onnxruntime
from .openblas import partition_for_openblas
from .partition import partition_for
from .register import get_pattern_table, register_pattern_table

__all__ = [
    "cmsisnn", "dnnl", "get_pattern_table", "onnxruntime", "openblas", "partition_for", "partition_for_cmsisnn",
    "partition_for_dnnl", "partition_for_onnxruntime", "partition_for_openblas", "register_pattern_table",
]
