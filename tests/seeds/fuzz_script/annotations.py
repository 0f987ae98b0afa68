@T.prim_func
def f(A: T.Buffer((8,), "float32")):
    T.func_attr({"global_symbol": "f", "tir.noalias": True, "note": [1, 2]})
    for i in T.serial(8, annotations={"pragma_unroll_explicit": 1, "text": "a \"quoted\" word"}):
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            T.block_attr({"key": 0.5})
            A[vi] = T.float32(0)
