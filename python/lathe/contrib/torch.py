"""Lathe as a backend of torch.compile.

    import lathe.contrib.torch
    fast = torch.compile(model.eval(), backend="lathe")

Where Lathe is installed as a wheel, PyTorch finds the backend by itself, and the import is not needed."""

from __future__ import annotations

from typing import Any

from ..relay.frontend.pytorch.compiler import backend
from ..relay.frontend.pytorch.exported import check_version


def optimize_torch(func: Any, example_inputs: Any = None, target: Any = None, **options: Any) -> Any:
    """TVM's name: the module or function compiled for a target when it is first called."""
    import torch

    settings = dict(options)
    if target is not None:
        settings["target"] = target
    return torch.compile(func, backend=backend, options=settings)


def _register() -> None:
    check_version()
    from torch._dynamo import list_backends, register_backend

    if "lathe" not in list_backends(()):
        register_backend(backend, name="lathe")


_register()

__all__ = ["backend", "optimize_torch"]
