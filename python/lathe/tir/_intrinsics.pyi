"""Intrinsic functions of expressions.

Written by tools/stubs.py from the compiler's table."""

from typing import Any

from lathe.tir.expr import PrimExpr

__all__ = [
    "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin",
    "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh", "pow", "fmod",
    "hypot", "copysign", "nextafter", "ldexp", "fma", "floor", "ceil", "trunc", "round", "nearbyint", "abs",
    "isnan", "isfinite", "isinf", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left",
    "shift_right", "round_shift_right", "popcount", "q_multiply_shift", "likely", "tvm_thread_invariant",
    "q_multiply_shift_per_axis", "bf16_dot", "dot", "word_dot", "prefetch", "tvm_stack_make_array",
    "tvm_stack_make_shape", "vector_reduce_add", "thread_slot", "assume", "tvm_fill_fragment",
    "tvm_load_matrix_sync", "tvm_store_matrix_sync", "tvm_mma_sync", "tvm_bmma_sync", "ptx_mma", "ptx_mma_sp",
    "ptx_ldmatrix", "mma_store", "mma_fill", "make_filled_simdgroup_matrix", "simdgroup_load", "simdgroup_store",
    "simdgroup_multiply_accumulate", "ptx_cp_async", "ptx_cp_async_bulk", "ptx_commit_group", "ptx_wait_group",
    "ptx_cp_async_barrier", "ptx_init_barrier_thread_count", "ptx_arrive_barrier", "ptx_arrive_barrier_expect_tx",
    "ptx_wait_barrier", "dma_copy", "dma_wait", "tvm_thread_allreduce", "tvm_warp_activemask", "tvm_warp_shuffle",
    "tvm_warp_shuffle_down", "tvm_warp_shuffle_up", "vscale", "get_active_lane_mask", "undef",
    "call_llvm_pure_intrin", "call_llvm_intrin", "start_profile_intrinsic", "end_profile_intrinsic",
    "tvm_call_cpacked", "tvm_call_packed_lowered", "tvm_call_cpacked_lowered", "tvm_check_return",
    "tvm_stack_alloca", "tvm_struct_get", "tvm_struct_set", "tvm_tuple", "lookup_param",
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

def tvm_thread_invariant(x: Any, span: Any = None) -> PrimExpr:
    """x, which all threads agree on"""

def q_multiply_shift_per_axis(
    x0: Any,
    x1: Any,
    x2: Any,
    x3: Any,
    x4: Any,
    x5: Any,
    x6: Any,
    span: Any = None,
) -> PrimExpr:
    """fixed-point multiply with a shift to the left or the right, which the last two say"""

def bf16_dot(*args: Any) -> PrimExpr:
    """two uint32, each a pair of bfloat16, or two uint64 of four: the sum of the products, float32; added to a sum it may round in another order"""

def dot(*args: Any) -> PrimExpr:
    """x1 … xg, y1 … yg, as many of a side as make 32 bits, of bytes also 64 or 128: x1*y1 + … + xg*yg; of integers int32, of bfloat16 float32"""

def word_dot(*args: Any) -> PrimExpr:
    """dot of the bytes of two uint32 or two uint64, int32; lowering makes it where neighbours in memory are a word; the third argument says which sides are signed: 1 the first, 2 the second"""

def prefetch(*args: Any) -> PrimExpr:
    """hint: the address will be read (write flag, locality 0-3, cache type)"""

def tvm_stack_make_array(*args: Any) -> PrimExpr:
    """a buffer as an argument of a packed call: data, shape, strides, ndim, dtype marker, offset"""

def tvm_stack_make_shape(*args: Any) -> PrimExpr:
    """a list of sizes for tvm_stack_make_array"""

def vector_reduce_add(*args: Any) -> PrimExpr:
    """sum of a vector's lanes"""

def thread_slot(*args: Any) -> PrimExpr:
    """number of the worker that runs this part of a parallel loop; 0 outside one"""

def assume(*args: Any) -> PrimExpr:
    """the condition holds; says so and does nothing"""

def tvm_fill_fragment(*args: Any) -> PrimExpr:
    """fills a fragment with one value"""

def tvm_load_matrix_sync(*args: Any) -> PrimExpr:
    """loads a fragment from memory"""

def tvm_store_matrix_sync(*args: Any) -> PrimExpr:
    """stores a fragment to memory"""

def tvm_mma_sync(*args: Any) -> PrimExpr:
    """product of two fragments, added to a third"""

def tvm_bmma_sync(*args: Any) -> PrimExpr:
    """the same of single bits"""

def ptx_mma(dtype: str, *args: Any) -> PrimExpr:
    """mma.sync of PTX"""

def ptx_mma_sp(dtype: str, *args: Any) -> PrimExpr:
    """mma.sp.sync of PTX, one operand sparse"""

def ptx_ldmatrix(dtype: str, *args: Any) -> PrimExpr:
    """ldmatrix of PTX"""

def mma_store(dtype: str, *args: Any) -> PrimExpr:
    """stores the result of ptx_mma"""

def mma_fill(dtype: str, *args: Any) -> PrimExpr:
    """clears the result of ptx_mma"""

def make_filled_simdgroup_matrix(*args: Any) -> PrimExpr:
    """fills a matrix of a Metal SIMD group"""

def simdgroup_load(*args: Any) -> PrimExpr:
    """loads a matrix of a Metal SIMD group"""

def simdgroup_store(*args: Any) -> PrimExpr:
    """stores a matrix of a Metal SIMD group"""

def simdgroup_multiply_accumulate(*args: Any) -> PrimExpr:
    """product of matrices of a Metal SIMD group"""

def ptx_cp_async(dtype: str, *args: Any) -> PrimExpr:
    """cp.async of PTX"""

def ptx_cp_async_bulk(dtype: str, *args: Any) -> PrimExpr:
    """cp.async.bulk of PTX"""

def ptx_commit_group(*args: Any) -> PrimExpr:
    """closes a group of copies"""

def ptx_wait_group(*args: Any) -> PrimExpr:
    """waits until at most that many groups are left"""

def ptx_cp_async_barrier(*args: Any) -> PrimExpr:
    """a barrier that copies arrive at"""

def ptx_init_barrier_thread_count(*args: Any) -> PrimExpr:
    """sets up a barrier"""

def ptx_arrive_barrier(*args: Any) -> PrimExpr:
    """arrives at a barrier"""

def ptx_arrive_barrier_expect_tx(*args: Any) -> PrimExpr:
    """arrives at a barrier of bytes"""

def ptx_wait_barrier(*args: Any) -> PrimExpr:
    """waits at a barrier"""

def dma_copy(*args: Any) -> PrimExpr:
    """copies by a DMA engine"""

def dma_wait(*args: Any) -> PrimExpr:
    """waits for a DMA engine"""

def tvm_thread_allreduce(*args: Any) -> PrimExpr:
    """reduces a value over threads"""

def tvm_warp_activemask(*args: Any) -> PrimExpr:
    """the active threads of a warp"""

def tvm_warp_shuffle(*args: Any) -> PrimExpr:
    """the value of another thread of the warp"""

def tvm_warp_shuffle_down(*args: Any) -> PrimExpr:
    """the value of a later thread of the warp"""

def tvm_warp_shuffle_up(*args: Any) -> PrimExpr:
    """the value of an earlier thread of the warp"""

def vscale(*args: Any) -> PrimExpr:
    """how many times wider than stated the machine's vectors are"""

def get_active_lane_mask(dtype: str, *args: Any) -> PrimExpr:
    """which lanes from x1 lie below x2"""

def undef(*args: Any) -> PrimExpr:
    """some value"""

def call_llvm_pure_intrin(dtype: str, *args: Any) -> PrimExpr:
    """an intrinsic of LLVM"""

def call_llvm_intrin(dtype: str, *args: Any) -> PrimExpr:
    """an intrinsic of LLVM with effects"""

def start_profile_intrinsic(*args: Any) -> PrimExpr:
    """marks where a measured part begins"""

def end_profile_intrinsic(*args: Any) -> PrimExpr:
    """marks where a measured part ends"""

def tvm_call_cpacked(*args: Any) -> PrimExpr:
    """calls a packed function of the module"""

def tvm_call_packed_lowered(*args: Any) -> PrimExpr:
    """a packed call with its stacks"""

def tvm_call_cpacked_lowered(*args: Any) -> PrimExpr:
    """a packed call of the module with its stacks"""

def tvm_check_return(*args: Any) -> PrimExpr:
    """checks what a call gave"""

def tvm_stack_alloca(*args: Any) -> PrimExpr:
    """memory on the stack"""

def tvm_struct_get(*args: Any) -> PrimExpr:
    """a field of a tensor's handle"""

def tvm_struct_set(*args: Any) -> PrimExpr:
    """sets a field of a tensor's handle"""

def tvm_tuple(*args: Any) -> PrimExpr:
    """several values"""

def lookup_param(*args: Any) -> PrimExpr:
    """a weight by its name"""
