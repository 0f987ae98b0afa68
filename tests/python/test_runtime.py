"""Arrays, calls, timing, functions by name."""

import threading

import numpy as np
import pytest

import lathe as tvm
from lathe import te, tir


def test_array_copies():
    a = np.arange(6, dtype="float32").reshape(2, 3)
    x = tvm.nd.array(a, tvm.cpu(0))
    a[0, 0] = 100
    assert (
        x.numpy()[0, 0] == 0 and x.shape == (2, 3) and x.dtype == "float32" and x.device == tvm.cpu(0) and x.ndim == 2
    )
    y = x.numpy()
    y[0, 0] = 7
    assert x.numpy()[0, 0] == 0
    np.asarray(x)[0, 0] = 9  # a view
    assert x.asnumpy()[0, 0] == 9
    assert x.data_address % 64 == 0


def test_copies_between_arrays():
    x = tvm.nd.empty((4,), "int32")
    assert (x.numpy() == 0).all()
    x.copyfrom(np.arange(4))
    y = tvm.nd.empty((4,), "int32")
    x.copyto(y)
    z = y.copyto(tvm.cpu(0))
    np.testing.assert_array_equal(z.numpy(), [0, 1, 2, 3])
    z[:] = 5
    assert (z.numpy() == 5).all()
    with pytest.raises(ValueError, match="shape"):
        x.copyfrom(np.arange(5))


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64"]
)
def test_dtypes_of_arrays(dtype):
    a = (np.arange(5) % 2).astype(dtype)
    x = tvm.nd.array(a)
    assert x.dtype == dtype
    np.testing.assert_array_equal(x.numpy(), a)


def test_dtypes_that_numpy_lacks():
    x = tvm.nd.empty((3,), "bfloat16")
    assert x.dtype == "bfloat16" and np.asarray(x._raw).itemsize == 2
    A = te.placeholder((3,), name="A", dtype="float32")
    B = te.compute((3,), lambda i: A[i].astype("bfloat16"), name="B")
    tvm.build(te.create_schedule(B.op), [A, B])(np.array([1.0, -2.5, 3.14159], "float32"), x)
    bits = x._raw.astype("uint32") << 16
    np.testing.assert_allclose(bits.view("float32"), [1.0, -2.5, 3.14159], rtol=2**-8)


def test_dlpack_shares_memory():
    x = tvm.nd.array(np.arange(4, dtype="float32"))
    v = np.from_dlpack(x)
    np.asarray(x)[1] = 50
    assert v[1] == 50
    y = tvm.nd.from_dlpack(np.arange(4, dtype="int32"))
    assert y.dtype == "int32" and y.shape == (4,)
    z = tvm.nd.from_dlpack(x.to_dlpack())
    assert z.data_address == x.data_address and x.__dlpack_device__() == (1, 0)


class Foreign:
    """An array of another library: nothing but DLPack."""

    def __init__(self, a):
        self.a = a

    def __dlpack__(self, **kwargs):
        return self.a.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.a.__dlpack_device__()


def build_axpy(target=None):
    A = te.placeholder((32,), name="A")
    x = te.var("x", "float32")
    B = te.compute((32,), lambda i: A[i] * x, name="B")
    s = te.create_schedule(B.op)
    return tvm.build(s, [A, x, B], target=target, name="axpy")


def test_arguments_of_every_kind(target):
    func = build_axpy(target)
    a = np.arange(32, dtype="float32")
    for wrap in (lambda v: v, tvm.nd.array, Foreign):
        src, out = wrap(a), np.zeros(32, "float32")
        func(src, 2.0, out)
        np.testing.assert_array_equal(out, a * 2)
    out = tvm.nd.empty((32,))
    func(a, np.float32(3), out)
    np.testing.assert_array_equal(out.numpy(), a * 3)
    func(a, 4, out)
    np.testing.assert_array_equal(out.numpy(), a * 4)
    func(Foreign(a), np.array(0.5, "float32"), Foreign(np.asarray(out)))
    np.testing.assert_array_equal(out.numpy(), a * 0.5)


def test_time_evaluator():
    func = build_axpy()
    a, out = np.arange(32, dtype="float32"), np.zeros(32, "float32")
    r = func.time_evaluator("axpy", tvm.cpu(0), number=5, repeat=4)(a, 2.0, out)
    assert len(r.results) == 4 and r.min <= r.median <= r.max and r.min > 0 and r.std >= 0
    assert abs(r.mean - np.mean(r.results)) < 1e-12 and "mean (ms)" in str(r)
    np.testing.assert_array_equal(out, a * 2)
    longer = func.time_evaluator("axpy", tvm.cpu(0), number=1, repeat=2, min_repeat_ms=2)(a, 2.0, out)
    assert len(longer.results) == 2
    with pytest.raises(ValueError):
        func.time_evaluator("axpy", tvm.cpu(0), number=0)
    with pytest.raises(NotImplementedError):
        func.time_evaluator("axpy", tvm.cuda(0))


def test_registered_functions():
    @tvm.register_func("test.hello", override=True)
    def hello(*args):
        return args

    assert tvm.get_global_func("test.hello") is hello and tvm.get_global_func("test.none", allow_missing=True) is None
    with pytest.raises(ValueError, match="test.none"):
        tvm.get_global_func("test.none")
    with pytest.raises(ValueError, match="registered already"):
        tvm.register_func("test.hello", lambda: None)
    tvm.runtime.remove_global_func("test.hello")
    assert tvm.get_global_func("test.hello", True) is None


def packed_func(target, *args):
    A = tir.decl_buffer((4,), "float32", "A")
    body = tir.Evaluate(tir.call_packed("test.packed", *[A if a == "A" else a for a in args]))
    return tvm.build(tir.PrimFunc([A], body), target=target)


def test_packed_calls_pass_everything(target):
    seen = []

    @tvm.register_func("test.packed", override=True)
    def packed(*args):
        seen.extend(a.numpy().tolist() if isinstance(a, tvm.NDArray) else a for a in args)

    packed_func(target, "A", 3, 2.5, "text")(np.arange(4, dtype="float32"))
    assert seen == [[0, 1, 2, 3], 3, 2.5, "text"]


def test_exception_of_a_packed_function_comes_out_as_itself(target):
    class Mine(Exception):
        pass

    @tvm.register_func("test.packed", override=True)
    def packed(*args):
        raise Mine("from inside")

    func = packed_func(target, "A")
    for _ in range(3):
        with pytest.raises(Mine, match="from inside") as e:
            func(np.zeros(4, "float32"))
        assert "packed" in [t.name for t in e.traceback]


def test_missing_packed_function(target):
    tvm.runtime.remove_global_func("test.packed")
    with pytest.raises(tvm.LatheError, match="test.packed"):
        packed_func(target, "A")(np.zeros(4, "float32"))


def test_threads_share_a_function():
    func = build_axpy()
    failures = []

    def work(factor):
        a, out = np.arange(32, dtype="float32"), np.zeros(32, "float32")
        for _ in range(50):
            func(a, float(factor), out)
            if not (out == a * factor).all():
                failures.append(factor)

    threads = [threading.Thread(target=work, args=(f,)) for f in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_threads_share_the_compiler():
    results = {}

    def work(n):
        A = te.placeholder((n,), name="A")
        B = te.compute((n,), lambda i: A[i] * float(n), name="B")
        out = np.zeros(n, "float32")
        tvm.build(te.create_schedule(B.op), [A, B])(np.ones(n, "float32"), out)
        results[n] = (out == n).all()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3, 9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {n: True for n in range(3, 9)}


def test_number_of_threads():
    n = tvm.runtime.num_threads()
    assert n >= 1
    tvm.runtime.set_num_threads(1)
    assert tvm.runtime.num_threads() == 1
    tvm.runtime.set_num_threads(n)
    with pytest.raises(ValueError):
        tvm.runtime.set_num_threads(0)


def test_devices():
    assert tvm.cpu(0) == tvm.device("cpu", 0) == tvm.device("llvm -mcpu=native") and str(tvm.cuda(1)) == "cuda(1)"
    assert tvm.cpu(0).exist and not tvm.cuda(0).exist and tvm.cpu(0).device_type == 1


def test_interrupt_stops_the_compiler():
    import signal

    from lathe._ffi import context

    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)

    def on_alarm(signum, frame):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, on_alarm)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            while True:
                tvm.build(s, [A, B])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert context().busy is False
    out = np.zeros(64, "float32")
    tvm.build(s, [A, B])(np.zeros(64, "float32"), out)
    assert (out == 1).all()
