"""Dot products of x86 processors."""

from .dot_product_common import dot_product, register_dot_product

__all__ = ["AVX512_DOT_16x4_INTRIN", "VNNI_DOT_16x4_INTRIN"]

dot_product_16x4_u8i8i32_desc, dot_product_16x4_u8i8i32_vnni = dot_product(16, "uint8", "int8")
VNNI_DOT_16x4_INTRIN = register_dot_product("dot_16x4_vnni", 16, "uint8", "int8")
AVX512_DOT_16x4_INTRIN = register_dot_product("dot_16x4_avx512", 16, "uint8", "int8")
