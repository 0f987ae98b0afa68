"""Inception, version 3 (Szegedy et al., 2015): branches of convolutions of several sizes side by side, large kernels
as rows and columns."""

from __future__ import annotations

from typing import Any, Sequence, Tuple

from .. import expr as _expr
from ..expr import Function, call_op
from ..op.functions import dropout
from . import layers
from .init import create_workload, deep

# A step of a branch: channels, kernel (height, width), stride; padding keeps the size where the stride is 1.
Step = Tuple[int, Tuple[int, int], int]
_ONE, _ROW, _COLUMN, _THREE, _FIVE = (1, 1), (1, 7), (7, 1), (3, 3), (5, 5)


def _conv(x: Any, step: Step, name: str, same: bool = True) -> Any:
    channels, kernel, stride = step
    padding = tuple(k // 2 for k in kernel) if same and stride == 1 else (0, 0)
    x = layers.conv2d(
        x, channels=channels, kernel_size=kernel, strides=(stride, stride), padding=padding, name=f"{name}_conv"
    )
    return call_op("nn.relu", [layers.batch_norm_infer(x, epsilon=1e-3, name=f"{name}_bn")])


def _branch(x: Any, steps: Sequence[Step], name: str) -> Any:
    for i, step in enumerate(steps):
        x = _conv(x, step, f"{name}_{i}")
    return x


def _pool(x: Any, kind: str) -> Any:
    """The size stays under an average, and is halved under a maximum."""
    if kind == "avg":
        return call_op("nn.avg_pool2d", [x], pool_size=(3, 3), strides=(1, 1), padding=(1, 1), count_include_pad=True)
    return call_op("nn.max_pool2d", [x], pool_size=(3, 3), strides=(2, 2))


def _join(parts: Sequence[Any]) -> Any:
    return call_op("concatenate", [_expr.Tuple(parts)], axis=1)


def _module(x: Any, branches: Sequence[Sequence[Step]], pooled: int, name: str) -> Any:
    """Branches, and one over an average pool with so many channels; 0: over a maximum pool, which is left as it is."""
    parts = [_branch(x, steps, f"{name}_branch{i}") for i, steps in enumerate(branches)]
    pool = _pool(x, "avg" if pooled else "max")
    return _join(parts + [_branch(pool, [(pooled, _ONE, 1)] if pooled else [], f"{name}_pool")])


def _wide(x: Any, name: str) -> Any:
    """The last modules: branches that end in a row and a column side by side."""
    parts = [_branch(x, [(320, _ONE, 1)], f"{name}_branch0")]
    for i, steps in enumerate(([(384, _ONE, 1)], [(448, _ONE, 1), (384, _THREE, 1)]), 1):
        stem = _branch(x, steps, f"{name}_branch{i}")
        parts += [
            _conv(stem, (384, (1, 3), 1), f"{name}_branch{i}_row"),
            _conv(stem, (384, (3, 1), 1), f"{name}_branch{i}_column"),
        ]
    return _join(parts + [_branch(_pool(x, "avg"), [(192, _ONE, 1)], f"{name}_pool")])


def get_net(batch_size: int, num_classes: int, image_shape: Tuple[int, ...], dtype: str) -> Function:
    """The network; images are at least 75 by 75."""
    x = _expr.var("data", shape=(batch_size,) + tuple(image_shape), dtype=dtype)
    x = _conv(x, (32, _THREE, 2), "conv")
    x = _conv(x, (32, _THREE, 1), "conv_1", same=False)
    x = _pool(_conv(x, (64, _THREE, 1), "conv_2"), "max")
    x = _conv(x, (80, _ONE, 1), "conv_3")
    x = _pool(_conv(x, (192, _THREE, 1), "conv_4", same=False), "max")
    for i, pooled in enumerate((32, 64, 64)):
        double = [(64, _ONE, 1), (96, _THREE, 1), (96, _THREE, 1)]
        x = _module(x, [[(64, _ONE, 1)], [(48, _ONE, 1), (64, _FIVE, 1)], double], pooled, f"mixed_{i}")
    x = _module(x, [[(384, _THREE, 2)], [(64, _ONE, 1), (96, _THREE, 1), (96, _THREE, 2)]], 0, "mixed_3")
    for i, n in enumerate((128, 160, 160, 192), 4):
        single = [(n, _ONE, 1), (n, _ROW, 1), (192, _COLUMN, 1)]
        double = [(n, _ONE, 1), (n, _COLUMN, 1), (n, _ROW, 1), (n, _COLUMN, 1), (192, _ROW, 1)]
        x = _module(x, [[(192, _ONE, 1)], single, double], 192, f"mixed_{i}")
    last = [(192, _ONE, 1), (192, _ROW, 1), (192, _COLUMN, 1), (192, _THREE, 2)]
    x = _module(x, [[(192, _ONE, 1), (320, _THREE, 2)], last], 0, "mixed_8")
    x = _wide(_wide(x, "mixed_9"), "mixed_10")
    x = dropout(call_op("nn.batch_flatten", [call_op("nn.global_avg_pool2d", [x])]), rate=0.5)
    return layers.function(call_op("nn.softmax", [layers.dense_add_bias(x, units=num_classes, name="fc1")]))


def get_workload(
    batch_size: int = 1, num_classes: int = 1000, image_shape: Tuple[int, ...] = (3, 299, 299), dtype: str = "float32"
) -> Any:
    """The network as a module, and weights for it."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype), deep())
