@T.prim_func
def f(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "bool")):
    B[0] = A[0] < A[1] and A[1] <= A[2] or not (A[2] == A[3])
    B[1] = not (B[0] and B[2]) and (A[0] != 1 or B[3])
    B[2] = T.all(A[0] > 0, A[1] >= 0, T.bool(True))
    A[0] = T.Select(B[0], A[1], A[2])
    A[1] = T.if_then_else(B[0], A[1], A[2])
