"""Tags of computes, by which schedules know what may be computed where it is read."""

from __future__ import annotations

ELEMWISE = "elemwise"
BROADCAST = "broadcast"
INJECTIVE = "injective"
COMM_REDUCE = "comm_reduce"
COMM_REDUCE_IDX = "comm_reduce_idx"
CONV2D_NCHW = "conv2d_nchw"
CONV2D_NHWC = "conv2d_nhwc"


def is_elemwise(tag: str) -> bool:
    """Element by element, without moving."""
    return tag == ELEMWISE or tag.startswith(ELEMWISE + ",")


def is_broadcast(tag: str) -> bool:
    """Elementwise, or elements repeated."""
    return is_elemwise(tag) or tag == BROADCAST or tag.startswith(BROADCAST + ",")


def is_injective(tag: str) -> bool:
    """Each element from one of each input: may be computed where it is read."""
    return is_broadcast(tag) or tag == INJECTIVE or tag.startswith(INJECTIVE + ",")
