@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    tmp = T.alloc_buffer((4, 9223372036854775807), scope="local")
    for i in range(4):
        with T.block("load"):
            vi = T.axis.spatial(4, i)
            tmp[vi, 0] = A[vi]
