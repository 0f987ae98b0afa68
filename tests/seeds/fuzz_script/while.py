@T.prim_func
def f(A: T.Buffer((1,), "int32")):
    while A[0] < 10:
        A[0] = A[0] * 2 + 1
