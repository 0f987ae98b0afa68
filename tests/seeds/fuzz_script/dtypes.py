@T.prim_func
def f(a: T.Buffer((1,), "bool"), b: T.Buffer((1,), "int4"), c: T.Buffer((1,), "uint16"), d: T.Buffer((1,), "int24"), e: T.Buffer((1,), "uint64"), g: T.Buffer((1,), "float16"), h: T.Buffer((1,), "bfloat16"), i: T.Buffer((1,), "float64"), j: T.Buffer((1,), "float8_e4m3fn"), k: T.Buffer((1,), "float8_e5m2"), l: T.Buffer((1,), "float8_e4m3fnuz"), m: T.Buffer((1,), "float8_e5m2fnuz")):
    a[0] = T.bool(True)
    b[0] = T.int4(-8)
    c[0] = T.uint16(65535)
    d[0] = T.int24(-8388608)
    e[0] = T.uint64(18446744073709551615)
    g[0] = T.float16(0.1)
    h[0] = T.bfloat16(0.1)
    i[0] = T.float64(0.1)
    j[0] = T.float8_e4m3fn(448)
    k[0] = T.float8_e5m2(0.3)
    l[0] = T.float8_e4m3fnuz(-1)
    m[0] = T.float8_e5m2fnuz(100)
