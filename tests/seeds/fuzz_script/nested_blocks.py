@T.prim_func
def f(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):
    for io, jo in T.grid(4, 4):
        with T.block("tile"):
            vio, vjo = T.axis.remap("SS", [io, jo])
            sub = T.match_buffer(A[vio * 4:vio * 4 + 4, vjo * 4:vjo * 4 + 4], (4, 4), strides=["s0", 1], offset_factor=4)
            tmp = T.alloc_buffer((4, 4), scope="local")
            for i, j in T.grid(4, 4):
                with T.block("load"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    tmp[vi, vj] = sub[vi, vj]
            for i, j in T.grid(4, 4):
                with T.block("store"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vio * 4 + vi, vjo * 4 + vj] = tmp[vj, vi]
