@T.prim_func
def argmax(A: T.Buffer((4, 9), "float32"), at: T.Buffer((4,), "int32"), V: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 9):
        with T.block("argmax"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                at[vi] = -1
                V[vi] = T.min_value("float32")
            v_i: T.int32 = T.Select(V[vi] >= A[vi, vk], at[vi], vk)
            v_v: T.float32 = T.Select(V[vi] >= A[vi, vk], V[vi], A[vi, vk])
            at[vi] = v_i
            V[vi] = v_v
