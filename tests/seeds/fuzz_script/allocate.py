@T.prim_func
def f(A: T.Buffer((64,), "float32")):
    with T.decl_buffer((16,), scope="local") as tmp:
        for i in range(16):
            tmp[i] = A[i]
        for i in range(16):
            A[i + 16] = tmp[i]
    with T.decl_buffer((16,), place="workspace", offset=T.int64(128)) as w:
        w[0] = A[0]
