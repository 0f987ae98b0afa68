"""Operators that the shared graphs do not have, with shapes from networks that people run.

A row: operator, opset, inputs, attributes.  A tuple is the shape of data that comes from outside, a list
of numbers a constant, W(…) the shape of a weight."""
import collections

W = collections.namedtuple("W", "shape")


def weight(*shape):
    return W(shape)


def resized(data, factor, mode, transform="asymmetric", **more):
    return (
        "Resize",
        13,
        [data, None, [1.0, 1.0, factor, factor]],
        {"mode": mode, "coordinate_transformation_mode": transform, **more},
    )


def conv(data, kernel, group=1, stride=1, pad=0, dilation=1, op="Conv", **more):
    n = len(data) - 2
    channels = kernel[1] * group if op == "ConvTranspose" else kernel[0]
    each = {"strides": [stride] * n, "pads": [pad] * 2 * n, "dilations": [dilation] * n, "group": group}
    return (op, 13, [data, weight(*kernel), weight(channels)], each | more)


def transposed(data, kernel, **more):
    return conv(data, kernel, op="ConvTranspose", **more)


ROWS = [
    # groups: ResNeXt 32x4d, ShuffleNet, RegNet, a depth multiplier
    conv((1, 128, 56, 56), (128, 4, 3, 3), group=32, pad=1),
    conv((1, 256, 56, 56), (256, 8, 3, 3), group=32, stride=2, pad=1),
    conv((1, 256, 28, 28), (256, 8, 3, 3), group=32, pad=1),
    conv((1, 512, 14, 14), (512, 16, 3, 3), group=32, pad=1),
    conv((1, 1024, 7, 7), (1024, 32, 3, 3), group=32, pad=1),
    conv((1, 240, 28, 28), (240, 80, 1, 1), group=3),
    conv((1, 96, 28, 28), (96, 48, 3, 3), group=2, pad=1),
    conv((1, 64, 28, 28), (128, 1, 3, 3), group=64, pad=1),
    # transposed: decoders, generators, vocoders
    transposed((1, 256, 28, 28), (256, 128, 2, 2), stride=2),
    transposed((1, 64, 56, 56), (64, 32, 4, 4), stride=2, pad=1),
    transposed((1, 128, 32, 32), (128, 64, 3, 3), stride=2, pad=1, output_padding=[1, 1]),
    transposed((1, 64, 16, 16), (64, 64, 3, 3), pad=1),
    transposed((1, 100, 1, 1), (100, 512, 4, 4)),
    transposed((1, 256, 64), (256, 128, 16), stride=8, pad=4),
    transposed((1, 32, 8, 16, 16), (32, 16, 2, 2, 2), stride=2),
    transposed((1, 64, 32, 32), (64, 1, 4, 4), group=64, stride=2, pad=1),
    # one dimension: speech
    conv((1, 80, 1000), (256, 80, 5), pad=2),
    conv((1, 256, 500), (256, 256, 3), pad=1),
    conv((1, 512, 200), (512, 512, 9), pad=4),
    conv((1, 64, 2000), (128, 64, 3), pad=4, dilation=4),
    conv((1, 1, 16000), (64, 1, 80), stride=4),
    conv((1, 256, 1000), (256, 1, 31), group=256, pad=15),
    conv((1, 512, 1000), (512, 512, 1)),
    # three dimensions: video, volumes
    conv((1, 64, 8, 28, 28), (64, 64, 3, 3, 3), pad=1),
    conv((1, 3, 16, 56, 56), (64, 3, 3, 7, 7), strides=[1, 2, 2], pads=[1, 3, 3, 1, 3, 3]),
    conv((1, 128, 4, 14, 14), (128, 128, 3, 3, 3), pad=1),
    conv((1, 64, 8, 28, 28), (128, 64, 1, 1, 1)),
    conv((1, 32, 16, 16, 16), (64, 32, 3, 3, 3), stride=2, pad=1),
    conv((1, 54, 8, 28, 28), (54, 1, 3, 3, 3), group=54, pad=1),
    # channels that no block divides
    conv((1, 35, 28, 28), (51, 35, 3, 3), pad=1),
    conv((1, 64, 20, 20), (255, 64, 1, 1)),
    # detectors and segmenters: feature pyramids, decoders, class maps
    resized((1, 256, 13, 13), 2.0, "nearest", nearest_mode="floor"),
    resized((1, 64, 64, 64), 2.0, "nearest", nearest_mode="floor"),
    resized((1, 21, 65, 65), 8.0, "linear", "half_pixel"),
    resized((1, 256, 28, 28), 2.0, "linear", "align_corners"),
    resized((1, 3, 112, 112), 2.0, "cubic", "half_pixel", cubic_coeff_a=-0.75),
    resized((1, 3, 448, 448), 0.5, "linear", "half_pixel"),
    ("ArgMax", 13, [(1, 21, 128, 128)], {"axis": 1, "keepdims": 0}),
    ("Softmax", 13, [(1, 21, 64, 64)], {"axis": 1}),
    ("LeakyRelu", 16, [(1, 64, 104, 104)], {"alpha": 0.1}),
    ("PRelu", 16, [(1, 64, 56, 56), weight(64, 1, 1)], {}),
    ("Pad", 13, [(1, 64, 56, 56), [0, 0, 1, 1, 0, 0, 1, 1]], {"mode": "reflect"}),
    ("Slice", 13, [(1, 128, 56, 56), [0, 64], [1, 128], [0, 1]], {}),
    ("Split", 13, [(1, 128, 56, 56), [64, 64]], {"axis": 1}),
    ("Split", 13, [(1, 128, 2304), [768, 768, 768]], {"axis": 2}),
    # style transfer, diffusion
    ("InstanceNormalization", 13, [(1, 128, 56, 56), weight(128), weight(128)], {}),
    ("GroupNormalization", 21, [(1, 320, 32, 32), weight(320), weight(320)], {"num_groups": 32}),
    ("LRN", 13, [(1, 64, 56, 56)], {"size": 5}),
    # classifiers' heads
    ("LogSoftmax", 13, [(1, 1000)], {"axis": -1}),
    ("LogSoftmax", 13, [(32, 1000)], {"axis": -1}),
    ("Softmax", 13, [(1, 1000)], {"axis": -1}),
    ("ArgMax", 13, [(32, 1000)], {"axis": 1, "keepdims": 0}),
    ("TopK", 13, [(1, 1000), [5]], {"axis": -1}),
    ("GlobalMaxPool", 13, [(1, 512, 7, 7)], {}),
    ("AveragePool", 13, [(1, 192, 35, 35)], {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1]}),
    # transformers as exporters spell them out
    ("ReduceMean", 13, [(1, 128, 768)], {"axes": [-1]}),
    ("ReduceMean", 13, [(1, 128, 768)], {"axes": [1]}),
    ("ReduceMean", 13, [(1, 256, 28, 28)], {"axes": [2, 3]}),
    ("ReduceSum", 13, [(1, 12, 128, 128), [-1]], {}),
    ("ReduceMax", 13, [(1, 12, 128, 128)], {"axes": [-1]}),
    ("ReduceL2", 13, [(1, 128, 384)], {"axes": [-1]}),
    ("ReduceSum", 13, [(64, 128, 96), [0]], {}),
    ("ReduceSum", 13, [(64, 128, 96), [0, 2]], {}),
    ("Gelu", 20, [(1, 128, 3072)], {}),
    ("Tanh", 13, [(1, 128, 768)], {}),
    ("Softplus", 13, [(1, 128, 768)], {}),
    ("Elu", 13, [(1, 128, 768)], {}),
    ("CumSum", 14, [(1, 128, 768), [1]], {}),
    ("CumSum", 14, [(128, 768), [1]], {}),
    ("LayerNormalization", 17, [(1, 197, 192), weight(192), weight(192)], {"axis": -1}),
    ("Transpose", 13, [(1, 224, 224, 3)], {"perm": [0, 3, 1, 2]}),
    ("Transpose", 13, [(1, 3, 224, 224)], {"perm": [0, 2, 3, 1]}),
    ("Transpose", 13, [(1024, 1024)], {"perm": [1, 0]}),
    ("Transpose", 13, [(1, 256, 56, 56)], {"perm": [0, 2, 3, 1]}),
    ("Gemm", 13, [(8, 768), weight(768, 768), weight(768)], {}),
    ("Gemm", 13, [(4, 512), weight(1000, 512), weight(1000)], {"transB": 1}),
    ("Gemm", 13, [(64, 100), (64, 80)], {"transA": 1}),
    ("MatMul", 13, [(128, 256), (256, 512)], {}),
    ("MatMul", 13, [(16, 16), (16, 16)], {}),
    ("MatMul", 13, [(1, 4096), weight(4096, 1024)], {}),
    (
        "GRU",
        14,
        [(50, 1, 64), weight(1, 384, 64), weight(1, 384, 128), weight(1, 768)],
        {"hidden_size": 128, "linear_before_reset": 1},
    ),
    ("LSTM", 14, [(32, 8, 128), weight(1, 1024, 128), weight(1, 1024, 256), weight(1, 2048)], {"hidden_size": 256}),
]
