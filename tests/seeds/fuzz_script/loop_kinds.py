@T.prim_func
def f(A: T.Buffer((4, 8, 16), "float32")):
    for i in T.parallel(4):
        for j in T.serial(8):
            for k in T.vectorized(16):
                A[i, j, k] = T.float32(0)
    for i in T.unroll(4):
        for j, k in T.grid(8, 16):
            A[i, j, k] = T.float32(1)
    for i in range(1, 3):
        A[i, 0, 0] = T.float32(2)
