@T.prim_func
def f(A: T.Buffer((8,), "float32")):
    A[0] = T.Let(x * x + x, where={x: A[1] - A[2]})
