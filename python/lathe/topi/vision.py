"""Regions of interest."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import relay
from ._compute import computed, dtype, refused


def _pair(x: Any) -> Any:
    return list(x) if isinstance(x, (list, tuple)) else [x, x]


@computed
def roi_align(
    data: Any,
    rois: Any,
    pooled_size: Any,
    spatial_scale: float,
    mode: str = "avg",
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: str = "NCHW",
) -> Any:
    """Each region in one size, by interpolation; aligned: regions smaller than an element stay as small."""
    if aligned:  # the operator's half_pixel moves the regions by half an element as well: back again
        half = 0.5 / float(spatial_scale)
        rois = relay.add(rois, relay.const(np.array([[0, half, half, half, half]], dtype(rois))))
    return relay.vision.roi_align(
        data, rois, _pair(pooled_size), float(spatial_scale), sample_ratio, layout, mode, bool(aligned)
    )


def roi_align_nchw(
    data: Any,
    rois: Any,
    pooled_size: Any,
    spatial_scale: float,
    mode: str,
    sample_ratio: int = -1,
    aligned: bool = False,
) -> Any:
    """roi_align of the layout NCHW."""
    return roi_align(data, rois, pooled_size, spatial_scale, mode, sample_ratio, aligned, "NCHW")


@computed
def roi_pool(data: Any, rois: Any, pooled_size: Any, spatial_scale: float, layout: str = "NCHW") -> Any:
    """The largest element of each part of each region."""
    return relay.vision.roi_pool(data, rois, _pair(pooled_size), float(spatial_scale), layout)


def roi_pool_nchw(data: Any, rois: Any, pooled_size: Any, spatial_scale: float) -> Any:
    """roi_pool of the layout NCHW."""
    return roi_pool(data, rois, pooled_size, spatial_scale, "NCHW")


__getattr__ = refused(
    "lathe.topi.vision",
    (
        "all_class_non_max_suppression",
        "get_valid_counts",
        "multibox_prior",
        "multibox_transform_loc",
        "non_max_suppression",
        "proposal",
        "reorg",
        "roi_align_nhwc",
        "rcnn",
        "ssd",
    ),
)
