"""The files that TVM keeps topi.nn's functions in, as modules: `from tvm.topi.nn.pooling import pool2d`."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Dict

_FILES: Dict[str, str] = {
    "batch_matmul": "batch_matmul",
    "batch_norm": "batch_norm",
    "batch_to_space_nd": "batch_to_space_nd",
    "conv1d": "conv1d conv1d_ncw conv1d_nwc group_conv1d_ncw group_conv1d_nwc",
    "conv1d_transpose": "conv1d_transpose_ncw group_conv1d_transpose_ncw",
    "conv2d": "conv conv2d conv2d_hwcn conv2d_nchw conv2d_nhwc group_conv2d_nchw group_conv2d_nhwc",
    "conv2d_transpose": "conv2d_transpose_nchw group_conv2d_transpose_nchw",
    "conv3d": "conv3d_ncdhw conv3d_ndhwc",
    "conv3d_transpose": "conv3d_transpose_ncdhw group_conv3d_transpose_ncdhw",
    "deformable_conv2d": "deformable_conv2d_nchw",
    "dense": "dense matmul",
    "depth_to_space": "depth_to_space",
    "depthwise_conv2d": "depthwise_conv2d_nchw depthwise_conv2d_nhwc",
    "dilate": "dilate",
    "elemwise": "leaky_relu prelu relu",
    "flatten": "flatten",
    "group_norm": "group_norm",
    "instance_norm": "instance_norm",
    "layer_norm": "layer_norm",
    "local_response_norm": "lrn",
    "loss": "nll_loss",
    "mapping": "scale_shift_nchw scale_shift_nhwc",
    "pad": "mirror_pad pad reflect_pad replicate_pad",
    "pooling": "adaptive_pool adaptive_pool1d adaptive_pool3d global_pool pool1d pool2d pool3d",
    "rms_norm": "rms_norm",
    "softmax": "fast_softmax log_softmax softmax",
    "space_to_batch_nd": "space_to_batch_nd",
    "space_to_depth": "space_to_depth",
    "upsampling": "upsampling",
}


def install(nn: ModuleType) -> None:
    """Makes each file a module below nn.  A function of the same name stays what nn gives."""
    nn.__path__ = []  # type: ignore[attr-defined]
    for name, functions in _FILES.items():
        made = ModuleType(f"{nn.__name__}.{name}", f"Functions of {nn.__name__}, where TVM keeps them.")
        made.__spec__ = ModuleSpec(made.__name__, None)
        for function in functions.split():
            setattr(made, function, getattr(nn, function))
        sys.modules[made.__name__] = made
        if not hasattr(nn, name):
            setattr(nn, name, made)
