"""Gradients compared with differences."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import numpy as np

from ... import error, nd
from ..._ir.module import IRModule
from ...testing.targets import enabled_targets
from ..build_module import create_executor
from ..gradient import gradient
from ..transform import InferType
from ..ty import TensorType


def _np_randn_from_type(t: TensorType, scale: float = 1, mean: float = 0) -> np.ndarray:
    """Normally distributed numbers of a tensor type."""
    return (mean + scale * np.random.randn(*t.concrete_shape)).astype(t.dtype)


def _runner(func: Any, kind: str, target: Any, dev: Any) -> Any:
    return create_executor(kind, IRModule.from_expr(func), device=dev, target=target).evaluate()


def _arrays(x: Any) -> Any:
    return [_arrays(v) for v in x] if isinstance(x, (list, tuple)) else x.numpy()


def _nested(grads: Any, count: int) -> Any:
    """The gradients, one for each parameter, of what the gradient function gave behind its result."""
    flat = _arrays(grads)
    return flat[1] if len(flat) == 2 and isinstance(flat[1], list) else flat[-count:]


def check_grad(
    func: Any,
    inputs: Optional[Sequence[Any]] = None,
    test_inputs: Optional[Sequence[Any]] = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    mean: float = 0,
    scale: float = 1,
    mode: str = "higher_order",
    target_devices: Any = None,
    executor_kind: str = "debug",
) -> None:
    """Raises unless the gradient of a function agrees with central differences of the sum of its result.

    inputs are random where none are given; test_inputs are those of them whose gradients are looked at."""
    typed = InferType()(IRModule.from_expr(func))["main"]
    backward = gradient(typed, mode=mode)
    if inputs is None:
        inputs = [_np_randn_from_type(p.checked_type, scale, mean) for p in typed.params]
    inputs = list(inputs)
    if test_inputs is None:
        inputs = [np.asarray(x.numpy() if isinstance(x, nd.NDArray) else x) for x in inputs]
    tested = inputs if test_inputs is None else list(test_inputs)
    if any(not any(t is x for x in inputs) for t in tested):
        raise error.ArgumentError("check_grad: test_inputs are some of the inputs themselves")
    for target, dev in target_devices if target_devices is not None else enabled_targets():
        forward = _runner(typed, executor_kind, target, dev)
        grads = _nested(_runner(backward, executor_kind, target, dev)(*inputs), len(inputs))

        def total(values: Sequence[Any]) -> float:
            out = _arrays(forward(*values))
            return float(sum(np.sum(o) for o in out) if isinstance(out, list) else np.sum(out))

        for k, (x, grad) in enumerate(zip(inputs, grads)):
            if any(t is x for t in tested):
                want = np.zeros(x.shape)
                for place in np.ndindex(*x.shape):
                    sides = []
                    for step in (eps / 2, -eps / 2):
                        moved = x.copy()
                        moved[place] += step
                        sides.append(total(inputs[:k] + [moved] + inputs[k + 1 :]))
                    want[place] = (sides[0] - sides[1]) / eps
                np.testing.assert_allclose(grad, want, rtol=rtol, atol=atol, err_msg=f"gradient of argument {k}")
