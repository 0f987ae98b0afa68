@T.prim_func
def f(A: T.Buffer((8,), "float32")):
    A[0] = T.max(A[1], A[2]
    A[1] = A[0]
