"""Operators relay.vision.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "all_class_non_max_suppression", "get_valid_counts", "multibox_prior", "multibox_transform_loc",
    "non_max_suppression", "roi_align", "roi_pool", "yolo_reorg",
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
    boxes: Any,
    scores: Any,
    max_output_boxes_per_class: Any = -1,
    iou_threshold: Any = -1.0,
    score_threshold: Any = -1.0,
    output_format: str = 'onnx',
    center_point_box: int = 0,
) -> RelayExpr:
    """boxes to keep for each batch and class, with room for all, and their number"""

def multibox_prior(
    data: Value,
    sizes: Sequence[float] = [1],
    ratios: Sequence[float] = [1],
    steps: Sequence[float] = [-1, -1],
    offsets: Sequence[float] = [0.5, 0.5],
    clip: bool = False,
) -> RelayExpr:
    """boxes (1, h * w * kinds, 4) around every cell of data (n, c, h, w)"""

def multibox_transform_loc(
    cls_prob: Value,
    loc_pred: Value,
    anchor: Value,
    clip: bool = True,
    threshold: float = 0.01,
    variances: Sequence[float] = [0.1, 0.1, 0.2, 0.2],
    keep_background: bool = False,
) -> RelayExpr:
    """prior boxes moved as loc_pred says, of those with a class: rows (class, score, box), and their number"""

def get_valid_counts(data: Any, score_threshold: Any, id_index: int = 0, score_index: int = 1) -> RelayExpr:
    """boxes with a score above the threshold first: their number, the boxes, where each was"""

def non_max_suppression(
    data: Any,
    valid_count: Any,
    indices: Any,
    max_output_size: Any = -1,
    iou_threshold: Any = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> RelayExpr:
    """boxes by falling score that no better one of their class covers by iou_threshold or more"""

def yolo_reorg(data: Value, stride: int) -> RelayExpr:
    """elements of cells become channels, in Darknet's order: (n, c * s * s, h / s, w / s)"""
