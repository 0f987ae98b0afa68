"""Operators relay.signal.*.

Written by tools/stubs.py from the compiler's table."""

from typing import Any, Optional, Sequence, Union

import numpy as np

from lathe.relay.expr import RelayExpr, TupleWrapper
from lathe.runtime.ndarray import NDArray

Value = Union[RelayExpr, TupleWrapper, NDArray, "np.ndarray[Any, Any]", np.generic, float, Sequence[Any]]
Sizes = Union[int, Sequence[Any], RelayExpr]

__all__ = [
    "dft", "mel_weight_matrix", "stft", "window",
]

def dft(
    data: Value,
    dft_length: Optional[Value] = None,
    axis: int = -2,
    inverse: bool = False,
    onesided: bool = False,
) -> RelayExpr:
    """discrete Fourier transform along an axis; complex numbers are pairs in the last axis"""

def stft(signal: Value, window: Value, frame_step: Value, onesided: bool = True) -> RelayExpr:
    """spectra of windows that move by frame_step: (batch, frames, bins, 2)"""

def window(size: Value, kind: str = 'hann', periodic: bool = True, dtype: str = 'float32') -> RelayExpr:
    """a window of cosines"""

def mel_weight_matrix(
    num_mel_bins: Value,
    dft_length: Value,
    sample_rate: Value,
    lower_edge_hertz: Value,
    upper_edge_hertz: Value,
    dtype: str = 'float32',
) -> RelayExpr:
    """triangles that turn a spectrum into mel bins: (dft_length / 2 + 1, num_mel_bins)"""
