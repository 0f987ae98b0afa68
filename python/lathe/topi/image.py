"""Images of other sizes."""

from __future__ import annotations

from typing import Any

from .. import error, relay
from ._compute import Function, computed, refused


def _resize(n: int, layouts: str) -> Function:
    def resize(
        data: Any,
        roi: Any,
        size: Any,
        layout: str = layouts,
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        bicubic_alpha: float = -0.5,
        bicubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: Any = None,
        output_shape: Any = None,
    ) -> Any:
        """The image in another size; roi is the part that tf_crop_and_resize takes."""
        if output_shape is not None:
            raise error.UnsupportedError(f"topi.image.resize{n}d: output_shape is not supported; give the size")
        f = getattr(relay.image, f"resize{n}d")
        size = size if isinstance(size, (list, tuple)) else [size]
        return f(
            data,
            list(size),
            [float(x) for x in roi or ()],
            layout,
            method,
            coordinate_transformation_mode,
            rounding_method,
            float(bicubic_alpha),
            int(bicubic_exclude),
            float(extrapolation_value),
            None if out_dtype is None else str(out_dtype),
        )

    resize.__name__ = resize.__qualname__ = f"resize{n}d"
    return computed(resize)


resize1d = _resize(1, "NCW")
resize2d = _resize(2, "NCHW")
resize3d = _resize(3, "NCDHW")


@computed
def grid_sample(
    data: Any,
    grid: Any,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Any:
    """The image at the coordinates of a grid."""
    return relay.image.grid_sample(data, grid, method, layout, padding_mode, bool(align_corners))


@computed
def affine_grid(data: Any, target_shape: Any, align_corners: bool = True) -> Any:
    """The grid of an affine map."""
    return relay.image.affine_grid(data, target_shape=list(target_shape), align_corners=bool(align_corners))


__getattr__ = refused("lathe.topi.image", ("crop_and_resize", "dilation2d_nchw", "dilation2d_nhwc"))
