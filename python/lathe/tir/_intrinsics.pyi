"""Intrinsic functions of expressions.

Written by tools/stubs.py from the compiler's table."""

from typing import Any

from lathe.tir.expr import PrimExpr

__all__ = [
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin",
    "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh", "pow", "fmod",
    "hypot", "copysign", "nextafter", "ldexp", "fma", "floor", "ceil", "trunc", "round", "nearbyint", "abs",
    "isnan", "isfinite", "isinf", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left",
    "shift_right", "round_shift_right", "popcount", "q_multiply_shift", "likely",
]

def exp(x: Any, span: Any = None) -> PrimExpr:
    """e to the x"""

def exp2(x: Any, span: Any = None) -> PrimExpr:
    """2 to the x"""

def exp10(x: Any, span: Any = None) -> PrimExpr:
    """10 to the x"""

def log(x: Any, span: Any = None) -> PrimExpr:
    """natural logarithm"""

def log2(x: Any, span: Any = None) -> PrimExpr:
    """logarithm to base 2"""

def log10(x: Any, span: Any = None) -> PrimExpr:
    """logarithm to base 10"""

def log1p(x: Any, span: Any = None) -> PrimExpr:
    """log(1 + x)"""

def sqrt(x: Any, span: Any = None) -> PrimExpr:
    """square root, correctly rounded"""

def rsqrt(x: Any, span: Any = None) -> PrimExpr:
    """1 / sqrt(x)"""

def tanh(x: Any, span: Any = None) -> PrimExpr:
    """hyperbolic tangent"""

def sigmoid(x: Any, span: Any = None) -> PrimExpr:
    """1 / (1 + exp(-x))"""

def erf(x: Any, span: Any = None) -> PrimExpr:
    """error function"""

def sin(x: Any, span: Any = None) -> PrimExpr:
    """sine"""

def cos(x: Any, span: Any = None) -> PrimExpr:
    """cosine"""

def tan(x: Any, span: Any = None) -> PrimExpr:
    """tangent"""

def asin(x: Any, span: Any = None) -> PrimExpr:
    """arc sine"""

def acos(x: Any, span: Any = None) -> PrimExpr:
    """arc cosine"""

def atan(x: Any, span: Any = None) -> PrimExpr:
    """arc tangent"""

def atan2(x0: Any, x1: Any, span: Any = None) -> PrimExpr:
    """angle of the point (x2, x1)"""

def sinh(x: Any, span: Any = None) -> PrimExpr:
    """hyperbolic sine"""

def cosh(x: Any, span: Any = None) -> PrimExpr:
    """hyperbolic cosine"""

def asinh(x: Any, span: Any = None) -> PrimExpr:
    """inverse hyperbolic sine"""

def acosh(x: Any, span: Any = None) -> PrimExpr:
    """inverse hyperbolic cosine"""

def atanh(x: Any, span: Any = None) -> PrimExpr:
    """inverse hyperbolic tangent"""

def pow(x0: Any, x1: Any, span: Any = None) -> PrimExpr:
    """x1 to the x2"""

def fmod(x0: Any, x1: Any, span: Any = None) -> PrimExpr:
    """remainder with the sign of x1"""

def hypot(x0: Any, x1: Any, span: Any = None) -> PrimExpr:
    """sqrt(x1*x1 + x2*x2)"""

def copysign(x0: Any, x1: Any, span: Any = None) -> PrimExpr:
    """magnitude of x1, sign of x2"""

def nextafter(x0: Any, x1: Any, span: Any = None) -> PrimExpr:
    """next float after x1 towards x2"""

def ldexp(x0: Any, x1: Any, span: Any = None) -> PrimExpr:
    """x1 * 2^x2, x2 an integer"""

def fma(x0: Any, x1: Any, x2: Any, span: Any = None) -> PrimExpr:
    """x1*x2 + x3 rounded once"""

def floor(x: Any, span: Any = None) -> PrimExpr:
    """largest integer not above x"""

def ceil(x: Any, span: Any = None) -> PrimExpr:
    """smallest integer not below x"""

def trunc(x: Any, span: Any = None) -> PrimExpr:
    """x without its fraction"""

def round(x: Any, span: Any = None) -> PrimExpr:
    """nearest integer, halves away from zero"""

def nearbyint(x: Any, span: Any = None) -> PrimExpr:
    """nearest integer, halves to even"""

def abs(x: Any, span: Any = None) -> PrimExpr:
    """absolute value; of the smallest integer, itself"""

def isnan(x: Any, span: Any = None) -> PrimExpr:
    """is x not a number?"""

def isfinite(x: Any, span: Any = None) -> PrimExpr:
    """is x neither infinite nor NaN?"""

def isinf(x: Any, span: Any = None) -> PrimExpr:
    """is x infinite?"""

def bitwise_and(x0: Any, x1: Any, span: Any = None) -> PrimExpr:
    """bitwise and"""

def bitwise_or(x0: Any, x1: Any, span: Any = None) -> PrimExpr:
    """bitwise or"""

def bitwise_xor(x0: Any, x1: Any, span: Any = None) -> PrimExpr:
    """bitwise exclusive or"""

def bitwise_not(x: Any, span: Any = None) -> PrimExpr:
    """bitwise complement"""

def shift_left(x0: Any, x1: Any, span: Any = None) -> PrimExpr:
    """shift left; the count is taken modulo the width"""

def shift_right(x0: Any, x1: Any, span: Any = None) -> PrimExpr:
    """shift right, arithmetic on signed; count modulo the width"""

def round_shift_right(x0: Any, x1: Any, span: Any = None) -> PrimExpr:
    """x1 * 2^-x2 rounded to an integer, halves away from zero; the count is taken modulo the width"""

def popcount(x: Any, span: Any = None) -> PrimExpr:
    """number of set bits"""

def q_multiply_shift(x0: Any, x1: Any, x2: Any, x3: Any, span: Any = None) -> PrimExpr:
    """fixed-point multiply: round(x * y * 2^-q * 2^s), ties up; where q - s is 31, the one product of int32 that does not fit gives the largest"""

def likely(x: Any, span: Any = None) -> PrimExpr:
    """x1, usually true: loop partitioning removes it"""
