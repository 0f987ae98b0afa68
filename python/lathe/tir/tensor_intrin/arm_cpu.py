"""Dot products of Arm processors."""

from .dot_product_common import (
    DP4A_S8S8S32_INTRIN, DP4A_S8U8S32_INTRIN, DP4A_U8S8S32_INTRIN, DP4A_U8U8U32_INTRIN, register_dot_product)

__all__ = [
    "ARM_DOT_4x4_i8_NEON_INTRIN",
    "ARM_DOT_4x4_i8_SDOT_INTRIN",
    "ARM_DOT_4x4_u8_HDOT_INTRIN",
    "ARM_DOT_4x4_u8_UDOT_INTRIN",
    "DP4A_S8S8S32_INTRIN",
    "DP4A_S8U8S32_INTRIN",
    "DP4A_U8S8S32_INTRIN",
    "DP4A_U8U8U32_INTRIN",
]

ARM_DOT_4x4_i8_NEON_INTRIN = register_dot_product("dot_4x4_i8i8s32_neon", 4, "int8", "int8")
ARM_DOT_4x4_i8_SDOT_INTRIN = register_dot_product("dot_4x4_i8i8s32_sdot", 4, "int8", "int8")
ARM_DOT_4x4_u8_UDOT_INTRIN = register_dot_product("dot_4x4_u8u8u32_udot", 4, "uint8", "uint8")
ARM_DOT_4x4_u8_HDOT_INTRIN = register_dot_product("dot_4x4_u8u8i32_hdot", 4, "uint8", "uint8")
