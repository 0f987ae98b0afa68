"""Operators that have modes, in all their combinations, against the formula of each mode written in numpy."""

import itertools
import math

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.contrib import graph_executor


def values_of(args, expressions):
    """What each expression (of the parameters) gives; compiled together, as the outputs of one function."""
    params = [relay.var(f"x{i}", shape=a.shape, dtype=a.dtype.name) for i, a in enumerate(args)]
    body = relay.Tuple([make(*params) for make in expressions])
    lib = relay.build(lathe.IRModule.from_expr(relay.Function(params, body)))
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    for i, a in enumerate(args):
        m.set_input(i, a)
    m.run()
    return [m.get_output(i).numpy() for i in range(len(expressions))]


def check(args, cases):
    """cases: (name, expression of the parameters, what is wanted)."""
    got = values_of(args, [make for _, make, _ in cases])
    for (name, _, want), value in zip(cases, got):
        np.testing.assert_allclose(value, want, rtol=1e-4, atol=1e-4, err_msg=name)


# ---- resizing

def place(mode, x, n, out, start, end):
    """Where position x of out lies among n elements."""
    if mode == "align_corners":
        return x * (n - 1) / (out - 1) if out > 1 else 0.0
    if mode == "asymmetric":
        return x * n / out
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) * n / out
    if mode == "tf_crop_and_resize":
        if out == 1:
            return 0.5 * (start + end) * (n - 1)
        return start * (n - 1) + x * (end - start) * (n - 1) / (out - 1)
    if mode == "pytorch_half_pixel" and out == 1:
        return 0.0
    return (x + 0.5) * n / out - 0.5


ROUNDINGS = {
    "round": lambda p: math.floor(abs(p) + 0.5) * (1 if p >= 0 else -1),
    "floor": lambda p: math.floor(p + 1e-9),
    "ceil": lambda p: math.ceil(p - 1e-9),
    "round_prefer_floor": lambda p: math.ceil(p - 0.5),
    "round_prefer_ceil": lambda p: math.floor(p + 0.5),
}


def cubic_weight(x, a):
    x = abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def matrix(method, mode, rounding, n, out, start=0.0, end=1.0, alpha=-0.5, exclude=False):
    """Resizing an axis is a product with this matrix; and which rows lie outside of the data."""
    m = np.zeros((out, n))
    outside = np.zeros(out, bool)
    for x in range(out):
        p = place(mode, x, n, out, start, end)
        outside[x] = p < 0 or p > n - 1
        if method == "nearest_neighbor":
            name = rounding or ("round" if mode == "align_corners" else "floor")
            taps = [(ROUNDINGS[name](p), 1.0)]
        elif method == "linear":
            low = math.floor(p)
            taps = [(low, 1 - (p - low)), (low + 1, p - low)]
        else:
            low = math.floor(p)
            taps = [(low + k, cubic_weight(p - low - k, alpha)) for k in (-1, 0, 1, 2)]
            if exclude:
                taps = [(i, w if 0 <= i < n else 0.0) for i, w in taps]
                total = sum(w for _, w in taps)
                taps = [(i, w / total) for i, w in taps]
        for i, w in taps:
            m[x, min(max(i, 0), n - 1)] += w
    return m, outside


def resized(x, sizes, method, mode, rounding="", roi=None, exclude=False, alpha=-0.5, extrapolation=0.0):
    """The last axes of x at other sizes."""
    k = len(sizes)
    outside = np.zeros(sizes, bool)
    for d, out in enumerate(sizes):
        axis = x.ndim - k + d
        start, end = (roi[d], roi[k + d]) if roi else (0.0, 1.0)
        m, rows = matrix(method, mode, rounding, x.shape[axis], out, start, end, alpha, exclude)
        x = np.moveaxis(np.tensordot(m, x, (1, axis)), 0, axis)
        outside |= rows.reshape([-1 if i == d else 1 for i in range(k)])
    return np.where(outside, extrapolation, x) if mode == "tf_crop_and_resize" else x


MODES = [
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
]


def test_nearest_by_default_rounds_down_but_for_align_corners():
    x = np.arange(4, dtype="float32").reshape(1, 1, 4)
    for mode, want in [("half_pixel", [0, 0, 0, 1, 1, 2, 2, 3]), ("asymmetric", [0, 0, 1, 1, 2, 2, 3, 3]),
                       ("align_corners", [0, 0, 1, 1, 2, 2, 3, 3])]:
        def resize(v, mode=mode):
            return relay.image.resize1d(v, (8,), method="nearest_neighbor", coordinate_transformation_mode=mode)
        np.testing.assert_array_equal(values_of([x], [resize])[0].ravel(), want, err_msg=mode)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
def test_resize(rng, dims, method):
    x = rng.normal(size=(1, 2, 5, 4, 3)[:2 + dims]).astype("float32")
    op = [relay.image.resize1d, relay.image.resize2d, relay.image.resize3d][dims - 1]
    sizes = [(8, 8, 6)[:dims], (7, 2, 4)[:dims], (1, 9, 1)[:dims]]
    roundings = ["", *ROUNDINGS] if method == "nearest_neighbor" else [""]
    excludes = [0, 1] if method == "cubic" else [0]
    cases = []
    for mode, rounding, exclude, size in itertools.product(MODES, roundings, excludes, sizes):
        roi = (*(0.125, -0.25, 0.0)[:dims], *(0.875, 1.1, 1.25)[:dims])
        options = dict(method=method, coordinate_transformation_mode=mode, rounding_method=rounding, roi=roi,
                       cubic_alpha=-0.6, cubic_exclude=exclude, extrapolation_value=7.0)
        want = resized(x, size, method, mode, rounding, roi, exclude, -0.6, 7.0)
        cases.append((f"{mode} {rounding} {exclude} {size}", lambda v, s=size, o=options: op(v, s, **o), want))
    check([x], cases)


def test_upsampling(rng):
    x = rng.normal(size=(1, 2, 5, 4)).astype("float32")
    cases = []
    for method, corners, scale in itertools.product(["nearest_neighbor", "bilinear", "bicubic"], [False, True],
                                                    [(2, 2), (3, 2), (1.5, 2.5)]):
        size = tuple(int(n * s + 0.5) for n, s in zip(x.shape[2:], scale))
        mode = "align_corners" if corners else "asymmetric"
        want = resized(x, size, method[2:] if method[:2] == "bi" else method, mode)
        cases.append((f"{method} {corners} {scale}",
                      lambda v, s=scale, m=method, c=corners: relay.nn.upsampling(v, *s, "NCHW", m, c), want))
    check([x], cases)


# ---- points between elements

def reflect(p, low, high):
    if high <= low:
        return low
    while p < low or p > high:
        p = 2 * low - p if p < low else 2 * high - p
    return p


def sampled(data, grid, method, padding, corners):
    """data (n, c, spatial…) at the points of grid (n, coordinates, spatial…), x first."""
    k = data.ndim - 2
    out = np.zeros((*data.shape[:2], *grid.shape[2:]))
    for at in np.ndindex(grid.shape[0], *grid.shape[2:]):
        taps = []
        for d, n in enumerate(data.shape[2:]):
            g = float(grid[(at[0], k - 1 - d, *at[1:])])
            p = (g + 1) * (n - 1) / 2 if corners else (g + 1) * n / 2 - 0.5
            ends = (0, n - 1) if corners else (-0.5, n - 0.5)
            if padding == "reflection":
                p = reflect(p, *ends)
            if padding != "zeros" and method != "bicubic":      # its taps are clipped instead
                p = min(max(p, 0), n - 1)
            low = math.floor(p)
            if method == "nearest":
                near = [(int(np.rint(p)), 1.0)]
            elif method == "bilinear":
                near = [(low, 1 - (p - low)), (low + 1, p - low)]
            else:
                near = [(low + i, cubic_weight(p - low - i, -0.75)) for i in (-1, 0, 1, 2)]
            if padding == "reflection":
                near = [(int(np.rint(reflect(i, *ends))), w) for i, w in near]
            if padding != "zeros":
                near = [(min(max(i, 0), n - 1), w) for i, w in near]
            taps.append([(i, w) for i, w in near if 0 <= i < n])
        for choice in itertools.product(*taps):
            weight = math.prod(w for _, w in choice)
            out[(at[0], slice(None), *at[1:])] += weight * data[(at[0], slice(None), *(i for i, _ in choice))]
    return out


@pytest.mark.parametrize("dims", [2, 3])
def test_grid_sample(rng, dims):
    data = rng.normal(size=(2, 2, 5, 4, 3)[:2 + dims]).astype("float32")
    grid = rng.uniform(-2.7, 2.7, (2, dims, 6, 7, 2)[:2 + dims]).astype("float32")
    methods = ["nearest", "bilinear"] + ["bicubic"] * (dims == 2)
    cases = []
    for method, padding, corners in itertools.product(methods, ["zeros", "border", "reflection"], [False, True]):
        want = sampled(data, grid, method, padding, corners)
        layout = "NCHW" if dims == 2 else "NCDHW"
        cases.append((f"{method} {padding} {corners}",
                      lambda x, g, m=method, p=padding, c=corners, l=layout: relay.image.grid_sample(x, g, m, l, p, c),
                      want))
    check([data, grid], cases)


# ---- boxes

def interpolated(image, y, x):
    """image (c, h, w) between its elements; nothing further than one element outside."""
    h, w = image.shape[1:]
    if y < -1 or x < -1 or y > h or x > w:
        return np.zeros(image.shape[0])
    y, x = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
    top, left = math.floor(y), math.floor(x)
    bottom, right = min(top + 1, h - 1), min(left + 1, w - 1)
    upper = image[:, top, left] * (1 - (x - left)) + image[:, top, right] * (x - left)
    lower = image[:, bottom, left] * (1 - (x - left)) + image[:, bottom, right] * (x - left)
    return upper * (1 - (y - top)) + lower * (y - top)


def aligned(data, rois, pooled, scale, ratio, mode):
    out = np.zeros((len(rois), data.shape[1], *pooled))
    for r, (batch, *box) in enumerate(rois):
        x1, y1, x2, y2 = (float(v) * scale for v in box)
        bins = max(y2 - y1, 1) / pooled[0], max(x2 - x1, 1) / pooled[1]
        points = [ratio if ratio > 0 else math.ceil(b) for b in bins]
        for i, j in np.ndindex(*pooled):
            values = [interpolated(data[int(batch)], y1 + (i + (a + 0.5) / points[0]) * bins[0],
                                   x1 + (j + (b + 0.5) / points[1]) * bins[1]) for a, b in np.ndindex(*points)]
            out[r, :, i, j] = np.mean(values, 0) if mode == "avg" else np.max(values, 0)
    return out


def test_roi_align(rng):
    data = rng.normal(size=(2, 3, 9, 8)).astype("float32")
    rois = np.array([[0, 1, 1, 6.5, 7], [1, 0, 2, 3, 3.2], [0, -3, -2, 20, 15], [1, 4, 4, 4.2, 4.1], [0, 5, 5, 3, 3]],
                    "float32")
    cases = []
    for mode, ratio, scale in itertools.product(["avg", "max"], [-1, 1, 2, 3], [1.0, 0.5]):
        cases.append((f"{mode} {ratio} {scale}",
                      lambda x, b, m=mode, r=ratio, s=scale: relay.vision.roi_align(x, b, (3, 2), s, r, "NCHW", m),
                      aligned(data, rois, (3, 2), scale, ratio, mode)))
    check([data, rois], cases)


# ---- the same operators as ONNX has them, against ONNX Runtime

def onnx_outputs(op, feeds, attributes, opset):
    """What ONNX Runtime and we give for one node with each of several sets of attributes."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    kinds = {"float32": onnx.TensorProto.FLOAT, "int64": onnx.TensorProto.INT64}
    inputs = [onnx.helper.make_tensor_value_info(k, kinds[v.dtype.name], v.shape) for k, v in feeds.items()]
    nodes = [onnx.helper.make_node(op, list(feeds), [f"y{i}"], **a) for i, a in enumerate(attributes)]
    outputs = [onnx.ValueInfoProto(name=f"y{i}") for i in range(len(nodes))]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", inputs, outputs), ir_version=9,
                                   opset_imports=[onnx.helper.make_opsetid("", opset)])
    want = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    m = graph_executor.GraphModule(relay.build(relay.frontend.from_onnx(model)[0])["default"](lathe.cpu(0)))
    m.run(**feeds)
    return want, [m.get_output(i).numpy() for i in range(len(nodes))]


def agree(op, feeds, attributes, opset):
    for a, want, got in zip(attributes, *onnx_outputs(op, feeds, attributes, opset)):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=f"{op} {a}")


def test_onnx_grid_sample_rounds_points_before_it_reflects_them():
    places = np.arange(-3.5, 7)                 # half way between elements
    grid = np.zeros((1, 1, len(places), 2), "float32")
    grid[..., 0], grid[..., 1] = (places + 0.5) / 2 - 1, -0.75
    feeds = {"x": np.arange(16, dtype="float32").reshape(1, 1, 4, 4), "g": grid}
    agree("GridSample", feeds, [dict(mode="nearest", padding_mode=p) for p in ["zeros", "border", "reflection"]], 20)


def test_onnx_grid_sample(rng):
    feeds = {"x": rng.normal(size=(2, 2, 5, 4)).astype("float32"),
             "g": rng.uniform(-2.7, 2.7, (2, 6, 7, 2)).astype("float32")}
    agree("GridSample", feeds, [dict(mode=m, padding_mode=p, align_corners=c) for m, p, c in itertools.product(
        ["linear", "nearest", "cubic"], ["zeros", "border", "reflection"], [0, 1])], 20)


def test_onnx_roi_align(rng):
    feeds = {"x": rng.normal(size=(2, 3, 9, 8)).astype("float32"),
             "rois": np.array([[1, 1, 6.5, 7], [0, 2, 3, 3.2], [2, 1, 7.5, 8], [4, 4, 4.2, 4.1]], "float32"),
             "batch": np.array([0, 1, 0, 1], "int64")}
    agree(
        "RoiAlign",
        feeds,
        [
            dict(
                mode=m,
                coordinate_transformation_mode=c,
                sampling_ratio=r,
                spatial_scale=s,
                output_height=3,
                output_width=2,
            )
            for m, c, r, s in itertools.product(
                ["avg", "max"], ["half_pixel", "output_half_pixel"], [0, 1, 2], [1.0, 0.5]
            )
        ],
        16,
    )
