"""Dot products of Hexagon's vector unit, of four bytes or two 16-bit integers to a lane."""

from .dot_product_common import register_dot_product

__all__ = ["VDMPY_i16i16i32_INTRIN", "VRMPY_u8i8i32_INTRIN", "VRMPY_u8u8i32_INTRIN"]

VRMPY_u8u8i32_INTRIN = register_dot_product("dot_32x4_u8u8i32_vrmpy", 32, "uint8", "uint8")
VRMPY_u8i8i32_INTRIN = register_dot_product("dot_32x4_u8i8i32_vrmpy", 32, "uint8", "int8")
VDMPY_i16i16i32_INTRIN = register_dot_product("dot_32x2_i16i16i32_vdmpy", 32, "int16", "int16", 2)
