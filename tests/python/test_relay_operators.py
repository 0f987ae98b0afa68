"""Operators of TVM's list, each against numpy: compiled, and by the interpreter."""

import numpy as np
import pytest

import lathe
from lathe import relay

RNG = np.random.default_rng(7)


def run(make, *arrays, kinds=("debug", "graph")):
    """The results of make(variables), which every executor must agree on."""
    xs = [relay.var(f"x{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(arrays)]
    body = make(*xs)
    f = relay.Function(xs, body.astuple() if isinstance(body, relay.TupleWrapper) else body)
    outs = []
    for kind in kinds:
        out = relay.create_executor(kind).evaluate(f)(*arrays)
        outs.append([o.numpy() for o in (out if isinstance(out, (list, tuple)) else [out])])
    for other in outs[1:]:
        for a, b in zip(outs[0], other):
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    return outs[0]


def numbers(*shape, low=-1.0, high=1.0):
    return RNG.uniform(low, high, shape).astype("float32")


# ---- boxes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps, clip", [((-1.0, -1.0), False), ((0.2, 0.1), True)])
def test_multibox_prior(steps, clip):
    sizes, ratios, (h, w) = (0.3, 0.5), (1.0, 2.0, 0.5), (3, 4)
    want = []
    for i in range(h):
        for j in range(w):
            y = (i + 0.5) * (steps[0] if steps[0] > 0 else 1 / h)
            x = (j + 0.25) * (steps[1] if steps[1] > 0 else 1 / w)
            kinds = [(s, 1.0) for s in sizes] + [(sizes[0], np.sqrt(r)) for r in ratios[1:]]
            for size, root in kinds:
                half_w, half_h = size * h / w * root / 2, size / root / 2
                want.append([x - half_w, y - half_h, x + half_w, y + half_h])
    want = np.array(want)[None]
    (have,) = run(
        lambda x: relay.vision.multibox_prior(x, sizes, ratios, steps, (0.5, 0.25), clip), numbers(1, 2, h, w)
    )
    np.testing.assert_allclose(have, np.clip(want, 0, 1) if clip else want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clip", [True, False])
def test_multibox_transform_loc(clip):
    batch, classes, n = 2, 3, 5
    prob, loc, anchor = (
        numbers(batch, classes, n, low=0),
        numbers(batch, n * 4, low=-2, high=2),
        numbers(1, n, 4, low=0),
    )
    variances, threshold = (0.1, 0.2, 0.3, 0.4), 0.5
    rows, counts = np.full((batch, n, 6), -1.0), np.zeros(batch, "int32")
    for b in range(batch):
        for j in range(n):
            best = 1 + int(np.argmax(prob[b, 1:, j]))
            if prob[b, best, j] < threshold:
                continue
            left, top, right, bottom = anchor[0, j]
            px, py, pw, ph = loc[b, 4 * j : 4 * j + 4] * variances
            x, y = px * (right - left) + (left + right) / 2, py * (bottom - top) + (top + bottom) / 2
            dx, dy = np.exp(pw) * (right - left) / 2, np.exp(ph) * (bottom - top) / 2
            box = np.array([x - dx, y - dy, x + dx, y + dy])
            rows[b, counts[b]] = [best - 1, prob[b, best, j], *(np.clip(box, 0, 1) if clip else box)]
            counts[b] += 1
    assert 0 < counts.sum() < batch * n
    have, number = run(
        lambda *x: relay.vision.multibox_transform_loc(*x, clip, threshold, variances), prob, loc, anchor
    )
    np.testing.assert_array_equal(number, counts)
    np.testing.assert_allclose(have, rows, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("id_index, score_index", [(0, 1), (-1, 0)])
def test_get_valid_counts(id_index, score_index):
    data = numbers(2, 6, 6)
    want, where, counts = np.full(data.shape, -1, "float32"), np.full((2, 6), -1), np.zeros(2, "int32")
    for b in range(2):
        for j in range(6):
            if data[b, j, score_index] > 0.1 and (id_index < 0 or data[b, j, id_index] >= 0):
                want[b, counts[b]], where[b, counts[b]] = data[b, j], j
                counts[b] += 1
    assert 0 < counts.sum() < 12
    have = run(lambda x: relay.vision.get_valid_counts(x, 0.1, id_index, score_index), data)
    for a, b in zip(have, (counts, want, where)):
        np.testing.assert_array_equal(a, b)


def suppressed(data, valid, indices, limit, iou, force, top_k, coord, score, ident, return_indices, bottom):
    """The rule, box by box."""
    out, where = np.full(data.shape, -1.0, "float32"), np.full(data.shape[:2], -1)

    def overlap(p, q):
        lo, hi = np.maximum(p[:2], q[:2]), np.minimum(p[2:], q[2:])
        inner = np.prod(np.maximum(hi - lo, 0))
        whole = np.prod(p[2:] - p[:2]) + np.prod(q[2:] - q[:2]) - inner
        return inner / whole if whole > 0 else 0

    for b in range(len(data)):
        order = sorted(range(valid[b]), key=lambda j: -data[b, j, score])
        if iou <= 0:
            for j in range(valid[b]):
                out[b, j], where[b, j] = data[b, j], indices[b, j]
            continue
        kept = []
        for p, j in enumerate(order[: top_k if top_k > 0 else None]):
            if len(kept) == limit:
                break
            if data[b, j, score] > 0:
                rivals = [
                    k
                    for k in kept
                    if ident < 0 or (data[b, k, ident] >= 0 and (force or data[b, k, ident] == data[b, j, ident]))
                ]
                if any(overlap(data[b, j, coord : coord + 4], data[b, k, coord : coord + 4]) >= iou for k in rivals):
                    continue
                kept.append(j)
            out[b, p], where[b, p] = data[b, j], indices[b, j]
    if return_indices:
        found = [[w for w in row if w >= 0] for row in where]
        return [np.array([f + [-1] * (data.shape[1] - len(f)) for f in found]), np.array([[len(f)] for f in found])]
    if bottom:
        for b in range(len(out)):
            rows = [r for r in out[b] if r[0] >= 0]
            out[b] = np.array(rows + [np.full(data.shape[2], -1)] * (data.shape[1] - len(rows)))
    return [out]


@pytest.mark.parametrize("case", range(40))
def test_non_max_suppression(case):
    rng = np.random.default_rng(case)
    corner = rng.uniform(0, 0.6, (2, 9, 2))
    ids, scores = rng.integers(-1, 2, (2, 9, 1)), rng.uniform(-0.2, 1, (2, 9, 1))
    boxes = np.concatenate([corner, corner + rng.uniform(0.1, 0.4, (2, 9, 2))], 2)
    classes = case % 4 != 3
    data = np.concatenate([ids, scores, boxes] if classes else [scores, boxes], 2).astype("float32")
    valid, indices = rng.integers(0, 10, 2).astype("int32"), np.array([rng.permutation(9) for _ in range(2)], "int32")
    options = [
        int(rng.choice([-1, 2, 4])),
        float(rng.choice([0.3, 0.5, 0.0])),
        bool(rng.integers(2)),
        int(rng.choice([-1, 3, 6])),
    ]
    options += [2, 1, 0] if classes else [1, 0, -1]
    options += [bool(case % 2), bool(rng.integers(2))]
    have = run(lambda *x: relay.vision.non_max_suppression(*x, *options), data, valid, indices)
    for a, b in zip(have, suppressed(data, valid, indices, *options)):
        np.testing.assert_array_equal(a, b)


def test_non_max_suppression_of_the_documented_boxes():
    data = np.array(
        [
            [
                [0, 0.8, 1, 20, 25, 45],
                [1, 0.7, 30, 60, 50, 80],
                [0, 0.4, 4, 21, 19, 40],
                [2, 0.9, 35, 61, 52, 79],
                [1, 0.5, 100, 60, 70, 110],
            ]
        ],
        "float32",
    )
    args = (data, np.array([4], "int32"), np.array([[0, 1, 3, 4, -1]], "int32"))
    (have,) = run(lambda *x: relay.vision.non_max_suppression(*x, -1, 0.7, True, 2, return_indices=False), *args)
    np.testing.assert_array_equal(have[0], [data[0, 3], data[0, 0], [-1] * 6, [-1] * 6, [-1] * 6])
    where, count = run(lambda *x: relay.vision.non_max_suppression(*x, -1, 0.7, True, 2), *args)
    np.testing.assert_array_equal(where, [[4, 0, -1, -1, -1]])
    assert count.tolist() == [[2]]


@pytest.mark.parametrize("shape, stride", [((1, 8, 4, 6), 2), ((2, 4, 2, 2), 2), ((1, 9, 3, 6), 3)])
def test_yolo_reorg(shape, stride):
    x = numbers(*shape)
    n, c, h, w = shape
    depth, flat, want = c // stride**2, x.reshape(-1), np.zeros(x.size, "float32")
    for b, k, j, i in np.ndindex(*shape):
        part = k // depth
        y2, x2 = j * stride + part // stride, i * stride + part % stride
        want[i + w * (j + h * (k + c * b))] = flat[x2 + w * stride * (y2 + h * stride * (k % depth + depth * b))]
    (have,) = run(lambda v: relay.vision.yolo_reorg(v, stride), x)
    np.testing.assert_array_equal(have, want.reshape(n, c * stride**2, h // stride, w // stride))


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda x: relay.vision.yolo_reorg(x, 3), "multiple of 9"),
        (lambda x: relay.vision.multibox_prior(x, sizes=()), "sizes and ratios have an element"),
        (lambda x: relay.vision.get_valid_counts(x, 0.5), "batch, boxes, elements"),
        (
            lambda x: relay.vision.get_valid_counts(relay.reshape(x, (1, 4, -1)), 0.5, score_index=99),
            "score_index is 99",
        ),
    ],
)
def test_boxes_that_do_not_fit_are_refused(make, says):
    with pytest.raises(lathe.error.LatheError, match=says):
        make(relay.var("x", shape=(1, 4, 2, 2)))


# ---- windows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "stride, pad, dilation", [((1, 1), (0, 0), (1, 1)), ((2, 1), (1, 2), (1, 2)), ((1, 2), (1, 0, 2, 1), (2, 1))]
)
def test_dilation2d(layout, stride, pad, dilation):
    x, w = numbers(2, 3, 7, 8), numbers(3, 2, 3)
    top, left, bottom, right = pad if len(pad) == 4 else pad + pad
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    span = [(k - 1) * d + 1 for k, d in zip((2, 3), dilation)]
    size = [(n - s) // t + 1 for n, s, t in zip(padded.shape[2:], span, stride)]
    want = np.full((2, 3, *size), -np.inf)
    for i, j in np.ndindex(2, 3):
        rows = np.arange(size[0]) * stride[0] + i * dilation[0]
        columns = np.arange(size[1]) * stride[1] + j * dilation[1]
        want = np.maximum(want, padded[:, :, rows][:, :, :, columns] + w[None, :, i, j, None, None])
    nchw = layout == "NCHW"
    data, weight = (
        (x, w) if nchw else (np.ascontiguousarray(x.transpose(0, 2, 3, 1)), np.ascontiguousarray(w.transpose(1, 2, 0)))
    )
    (have,) = run(
        lambda a, b: relay.image.dilation2d(a, b, stride, pad, dilation, layout, "IHW" if nchw else "HWI"), data, weight
    )
    np.testing.assert_allclose(have if nchw else have.transpose(0, 3, 1, 2), want, rtol=1e-6)


@pytest.mark.parametrize(
    "kernel, reach, stride1, stride2, pad, multiply",
    [(1, 2, 1, 1, (2, 2), True), (3, 2, 2, 1, (3, 3), True), (3, 4, 1, 2, (4, 5), False)],
)
def test_correlation(kernel, reach, stride1, stride2, pad, multiply):
    x, y = numbers(1, 2, 9, 10), numbers(1, 2, 9, 10)
    p, q = (np.pad(v, ((0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2)) for v in (x, y))
    moves = np.arange(-(reach // stride2), reach // stride2 + 1) * stride2
    size = [-(-(n - 2 * (reach + kernel // 2)) // stride1) for n in p.shape[2:]]
    want = np.zeros((1, len(moves) ** 2, *size))
    for o, i, j in np.ndindex(*want.shape[1:]):
        r, c = i * stride1 + reach, j * stride1 + reach
        dy, dx = moves[o // len(moves)], moves[o % len(moves)]
        a, b = p[0, :, r : r + kernel, c : c + kernel], q[0, :, r + dy : r + dy + kernel, c + dx : c + dx + kernel]
        want[0, o, i, j] = (a * b if multiply else np.abs(a - b)).mean()
    (have,) = run(lambda a, b: relay.nn.correlation(a, b, kernel, reach, stride1, stride2, pad, multiply, "NCHW"), x, y)
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-6)


def test_upsampling3d():
    x = numbers(1, 2, 2, 3, 2)
    (have,) = run(lambda v: relay.nn.upsampling3d(v, 2, 1, 3, coordinate_transformation_mode="asymmetric"), x)
    np.testing.assert_array_equal(have, x.repeat(2, 2).repeat(3, 4))
    centers = np.maximum(np.floor((np.arange(6) + 0.5) / 3 - 0.5), 0).astype(int)  # half_pixel, rounded down
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 4, 1))
    (have,) = run(lambda v: relay.nn.upsampling3d(v, 1, 1, 3, layout="NDHWC"), last)
    np.testing.assert_array_equal(have, last[:, :, :, centers])
    (have,) = run(
        lambda v: relay.nn.upsampling3d(v, 1, 1, 2, method="trilinear", coordinate_transformation_mode="align_corners"),
        x,
    )
    np.testing.assert_allclose(have[..., 1], x[..., 0] * 2 / 3 + x[..., 1] / 3, rtol=1e-5)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_global_pools(kind):
    reduce = np.max if kind == "max" else np.mean
    for d, layout in ((1, "NWC"), (3, "NDHWC")):
        x = numbers(2, 3, *range(4, 4 + d))
        (have,) = run(getattr(relay.nn, f"global_{kind}_pool{d}d"), x)
        np.testing.assert_allclose(have, reduce(x, axis=tuple(range(2, 2 + d)), keepdims=True), rtol=1e-5, atol=1e-6)
        (have,) = run(lambda v: getattr(relay.nn, f"global_{kind}_pool{d}d")(v, layout=layout), x)
        np.testing.assert_allclose(have, reduce(x, axis=tuple(range(1, 1 + d)), keepdims=True), rtol=1e-5, atol=1e-6)


def test_cross_entropy():
    p, t = numbers(3, 4, low=0.1), numbers(3, 4, low=0)
    (have,) = run(relay.nn.cross_entropy, p, t)
    np.testing.assert_allclose(have, -(np.log(p) * t).sum() / 3, rtol=1e-5)
    (have,) = run(relay.nn.cross_entropy_with_logits, p, t)
    np.testing.assert_allclose(have, -(p * t).sum() / 3, rtol=1e-5)


# ---- sparse -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "indices, shape, values, default, want",
    [
        (1, (5,), 3.0, 0.0, [0, 3, 0, 0, 0]),
        ([0, 4, 4], (5,), [3.0, 1.0, 2.0], 9.0, [3, 9, 9, 9, 2]),
        ([[0, 0], [1, 2]], (2, 3), [1.0, 2.0], 0.0, [[1, 0, 0], [0, 0, 2]]),
        ([[0, 1], [1, 7]], (2, 3), 1.5, 0.0, [[0, 1.5, 0], [0, 0, 0]]),
    ],
)
def test_sparse_to_dense(indices, shape, values, default, want):
    at, v = np.array(indices, "int32"), np.array(values, "float32")
    (have,) = run(lambda i, x: relay.sparse_to_dense(i, shape, x, default), at, v)
    np.testing.assert_array_equal(have, np.array(want, "float32"))


@pytest.mark.parametrize(
    "before, after", [((2, 3, 6), (9, 4)), ((2, 3, 6), (9, -1)), ((2, 3, 4), (-1,)), ((8,), (2, 2, -1))]
)
def test_sparse_reshape(before, after):
    rng = np.random.default_rng(3)
    flat = np.sort(rng.choice(int(np.prod(before)), 5, replace=False))
    places = np.stack(np.unravel_index(flat, before), 1).astype("int64")
    shape = np.zeros(before).reshape(after).shape
    have, new = run(relay.sparse_reshape, places, np.array(before, "int64"), np.array(after, "int64"))
    np.testing.assert_array_equal(have, np.stack(np.unravel_index(flat, shape), 1))
    assert new.tolist() == list(shape)


def compressed(matrix, rows=1, columns=1):
    """data, indices and indptr of the blocks of a matrix that are not zero."""
    h, w = matrix.shape[0] // rows, matrix.shape[1] // columns
    blocks = matrix.reshape(h, rows, w, columns).transpose(0, 2, 1, 3)
    some = blocks.any((2, 3))
    data, indptr = blocks[some], np.concatenate([[0], np.cumsum(some.sum(1))]).astype("int32")
    return data if rows * columns > 1 else data.reshape(-1), np.nonzero(some)[1].astype("int32"), indptr


@pytest.mark.parametrize("block", [(1, 1), (2, 3), (1, 4)])
@pytest.mark.parametrize("lhs", [False, True])
def test_sparse_dense(block, lhs):
    weight = numbers(6, 12) * np.kron(RNG.random((6 // block[0], 12 // block[1])) < 0.4, np.ones(block)).astype(
        "float32"
    )
    x = numbers(5, 12)
    (have,) = run(lambda a, *parts: relay.nn.sparse_dense(a, parts, lhs), x, *compressed(weight, *block))
    np.testing.assert_allclose(have, weight @ x.T if lhs else x @ weight.T, rtol=1e-4, atol=1e-5)


def test_sparse_add():
    s, x = numbers(4, 5) * (RNG.random((4, 5)) < 0.4), numbers(4, 5)
    (have,) = run(lambda a, *parts: relay.nn.sparse_add(a, parts), x, *compressed(s.astype("float32")))
    np.testing.assert_allclose(have, x + s, rtol=1e-6)


def test_segment_sum():
    x, ids = numbers(6, 3), np.array([0, 0, 2, 1, 2, 4], "int32")
    want = np.zeros((5, 3), "float32")
    np.add.at(want, ids, x)
    (have,) = run(lambda d, i: relay.segment_sum(d, i, 5), x, ids)
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    (have,) = run(relay.segment_sum, x, ids, kinds=("debug", "vm"))
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("unipolar", [True, False])
@pytest.mark.parametrize("bits", [(1, 1), (2, 1), (3, 2)])
def test_bitserial(unipolar, bits):
    x, w = RNG.integers(0, 2 ** bits[0], (2, 9)).astype("uint8"), RNG.integers(0, 2 ** bits[1], (4, 9)).astype("uint8")
    signed = sum(2**b * ((w >> b & 1) * 2.0 - 1) for b in range(bits[1])) if unipolar else w.astype("float64")
    (have,) = run(lambda a, b: relay.nn.bitserial_dense(a, b, 4, *bits, unipolar=unipolar), x, w)
    assert have.dtype == "int16"
    np.testing.assert_array_equal(have, x.astype("float64") @ signed.T)
    image, kernel = x.reshape(2, 1, 3, 3), w.reshape(4, 1, 3, 3)
    make = lambda a, b: relay.nn.bitserial_conv2d(
        a, b, (1, 1), (1, 1), 4, (3, 3), *bits, unipolar=unipolar
    )  # noqa: E731
    (have,) = run(make, image, kernel)
    np.testing.assert_array_equal(have[:, :, 1, 1], x.astype("float64") @ signed.T)
    corner = image[:, 0, :2, :2].reshape(2, 4).astype("float64") @ signed.reshape(4, 3, 3)[:, 1:, 1:].reshape(4, 4).T
    np.testing.assert_array_equal(have[:, :, 0, 0], corner)


@pytest.mark.parametrize(
    "begin, end, strides",
    [((1,), (3,), None), ((0, -2), (3, 9), (2, 1)), ((2, 4), (0, -6), (-1, -2)), ((1, 1, 0), (4, 5, 2), (1, 3, 1))],
)
def test_strided_set(begin, end, strides):
    x = numbers(4, 5, 2)
    bounds = zip(begin, end, strides or [1] * 3, x.shape)
    cut = tuple(slice(b, None if s < 0 and e < -n else e, s) for b, e, s, n in bounds)
    v, want = numbers(*x[cut].shape), x.copy()
    want[cut] = v
    (have,) = run(lambda a, b: relay.strided_set(a, b, begin, end, strides), x, v)
    np.testing.assert_array_equal(have, want)
    with pytest.raises(lathe.error.ShapeError, match="axis 0 of v"):
        relay.strided_set(relay.const(x), relay.const(numbers(9, 5, 2)), begin, end, strides)
