/* tflite_ops.h: the converters of TFLite's operators, by the file that has them. */
#ifndef LATHE_TFLITE_OPS_H
#define LATHE_TFLITE_OPS_H

#include "frontend/tflite_import.h"

#define C(name) const Node *tfl_convert_##name(Conversion *);
/* clang-format off */
/* tflite_ops_nn.c */
C(conv) C(depthwise_conv) C(fully_connected) C(average_pool) C(max_pool) C(l2_pool) C(transpose_conv) C(conv_3d)
C(conv_3d_transpose) C(batch_matmul) C(resize_nearest) C(resize_bilinear)
/* tflite_ops_math.c */
C(quantize) C(dequantize) C(add) C(sub) C(mul) C(div) C(squared_difference) C(add_n) C(pair) C(compare) C(select)
C(function) C(square) C(relu) C(leaky_relu) C(prelu) C(elu) C(gelu) C(hard_swish) C(cast) C(bitcast) C(fake_quant)
C(reduce) C(arg) C(cumsum) C(softmax) C(log_softmax) C(l2_normalization) C(lrn)
/* tflite_ops_shape.c */
C(reshape) C(squeeze) C(expand_dims) C(shape) C(rank) C(broadcast_to) C(broadcast_args) C(transpose) C(reverse)
C(reverse_sequence) C(concatenation) C(pack) C(unpack) C(split) C(split_v) C(slice) C(strided_slice) C(pad)
C(mirror_pad) C(tile) C(depth_to_space) C(space_to_depth) C(space_to_batch) C(batch_to_space) C(fill) C(zeros_like)
C(range) C(one_hot) C(matrix_diag) C(matrix_set_diag)
/* tflite_ops_index.c */
C(gather) C(gather_nd) C(scatter_nd) C(embedding_lookup) C(where) C(topk) C(unique) C(sparse_to_dense)
C(dynamic_update_slice) C(segment_sum) C(unsorted_segment)
/* tflite_ops_recurrent.c */
C(rnn) C(sequence_rnn) C(svdf)
/* tflite_ops_lstm.c */
C(lstm) C(sequence_lstm)
/* tflite_ops_vision.c */
C(nms) C(detection) C(densify)
/* tflite_ops_control.c */
C(if) C(while) C(call_once) C(var_handle) C(read_variable) C(assign_variable)
/* clang-format on */
#undef C
    /* tflite_ops_shape.c: operand i as axes of that rank, each once. */
    int tfl_axes(Conversion *, int i, int rank, int64_t *axes);

#endif
