"""TVM's driver for whole models, in Python and as a program.

>>> from lathe.driver import tvmc
>>> model = tvmc.load("net.onnx")
>>> package = tvmc.compile(model, target="llvm", package_path="net.tar")
>>> result = tvmc.run(package, device="cpu", fill_mode="random")
>>> result.get_output("output_0")

The program is `python -m lathe.driver.tvmc compile|run|tune …` with TVM's options.  Microcontrollers are refused.
"""

from .autotuner import tune_model as tune
from .compiler import compile_model as compile  # noqa: A004
from .frontends import load_model as load
from .model import TVMCModel, TVMCPackage, TVMCResult
from .runner import run_module as run

__all__ = ["TVMCModel", "TVMCPackage", "TVMCResult", "compile", "load", "run", "tune"]
