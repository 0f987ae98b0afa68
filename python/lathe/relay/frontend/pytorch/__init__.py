"""PyTorch's models: relay.frontend.from_pytorch.

exported.py  a program of torch.export, or a TorchScript module, to a module of relay and its parameters
graph.py     the walk over a graph of ATen operators
sizes.py     sizes known only at run time
table.py     the table of operators; rows_*.py its rows, by family
compiler.py  torch.compile's backend; cache.py its compiled graphs, kept between processes
decompose.py what PyTorch is asked to write as other operators first
quantized.py TorchScript modules over quantized tensors, in terms that torch.export knows

PyTorch itself is imported when a model is, never before."""

from . import (
    rows_control,
    rows_index,
    rows_linalg,
    rows_math,
    rows_nn,
    rows_quantized,
    rows_recurrent,
    rows_reduce,
    rows_series,
    rows_shape,
    rows_special,
)
from .exported import from_pytorch
from .table import ROWS

__all__ = [
    "ROWS",
    "from_pytorch",
    "rows_control",
    "rows_index",
    "rows_linalg",
    "rows_math",
    "rows_nn",
    "rows_quantized",
    "rows_recurrent",
    "rows_reduce",
    "rows_series",
    "rows_shape",
    "rows_special",
]
