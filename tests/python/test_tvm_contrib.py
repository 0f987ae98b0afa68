"""lathe.contrib under TVM's names, against numpy and the system's own tools."""

import math
import os
import pathlib
import subprocess
import sys
import tarfile
import time

import numpy as np
import pytest

import lathe as tvm
import lathe.testing
from lathe import te
from lathe.contrib import cblas, cc, clang, download, ndk, nvcc, pickle_memoize, popen_pool, random, sparse, tar, utils

ROOT = pathlib.Path(__file__).resolve().parents[2]


# ---- files


def test_tempdir():
    temp = utils.tempdir()
    path = temp.relpath("a.txt")
    pathlib.Path(path).write_text("x")
    assert temp.listdir() == ["a.txt"] and temp / "a.txt" == path
    temp.remove()
    assert not os.path.exists(path)
    assert (
        utils.is_source_path("a/b.cc")
        and not utils.is_source_path("int f(); // a.c\n")
        and utils.which("no-such-program") is None
    )


def test_filelock(tmp_path):
    lock = utils.filelock(str(tmp_path / "lock"))
    taken = f"from lathe.contrib import utils; utils.filelock({str(tmp_path / 'lock')!r}); print('taken')"
    other = subprocess.Popen(
        [sys.executable, "-c", taken],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        stdout=subprocess.PIPE,
        text=True,
    )
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(1.0)
    lock.release()
    assert other.communicate(timeout=60)[0] == "taken\n"


def test_tar(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "b").write_text("2")
    tar.tar(str(tmp_path / "x.tar"), [str(tmp_path / "a"), str(tmp_path / "d")])
    tar.untar(str(tmp_path / "x.tar"), str(tmp_path / "out"))
    assert (tmp_path / "out" / "d" / "b").read_text() == "2"
    files = tar.normalize_file_list_by_unpacking_tars(utils.tempdir(), [str(tmp_path / "a"), str(tmp_path / "x.tar")])
    assert [os.path.basename(f) for f in files] == ["a", "a", "d"]
    with pytest.raises(ValueError, match="'b'"):
        tar.tar(str(tmp_path / "y.tar"), [str(tmp_path / "d" / "b"), str(tmp_path / "d" / "b")])
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.add(tmp_path / "a", "../outside")
    with pytest.raises(ValueError, match="outside"):
        tar.untar(str(tmp_path / "evil.tar"), str(tmp_path / "out"))


def test_download(tmp_path, monkeypatch):
    (tmp_path / "src.txt").write_text("data")
    url = (tmp_path / "src.txt").as_uri()
    download.download(url, tmp_path / "sub" / "dst.txt")
    assert (tmp_path / "sub" / "dst.txt").read_text() == "data"
    download.download("https://example.com/x", tmp_path / "sub" / "dst.txt")  # there already
    with pytest.raises(NotImplementedError, match="https://example.com/x .* put it at .*none.txt"):
        download.download("https://example.com/x", tmp_path / "none.txt")
    with pytest.raises(OSError, match="no file"):
        download.download("file:///no/such/file", tmp_path / "none.txt")
    monkeypatch.setattr(download, "TEST_DATA_ROOT_PATH", tmp_path / "root")
    path = download.download_testdata(url, "cat.txt", module="data")
    assert path == str(tmp_path / "root" / "data" / "cat.txt") and pathlib.Path(path).read_text() == "data"


# ---- compilers


@pytest.mark.skipif(not cc.get_cc(), reason="needs a C compiler")
def test_cc(tmp_path):
    (tmp_path / "f.c").write_text("int seven(void) { return 7; }\n")
    cc.create_shared(str(tmp_path / "f.so"), str(tmp_path / "f.c"))
    import ctypes

    assert ctypes.CDLL(str(tmp_path / "f.so")).seven() == 7
    assert cc.get_global_symbol_section_map(str(tmp_path / "f.so"))["seven"] == "T"
    (tmp_path / "main.c").write_text("int seven(void); int main(void) { return seven(); }\n")
    subprocess.run([cc.get_cc(), "-c", "f.c", "-o", "f.o"], cwd=tmp_path, check=True)
    cc.create_staticlib(str(tmp_path / "f.a"), [str(tmp_path / "f.o")])
    cc.create_executable(str(tmp_path / "main"), [str(tmp_path / "main.c"), str(tmp_path / "f.a")])
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 7
    with pytest.raises(tvm.LatheError, match="could not make"):
        cc.create_shared(str(tmp_path / "g.so"), str(tmp_path / "none.c"))


def test_ndk_says_what_is_missing(monkeypatch):
    monkeypatch.delenv("TVM_NDK_CC", raising=False)
    with pytest.raises(NotImplementedError, match="TVM_NDK_CC"):
        ndk.create_shared("x.so", ["x.o"])
    monkeypatch.setenv("TVM_NDK_CC", "no-such-compiler")
    with pytest.raises(NotImplementedError, match="no-such-compiler"):
        ndk.create_shared("x.so", ["x.o"])


def test_clang(tmp_path, monkeypatch):
    if not clang.find_clang(required=False):
        pytest.skip("needs clang")
    ir = clang.create_llvm('extern "C" int seven() { return 7; }', output=str(tmp_path / "x.ll"))
    assert "define" in ir and "@seven" in ir and "ret i32 7" in ir and (tmp_path / "x.ll").read_text() == ir
    with pytest.raises(tvm.LatheError, match="could not compile"):
        clang.create_llvm("not C\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert clang.find_clang(required=False) == []
    with pytest.raises(NotImplementedError, match="clang was not found"):
        clang.create_llvm("int x;\n")


def test_nvcc(monkeypatch, tmp_path):
    assert (
        nvcc.parse_compute_version("8.6") == (8, 6) and nvcc.have_tensorcore("7.0") and not nvcc.have_tensorcore("6.1")
    )
    assert (
        nvcc.have_fp16("5.3")
        and not nvcc.have_bf16("7.5")
        and nvcc.get_target_compute_version("cuda -arch=sm_90") == "9.0"
    )
    with pytest.raises(ValueError):
        nvcc.parse_compute_version("new")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    with pytest.raises(NotImplementedError, match="nvcc is missing"):
        nvcc.compile_cuda("__global__ void k() {}\n", arch="sm_80")


# ---- processes


def test_worker():
    worker = popen_pool.PopenWorker()
    assert not worker.is_alive()
    with pytest.raises(ValueError, match="nothing was sent"):
        worker.recv()
    worker.send(lathe.testing.identity_after, [1, 0.0])
    assert worker.recv() == 1 and worker.is_alive()
    worker.send(int, ["x"])
    with pytest.raises(ValueError, match="invalid literal"):
        worker.recv()
    start = time.monotonic()
    worker.send(lathe.testing.identity_after, [1, 60], timeout=0.3)
    with pytest.raises(TimeoutError):
        worker.recv()
    assert time.monotonic() - start < 30 and not worker.is_alive()
    worker.send(lathe.testing.terminate_self)
    with pytest.raises(ChildProcessError):
        worker.recv()
    worker.send(pow, (2, 5))
    assert worker.recv() == 32
    worker.kill()
    assert not worker.is_alive()


def test_worker_is_replaced_after_its_uses():
    worker = popen_pool.PopenWorker(maximum_uses=2)
    ids = []
    for _ in range(4):
        worker.send(os.getpid)
        ids.append(worker.recv())
    assert ids[0] == ids[1] != ids[2] == ids[3] and os.getpid() not in ids


def test_initializer():
    worker = popen_pool.PopenWorker(initializer=os.putenv, initargs=("LATHE_TEST_POOL", "set"))
    worker.send(subprocess.getoutput, ["echo $LATHE_TEST_POOL"])
    assert worker.recv() == "set"


def test_pool():
    pool = popen_pool.PopenPoolExecutor(max_workers=2, timeout=5)
    assert [f.result() for f in [pool.submit(math.sqrt, i * i) for i in range(8)]] == list(range(8))
    kinds = popen_pool.StatusKind
    results = list(pool.map_with_error_catching(time.sleep, [0, 60, -1, 0]))
    assert [r.status for r in results] == [kinds.COMPLETE, kinds.TIMEOUT, kinds.EXCEPTION, kinds.COMPLETE]
    assert isinstance(results[2].value, ValueError)


def test_what_cannot_travel_is_refused():
    try:
        import cloudpickle  # noqa: F401

        pytest.skip("cloudpickle lets it travel")
    except ImportError:
        pass
    with pytest.raises(ValueError, match="cloudpickle"):
        popen_pool.PopenWorker().send(lambda: 1)


def test_workers_import_tvm_where_it_means_lathe(tmp_path):
    (tmp_path / "work.py").write_text("import tvm\ndef name(): return tvm.__name__\n")
    (tmp_path / "main.py").write_text(
        "import work\nfrom tvm.contrib.popen_pool import PopenWorker\n"
        "w = PopenWorker()\nw.send(work.name)\nprint(w.recv())\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, "-m", "lathe.tvm", str(tmp_path / "main.py")],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "lathe\n", done.stderr


# ---- kept results


runs = []  # not closed over: what a function closes over is part of its key


def test_memoize(tmp_path, monkeypatch):
    runs.clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pickle_memoize.Cache, "_caches", {})

    def make(factor):
        @pickle_memoize.memoize("test.key")
        def f(x):
            runs.append(x)
            return np.full(2, x * factor)

        return f

    assert make(2)(3).tolist() == [6, 6] and make(2)(3).tolist() == [6, 6] and runs == [3]
    assert make(5)(3).tolist() == [15, 15] and runs == [3, 3]
    monkeypatch.setattr(pickle_memoize.Cache, "_caches", {})  # as another process would find it
    assert make(2)(3).tolist() == [6, 6] and len(runs) == 2 and os.listdir(pickle_memoize.FOLDER) == ["test.key.pkl"]
    monkeypatch.setattr(pickle_memoize.Cache, "_caches", {})
    pathlib.Path(pickle_memoize.FOLDER, "test.key.pkl").write_text("broken")
    with pytest.warns(UserWarning, match="cannot be read"):
        assert make(2)(3).tolist() == [6, 6] and len(runs) == 3


# ---- extern functions


@pytest.mark.parametrize("transa, transb", [(False, False), (True, False), (False, True), (True, True)])
def test_cblas_matmul(target, transa, transb):
    n, m, k = 5, 7, 3
    A = te.placeholder((k, n) if transa else (n, k), name="A")
    B = te.placeholder((m, k) if transb else (k, m), name="B")
    C = cblas.matmul(A, B, transa, transb)
    D = te.compute(C.shape, lambda i, j: C[i, j] + 1.0, name="D")
    f = tvm.build(te.create_schedule(D.op), [A, B, D], target)
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=[int(s) for s in t.shape]).astype("float32") for t in (A, B))
    d = tvm.nd.empty((n, m))
    f(a, b, d)
    tvm.testing.assert_allclose(d.numpy(), (a.T if transa else a) @ (b.T if transb else b) + 1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("iterative", [False, True])
def test_cblas_batch_matmul(target, iterative):
    A, B = te.placeholder((2, 4, 3), name="A"), te.placeholder((2, 5, 3), name="B")
    C = cblas.batch_matmul(A, B, transb=True, iterative=iterative)
    f = tvm.build(te.create_schedule(C.op), [A, B, C], target)
    rng = np.random.default_rng(1)
    a, b, c = (
        rng.normal(size=(2, 4, 3)).astype("float32"),
        rng.normal(size=(2, 5, 3)).astype("float32"),
        tvm.nd.empty((2, 4, 5)),
    )
    f(a, b, c)
    tvm.testing.assert_allclose(c.numpy(), np.einsum("bik,bjk->bij", a, b), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="dimensions"):
        cblas.matmul(A, te.placeholder((3, 3)))


def test_cblas_sums_are_of_the_type_of_the_result(target):
    A, B = te.placeholder((2, 9), "int8", name="A"), te.placeholder((9, 2), "int8", name="B")
    C = cblas.matmul(A, B, dtype="int32")
    c = tvm.nd.empty((2, 2), "int32")
    tvm.build(te.create_schedule(C.op), [A, B, C], target)(
        np.full((2, 9), 100, "int8"), np.full((9, 2), 100, "int8"), c
    )
    assert (c.numpy() == 90000).all()


def test_random(target):
    seed = tvm.get_global_func("tvm.contrib.random.seed")

    def draw(T):
        f, out = tvm.build(te.create_schedule(T.op), [T], target), tvm.nd.empty((64, 64), T.dtype)
        f(out)
        return out.numpy()

    ints = draw(random.randint(-3, 4, (64, 64)))
    assert ints.dtype == "int32" and set(np.unique(ints)) == set(range(-3, 4))
    u = draw(random.uniform(2.0, 3.0, (64, 64)))
    assert u.min() >= 2 and u.max() <= 3 and abs(u.mean() - 2.5) < 0.02
    seed(5)
    first = draw(random.normal(1.0, 2.0, (64, 64)))
    assert abs(first.mean() - 1) < 0.15 and abs(first.std() - 2) < 0.15
    seed(5)
    assert (draw(random.normal(1.0, 2.0, (64, 64))) == first).all()
    assert (draw(random.normal(1.0, 2.0, (64, 64))) != first).any()


def test_sparse(target):
    rng = np.random.default_rng(3)
    dense = np.where(rng.random((6, 8)) < 0.3, rng.normal(size=(6, 8)), 0).astype("float32")
    a = sparse.array(dense)
    assert (
        a.shape == (6, 8) and a.stype == "csr" and (a.numpy() == dense).all() and a.data.shape == ((dense != 0).sum(),)
    )
    again = sparse.array((a.data.numpy(), a.indices.numpy(), a.indptr.numpy()), shape=(6, 8))
    assert (again.asnumpy() == dense).all()
    A = sparse.placeholder((6, 8), nonzeros=te.var("nnz"), name="A")
    B = te.compute(A.data.shape, lambda i: A.data[i] * 2.0, name="B")
    out = tvm.nd.empty(a.data.shape)
    tvm.build(te.create_schedule(B.op), [A.data, B], target)(a.data, out)
    assert (out.numpy() == a.data.numpy() * 2).all() and [int(d) for d in A.indptr.shape] == [7]
    with pytest.raises(ValueError, match="nonzeros"):
        sparse.placeholder((2, 2))
    with pytest.raises(NotImplementedError, match="coo"):
        sparse.array(dense, stype="coo")


def test_a_program_with_extern_functions(target):
    """As TVM's page on extern operators goes: a library's product, a compiled sum, a function of the user's."""
    n, k, m = 24, 8, 13
    bias = te.var("bias", dtype="float32")
    A, B = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    assert tvm.get_global_func("tvm.contrib.cblas.matmul", allow_missing=True)
    C = te.extern(
        (n, m),
        [A, B],
        lambda ins, outs: tvm.tir.call_packed("tvm.contrib.cblas.matmul", ins[0], ins[1], outs[0], False, False),
        name="C",
    )
    D = te.compute(C.shape, lambda i, j: C[i, j] + bias, name="D")

    @tvm.register_func("test_tvm_contrib.add_one", override=True)
    def add_one(x, y):
        tvm.nd.array(x.numpy() + 1).copyto(y)

    E = te.extern((n, m), [D], lambda ins, outs: tvm.tir.call_packed("test_tvm_contrib.add_one", ins[0], outs[0]))
    f = tvm.build(te.create_schedule(E.op), [A, B, E, bias], target)
    rng = np.random.default_rng(2)
    a, b = rng.uniform(size=(n, k)).astype("float32"), rng.uniform(size=(k, m)).astype("float32")
    out = tvm.nd.array(np.zeros((n, m), "float32"), tvm.cpu(0))
    f(tvm.nd.array(a), tvm.nd.array(b), out, 10.0)
    tvm.testing.assert_allclose(out.numpy(), a @ b + 11, rtol=1e-5)
