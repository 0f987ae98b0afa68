"""What tvmc hands from step to step: a model, a package of compiled code, the result of a run."""

from __future__ import annotations

import os
import tarfile
import tempfile
from typing import Any, Dict, Optional

import numpy as np

from ... import error
from ...contrib import tar
from ...runtime.module import BenchmarkResult, load_module
from ...runtime.params import load_param_dict, save_param_dict


def _members(path: str) -> Dict[str, bytes]:
    try:
        with tarfile.open(path) as archive:
            files = {m.name: archive.extractfile(m) for m in archive if m.isfile()}
            return {os.path.normpath(name): f.read() for name, f in files.items() if f is not None}
    except (OSError, tarfile.TarError) as e:
        raise error.IOError(f"'{path}' is no package: {e}") from None


def pack(path: str, contents: Dict[str, bytes], *files: str) -> None:
    """Writes an archive of files with these contents, and of the files at these paths."""
    with tempfile.TemporaryDirectory(prefix="lathe-") as folder:
        written = [os.path.join(folder, name) for name in contents]
        for where, content in zip(written, contents.values()):
            with open(where, "wb") as f:
                f.write(content)
        tar.tar(path, [*files, *written])


class TVMCModel:
    """A model and its parameters, from an importer or from what save wrote."""

    def __init__(self, mod: Any = None, params: Optional[Dict[str, Any]] = None, model_path: Optional[str] = None):
        if (mod is None) == (model_path is None):
            raise error.ArgumentError("TVMCModel: give a module and its parameters, or the path of a saved model")
        if model_path is not None:
            from ... import relay

            files = _members(os.fspath(model_path))
            if "mod.relay" not in files:
                raise error.IOError(f"'{model_path}' is no saved model: there is no mod.relay in it")
            mod, params = relay.parse(files["mod.relay"].decode(), str(model_path)), load_param_dict(
                files["mod.params"]
            )
        self.mod, self.params = mod, dict(params or {})

    def save(self, model_path: Any) -> None:
        """Writes the model to a file that load and TVMCModel(model_path=…) read."""
        pack(
            os.fspath(model_path), {"mod.relay": self.mod.astext().encode(), "mod.params": save_param_dict(self.params)}
        )

    def summary(self, file: Any = None) -> None:
        """Prints the model."""
        print(self.mod.astext(False), file=file)


class TVMCPackage:
    """Compiled code: an archive with the library (mod.so, or mod.tar), the graph (mod.json) and parameters
    (mod.params)."""

    def __init__(self, package_path: Any, project_dir: Any = None):
        if project_dir is not None:
            raise error.UnsupportedError("TVMCPackage: projects for microcontrollers are not supported")
        self.package_path = os.fspath(package_path)
        files = _members(self.package_path)
        names = [n for n in ("mod.so", "mod.tar") if n in files]
        if not names:
            raise error.IOError(f"'{self.package_path}' holds no compiled model: there is no mod.so or mod.tar in it")
        self.lib_name, self.type = names[0], "classic"
        self.graph = files.get("mod.json", b"").decode()
        self.params = bytearray(files.get("mod.params", save_param_dict({})))
        self._folder = tempfile.TemporaryDirectory(prefix="lathe-")
        self.lib_path = os.path.join(self._folder.name, self.lib_name)
        with open(self.lib_path, "wb") as f:
            f.write(files[self.lib_name])

    def load(self) -> Any:
        """The library."""
        return load_module(self.lib_path)


class TVMCResult:
    """Outputs of a run by name (output_0, …), and the times of a benchmark."""

    def __init__(self, outputs: Dict[str, np.ndarray], times: Optional[BenchmarkResult] = None):
        self.outputs, self.times = outputs, times

    def format_times(self) -> str:
        """The times as a table."""
        if self.times is None:
            raise error.ArgumentError("there are no times: run with benchmark=True")
        return str(self.times)

    def get_output(self, name: str) -> np.ndarray:
        """An output."""
        if name not in self.outputs:
            raise error.ArgumentError(f"there is no output '{name}'; there are {', '.join(self.outputs)}")
        return self.outputs[name]

    def save(self, output_path: Any) -> None:
        """Writes the outputs to a .npz file."""
        np.savez(output_path, **self.outputs)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return "\n".join(f"{k}: {v.dtype}{list(v.shape)}\n{v}" for k, v in self.outputs.items())
