@T.prim_func
def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(8):
        B[T.Ramp(i * 8, 1, 8)] = A[T.Ramp(i * 8, 1, 8)] * T.Broadcast(T.float32(2), 8)
    B[T.Ramp(0, 2, 4)] = A[T.Ramp(7, -1, 4)]
    B.vstore([T.Ramp(60, 1, 8)], T.Broadcast(T.float32(0), 8), predicate=T.Ramp(60, 1, 8) < T.Broadcast(64, 8))
