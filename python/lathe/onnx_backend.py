"""The official onnx.backend interface.

>>> import lathe.onnx_backend as backend
>>> rep = backend.prepare(onnx_model)
>>> outputs = rep.run([x])"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

try:
    from onnx.backend.base import Backend, BackendRep, namedtupledict
except ImportError as _e:  # pragma: no cover
    raise ImportError("lathe.onnx_backend needs the onnx package: pip install onnx") from _e

from . import error
from ._ir.transform import PassContext
from .relay.build_module import build
from .relay.frontend.onnx import import_onnx
from .runtime.model import Executor
from .runtime.ndarray import NDArray


def _numpy(value: Any) -> Any:
    if isinstance(value, list):
        return [_numpy(v) for v in value]
    return value.numpy() if isinstance(value, NDArray) else value


class LatheBackendRep(BackendRep):
    """A model that was compiled."""

    def __init__(self, executor: Executor):
        self.executor = executor

    def run(self, inputs: Any, **kwargs: Any) -> Tuple[Any, ...]:
        """The outputs for inputs in the model's order, or by name."""
        names = [p.name for p in self.executor.inputs]
        if isinstance(inputs, dict):
            inputs = [inputs[n] for n in names]
        elif not isinstance(inputs, (list, tuple)):
            inputs = [inputs]
        if len(inputs) != len(names):
            raise error.ArgumentError(
                f"the model has {len(names)} inputs ({', '.join(names)}), {len(inputs)} were given"
            )
        for i, x in enumerate(inputs):
            self.executor.set_input(i, x)
        self.executor.run()
        outputs = [_numpy(self.executor.get_output(i)) for i in range(len(self.executor.outputs))]
        return namedtupledict("Outputs", [p.name for p in self.executor.outputs])(*outputs)


class LatheBackend(Backend):
    """Compiles ONNX models and runs them on the CPU."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """Can the model be imported?"""
        try:
            import_onnx(model)
            return True
        except error.LatheError:
            return False

    @classmethod
    def prepare(
        cls, model: Any, device: str = "CPU", opt_level: int = 3, target: Any = None, **kwargs: Any
    ) -> LatheBackendRep:
        """Compiles the model."""
        if not cls.supports_device(device):
            raise error.UnsupportedError(f"onnx_backend: device '{device}' cannot be used here; CPU can")
        mod, _, _ = import_onnx(model)
        with PassContext(opt_level=opt_level):
            lib = build(mod, target=target)
        return LatheBackendRep(lib["default"]().executor)

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> Tuple[Any, ...]:
        """Compiles the model and runs it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Optional[Sequence[Any]] = None, **kwargs: Any
    ) -> Tuple[Any, ...]:
        """Runs one node, wrapped in a model."""
        import onnx
        from onnx import helper

        arrays: List[np.ndarray] = [np.asarray(x) for x in inputs]
        ins = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(node.input, arrays)
        ]
        outs = [onnx.ValueInfoProto(name=n) for n in node.output]
        if outputs_info is not None:
            outs = [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(t)), s)
                for n, (t, s) in zip(node.output, outputs_info)
            ]
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        graph = helper.make_graph([node], "node", ins, outs)
        return cls.run_model(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), arrays, device, **kwargs
        )

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """The CPU alone."""
        return device.split(":")[0].upper() == "CPU"


is_compatible = LatheBackend.is_compatible
prepare = LatheBackend.prepare
run_model = LatheBackend.run_model
run_node = LatheBackend.run_node
supports_device = LatheBackend.supports_device
