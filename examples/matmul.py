# A matrix multiply as a loop program, tiled by hand, for `lathe lower` and `lathe build`.
from lathe.script import tir as T


@T.prim_func
def matmul(A: T.Buffer((256, 256), "float32"), B: T.Buffer((256, 256), "float32"), C: T.Buffer((256, 256), "float32")):
    for io in T.parallel(8):
        for jo, ii, ji in T.grid(8, 32, 32):
            with T.block("C_init"):
                vi = T.axis.spatial(256, io * 32 + ii)
                vj = T.axis.spatial(256, jo * 32 + ji)
                C[vi, vj] = T.float32(0)
        for jo, k, ii in T.grid(8, 256, 32):
            for ji in T.vectorized(32):
                with T.block("C_update"):
                    vi = T.axis.spatial(256, io * 32 + ii)
                    vj = T.axis.spatial(256, jo * 32 + ji)
                    vk = T.axis.reduce(256, k)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
