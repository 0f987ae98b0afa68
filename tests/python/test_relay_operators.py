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
    (have,) = run(lambda x: relay.vision.multibox_prior(x, sizes, ratios, steps, (0.5, 0.25), clip), numbers(1, 2, h, w))
    np.testing.assert_allclose(have, np.clip(want, 0, 1) if clip else want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clip", [True, False])
def test_multibox_transform_loc(clip):
    batch, classes, n = 2, 3, 5
    prob, loc, anchor = numbers(batch, classes, n, low=0), numbers(batch, n * 4, low=-2, high=2), numbers(1, n, 4, low=0)
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
    have, number = run(lambda *x: relay.vision.multibox_transform_loc(*x, clip, threshold, variances), prob, loc, anchor)
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
                rivals = [k for k in kept if ident < 0 or (data[b, k, ident] >= 0 and (force or data[b, k, ident] == data[b, j, ident]))]
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
    options = [int(rng.choice([-1, 2, 4])), float(rng.choice([0.3, 0.5, 0.0])), bool(rng.integers(2)), int(rng.choice([-1, 3, 6]))]
    options += [2, 1, 0] if classes else [1, 0, -1]
    options += [bool(case % 2), bool(rng.integers(2))]
    have = run(lambda *x: relay.vision.non_max_suppression(*x, *options), data, valid, indices)
    for a, b in zip(have, suppressed(data, valid, indices, *options)):
        np.testing.assert_array_equal(a, b)


def test_non_max_suppression_of_the_documented_boxes():
    data = np.array([[[0, 0.8, 1, 20, 25, 45], [1, 0.7, 30, 60, 50, 80], [0, 0.4, 4, 21, 19, 40], [2, 0.9, 35, 61, 52, 79], [1, 0.5, 100, 60, 70, 110]]], "float32")
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
        (lambda x: relay.vision.get_valid_counts(relay.reshape(x, (1, 4, -1)), 0.5, score_index=99), "score_index is 99"),
    ],
)
def test_boxes_that_do_not_fit_are_refused(make, says):
    with pytest.raises(lathe.error.LatheError, match=says):
        make(relay.var("x", shape=(1, 4, 2, 2)))
