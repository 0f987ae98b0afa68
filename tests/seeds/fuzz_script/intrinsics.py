@T.prim_func
def f(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "int32")):
    A[0] = T.exp(A[0]) + T.tanh(T.sqrt(A[1])) + T.pow(A[2], T.float32(2)) + T.fma(A[0], A[1], A[2])
    A[1] = T.max(T.min(A[0], T.float32(6)), T.float32(0)) + T.abs(A[1]) + T.round(A[2]) + T.ldexp(A[3], 3)
    B[0] = T.shift_left(B[0], 2) | B[1] & ~B[2] ^ T.shift_right(B[3], 1)
    B[1] = T.popcount(B[0]) + T.clz(B[1]) + T.abs(B[2])
    B[2] = T.q_multiply_shift(B[0], B[1], 31, -2)
    B[3] = T.Select(T.isnan(A[0]), 1, 0)
