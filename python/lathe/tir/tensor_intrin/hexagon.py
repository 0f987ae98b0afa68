"""Dot products of Hexagon's vector unit, of four bytes to a lane."""

from .dot_product_common import register_dot_product

__all__ = ["VRMPY_u8i8i32_INTRIN", "VRMPY_u8u8i32_INTRIN"]

VRMPY_u8u8i32_INTRIN = register_dot_product("dot_32x4_u8u8i32_vrmpy", 32, "uint8", "uint8")
VRMPY_u8i8i32_INTRIN = register_dot_product("dot_32x4_u8i8i32_vrmpy", 32, "uint8", "int8")
