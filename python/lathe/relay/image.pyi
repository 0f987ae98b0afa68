"""Operators relay.image.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "affine_grid", "dilation2d", "grid_sample", "resize", "resize1d", "resize2d", "resize3d",
]

def resize1d(
    data: Value,
    size: Sizes,
    roi: Sequence[float] = [],
    layout: str = 'NCW',
    method: str = 'linear',
    coordinate_transformation_mode: str = 'half_pixel',
    rounding_method: str = '',
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """data at another size of its spatial dimensions"""

def resize2d(
    data: Value,
    size: Sizes,
    roi: Sequence[float] = [],
    layout: str = 'NCHW',
    method: str = 'linear',
    coordinate_transformation_mode: str = 'half_pixel',
    rounding_method: str = '',
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """data at another size of its spatial dimensions"""

def resize3d(
    data: Value,
    size: Sizes,
    roi: Sequence[float] = [],
    layout: str = 'NCDHW',
    method: str = 'linear',
    coordinate_transformation_mode: str = 'half_pixel',
    rounding_method: str = '',
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """data at another size of its spatial dimensions"""

def resize(
    data: Value,
    sizes: Optional[Union[Value, Sizes]] = None,
    scales: Optional[Union[Value, Sequence[float]]] = None,
    roi: Optional[Union[Value, Sequence[float]]] = None,
    axes: Optional[Sizes] = None,
    inputs: Optional[Sequence[str]] = None,
    antialias: bool = False,
    keep_aspect_ratio_policy: str = 'stretch',
    method: str = 'linear',
    coordinate_transformation_mode: str = 'half_pixel',
    rounding_method: str = '',
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """data at another size of some axes; sizes, scales and roi as attributes, or computed"""

def grid_sample(
    data: Value,
    grid: Value,
    method: str = 'bilinear',
    layout: str = 'NCHW',
    padding_mode: str = 'zeros',
    align_corners: bool = True,
    grid_last: bool = False,
    round_first: bool = False,
) -> RelayExpr:
    """data (n, c, spatial…) read at the points of a grid, whose coordinates run from -1 to 1, x first"""

def affine_grid(
    data: Value,
    target_shape: Optional[Sizes] = None,
    align_corners: bool = True,
    grid_last: bool = False,
    size: Optional[Value] = None,
) -> RelayExpr:
    """points of a regular grid under the affine maps of data (n, d, d + 1); size (n, c, spatial…) when computed"""

def dilation2d(
    data: Value,
    weight: Value,
    strides: Sizes = [1, 1],
    padding: Sizes = [0, 0],
    dilations: Sizes = [1, 1],
    data_layout: str = 'NCHW',
    kernel_layout: str = 'IHW',
    out_dtype: Optional[str] = None,
) -> RelayExpr:
    """grey-scale dilation: the greatest sum of data and weight over each window, channel by channel"""
