"""Dot products of bytes as tensor intrinsics: lanes times four products, each added to an int32.

What is emitted is Lathe's own `T.dot`, which lowering makes the processor's instruction of where it has one."""

from __future__ import annotations

from typing import Any, Tuple

from ...script import from_source
from ..function import PrimFunc, TensorIntrin

__all__ = [
    "AMDGPU_SDOT4_INTRIN",
    "DP4A_INTRIN",
    "DP4A_S8S8S32_INTRIN",
    "DP4A_S8U8S32_INTRIN",
    "DP4A_U8S8S32_INTRIN",
    "DP4A_U8U8U32_INTRIN",
    "dot_product",
    "register_dot_product",
]

_VECTOR = """
@T.prim_func
def dot_product(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, ({k},), "{a}", offset_factor=1)
    B = T.match_buffer(b, ({lanes}, {k}), "{b}", offset_factor=1)
    C = T.match_buffer(c, ({lanes},), "int32", offset_factor=1)
    with T.block("root"):
        T.reads(C[0:{lanes}], A[0:{k}], B[0:{lanes}, 0:{k}])
        T.writes(C[0:{lanes}])
"""

_VECTOR_DESC = """\
        for i in T.serial(0, {lanes}):
            for k in T.serial(0, {k}):
                with T.block("update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")
"""

_VECTOR_IMPL = """\
        for i in T.vectorized({lanes}):
            C[i] = C[i] + {dot}
"""

_SCALAR = """
@T.prim_func
def dot(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (4,), "{a}", offset_factor=1, scope="{scope}")
    B = T.match_buffer(b, (4,), "{b}", offset_factor=1, scope="{scope}")
    C = T.match_buffer(c, (1,), "{out}", offset_factor=1, scope="local")
    with T.block("root"):
        T.reads(C[0], A[0:4], B[0:4])
        T.writes(C[0])
"""

_SCALAR_DESC = """\
        for i in range(0, 4):
            with T.block("update"):
                vi = T.axis.remap("R", [i])
                C[0] = C[0] + T.cast(A[vi], "{out}") * T.cast(B[vi], "{out}")
"""

_SCALAR_IMPL = """\
        C[0] = C[0] + {dot}
"""


def _pair(head: str, what: str, how: str, **values: Any) -> Tuple[PrimFunc, PrimFunc]:
    return from_source((head + what).format(**values)), from_source((head + how).format(**values))


def dot_product(lanes: int, a: str, b: str, k: int = 4) -> Tuple[PrimFunc, PrimFunc]:
    """C[i] += sum of k products A[k] * B[i, k], for as many i as there are lanes: what it computes, and how.

    Four bytes are one operation; anything else is written out."""
    dot = "T.dot(A[0], A[1], A[2], A[3], B[i, 0], B[i, 1], B[i, 2], B[i, 3])"
    if k != 4:
        dot = " + ".join(f'T.cast(A[{n}], "int32") * T.cast(B[i, {n}], "int32")' for n in range(k))
    return _pair(_VECTOR, _VECTOR_DESC, _VECTOR_IMPL, lanes=lanes, a=a, b=b, k=k, dot=dot)


def register_dot_product(name: str, lanes: int, a: str, b: str, k: int = 4) -> str:
    """Makes such a dot product known by its name."""
    TensorIntrin.register(name, *dot_product(lanes, a, b, k), override=True)
    return name


def _register_scalar(name: str, a: str = "int8", b: str = "int8", out: str = "int32") -> str:
    dot = "T.dot(A[0], A[1], A[2], A[3], B[0], B[1], B[2], B[3])"
    if out != "int32":  # an unsigned sum has the same bits
        dot = f'T.reinterpret("{out}", {dot})'
    pair = _pair(_SCALAR, _SCALAR_DESC, _SCALAR_IMPL, a=a, b=b, scope="shared", out=out, dot=dot)
    TensorIntrin.register(name, *pair, override=True)
    return name


DP4A_S8S8S32_INTRIN = DP4A_INTRIN = _register_scalar("dp4a_s8s8s32")
DP4A_S8U8S32_INTRIN = _register_scalar("dp4a_s8u8s32", "int8", "uint8")
DP4A_U8S8S32_INTRIN = _register_scalar("dp4a_u8s8s32", "uint8", "int8")
DP4A_U8U8U32_INTRIN = _register_scalar("dp4a_u8u8u32", "uint8", "uint8", "uint32")
AMDGPU_SDOT4_INTRIN = _register_scalar("sdot4")
