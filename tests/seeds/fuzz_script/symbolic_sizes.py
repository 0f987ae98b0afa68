@T.prim_func
def f(a: T.handle, n: T.int32, b: T.handle):
    m = T.int32()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n * m,), "float32")
    for i, j in T.grid(n, m):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi * m + vj] = A[vi, vj]
