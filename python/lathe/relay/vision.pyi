"""Operators relay.vision.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "all_class_non_max_suppression", "roi_align", "roi_pool",
]

def roi_align(
    data: Value,
    rois: Value,
    pooled_size: Sizes,
    spatial_scale: float,
    sample_ratio: int = -1,
    layout: str = 'NCHW',
    mode: str = 'avg',
    half_pixel: bool = False,
) -> RelayExpr:
    """boxes (batch, x1, y1, x2, y2) of data in pooled_size bins: the mean, or the largest, of points in each"""

def roi_pool(data: Value, rois: Value, pooled_size: Sizes, spatial_scale: float, layout: str = 'NCHW') -> RelayExpr:
    """boxes (batch, x1, y1, x2, y2) of data in pooled_size bins: the largest element of each, 0 of an empty one"""

def all_class_non_max_suppression(
    boxes: Value,
    scores: Value,
    max_output_boxes_per_class: Value,
    iou_threshold: Value,
    score_threshold: Value,
    output_format: str = 'onnx',
    center_point_box: int = 0,
) -> RelayExpr:
    """boxes to keep for each batch and class, with room for all, and their number"""
