"""Models from files."""

from __future__ import annotations

import os
import tarfile
from typing import Any, Dict, List, Optional

from ... import error
from .model import TVMCModel

#: Formats that are read, with the ends of their files' names.
FORMATS = {
    "onnx": (".onnx",),
    "tflite": (".tflite",),
    "relay": (".relay", ".txt"),
    "pytorch": (".pt2", ".pt", ".pth"),
}
_OTHERS = ("keras", "pb", "paddle", "coreml")


def get_frontend_names() -> List[str]:
    """The formats that can be read."""
    return list(FORMATS)


def guess_frontend(path: str) -> str:
    """The format of a file, by its name."""
    for name, ends in FORMATS.items():
        if path.lower().endswith(ends):
            return name
    raise error.ArgumentError(
        f"cannot tell the format of '{path}' from its name; give model_format, one of {', '.join(FORMATS)}"
    )


def load_model(
    path: Any, model_format: Optional[str] = None, shape_dict: Optional[Dict[str, Any]] = None, **kwargs: Any
) -> TVMCModel:
    """A model from a file: ONNX, TFLite, PyTorch, Relay text, or what TVMCModel.save wrote.  shape_dict gives sizes of
    inputs by name;
    other keywords go to the reader of the format."""
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise error.IOError(f"there is no file '{path}'")
    if model_format is None and tarfile.is_tarfile(path):
        return TVMCModel(model_path=path)
    if model_format in _OTHERS:
        raise error.UnsupportedError(f"models of {model_format} are not read; export the model to ONNX")
    name = model_format or guess_frontend(path)
    if name not in FORMATS:
        raise error.ArgumentError(f"there is no format '{name}'; there are {', '.join(FORMATS)}")
    from ... import relay

    if name == "onnx":
        mod, params = relay.frontend.from_onnx(path, shape=shape_dict, **kwargs)
        return TVMCModel(mod, params)
    if name == "pytorch":
        from ..pytorch import load

        return TVMCModel(*load(path, shape_dict))
    if name == "tflite":
        mod, params = relay.frontend.from_tflite(path, shape_dict, **kwargs)
        return TVMCModel(mod, params)
    if shape_dict or kwargs:
        raise error.UnsupportedError(
            f"shapes are part of Relay text: {', '.join([*(shape_dict or {}), *kwargs])} cannot be given"
        )
    with open(path, encoding="utf-8") as f:
        return TVMCModel(relay.parse(f.read(), path), {})
