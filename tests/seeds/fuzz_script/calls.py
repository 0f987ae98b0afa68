@T.prim_func
def f(A: T.Buffer((8,), "float32"), n: T.int32):
    T.call_extern("int32", "fill", T.address_of(A[2]), n, -3)
    T.call_packed("log", "text", n)
    T.tvm_storage_sync("shared")
    T.prefetch(T.address_of(A[0]), 0, 3, 1)
    T.evaluate(n + 1)
