"""TorchScript modules as programs of torch.export.

A module without control flow on data is run once on tensors without values, which gives its operators
(branches and loops over sizes and constants are followed then).  One that branches or loops on data
is converted by PyTorch's own converter: its `if` and `while` become torch.cond and torch.while_loop."""

from __future__ import annotations

import warnings
from typing import Any, Optional, Sequence, Tuple

from .... import error
from ...ty import Any_
from . import quantized, table

PREFIX = "module."  # of the parameters of a module that is called by another one


def exported(module: Any, infos: Optional[Sequence[Any]], default_dtype: str) -> Any:
    """The program of a scripted or traced module, or of a plain one."""
    import torch

    if not isinstance(module, torch.nn.Module):
        raise error.TypeError(
            "from_pytorch takes a program of torch.export, a TorchScript module or a torch.nn.Module, "
            f"not a {type(module).__name__}"
        )
    if infos is None:
        raise error.ArgumentError("from_pytorch: a module that is not exported needs input_infos: [(name, shape), …]")
    inputs, dynamic = _examples(infos, default_dtype)
    scripted = isinstance(module, torch.jit.ScriptModule)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if scripted and quantized.is_quantized(module):
            module, scripted = quantized.dequantized(module), False
            module(*inputs)  # so that what is refused says why before torch.export wraps it
        try:
            return torch.export.export(
                _wrapper(module), inputs, dynamic_shapes=(dynamic,) if dynamic else None, strict=False
            )
        except Exception as first:  # noqa: BLE001 (whatever PyTorch raises; the converter is asked next)
            if not scripted:
                raise error.UnsupportedError(
                    f"from_pytorch: torch.export cannot export the module: {_line(first)}"
                ) from first
            try:
                from torch._export.converter import TS2EPConverter

                return TS2EPConverter(module, inputs).convert()
            except Exception as second:  # noqa: BLE001
                raise error.UnsupportedError(
                    "from_pytorch: PyTorch can make no program of this TorchScript module: "
                    f"{_line(first)}; {_line(second)}; "
                    "torch.export of the module that it was scripted from is the way"
                ) from second


def _line(e: Exception) -> str:
    text = str(e).strip().splitlines()
    return f"{type(e).__name__}: {text[0][:200] if text else ''}"


def _wrapper(module: Any) -> Any:
    import torch

    run = module._c._get_method("forward") if isinstance(module, torch.jit.ScriptModule) else module

    class Called(torch.nn.Module):
        """Calls the module: torch.export does not take a ScriptModule itself."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *args: Any) -> Any:
            return run(*args)

    return Called()


def _examples(infos: Sequence[Any], default_dtype: str) -> Tuple[Tuple[Any, ...], Any]:
    """A tensor for each input, and which of its sizes stay open."""
    import torch

    made, dynamic = [], []
    for info in infos:
        if not isinstance(info, (list, tuple)) or len(info) != 2:
            raise error.ArgumentError(
                f"from_pytorch: an input is (name, shape) or (name, (shape, dtype)), not {info!r}"
            )
        shape, dtype = info[1], default_dtype
        if len(shape) == 2 and isinstance(shape[0], (list, tuple)):
            shape, dtype = shape
        name = {"float": "float32", "int": "int32", "double": "float64", "long": "int64"}.get(str(dtype), str(dtype))
        if not hasattr(torch, name):
            table.refuse(f"from_pytorch: dtype '{dtype}' of input '{info[0]}'")
        open_ = [i for i, d in enumerate(shape) if not isinstance(d, int) or d < 0]
        for i in open_:
            if not (shape[i] is None or isinstance(shape[i], (int, Any_))):
                raise error.ArgumentError(
                    f"from_pytorch: size {i} of input '{info[0]}' is {shape[i]!r}; an int or relay.Any() is wanted"
                )
        sizes = [3 + i if i in open_ else d for i, d in enumerate(shape)]
        made.append(torch.zeros(sizes, dtype=getattr(torch, name)))
        dynamic.append({i: torch.export.Dim.AUTO for i in open_} or None)
    return tuple(made), tuple(dynamic) if any(dynamic) else None
