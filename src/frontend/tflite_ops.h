/* tflite_ops.h: the converters of TFLite's operators, by the file that has them. */
#ifndef LATHE_TFLITE_OPS_H
#define LATHE_TFLITE_OPS_H

#include "frontend/tflite_import.h"

#define C(name) const Node *tfl_convert_##name(Conversion *);
/* tflite_ops_nn.c */
C(conv) C(depthwise_conv) C(fully_connected) C(average_pool) C(max_pool)
/* tflite_ops_math.c */
C(add) C(dequantize) C(quantize) C(softmax)
/* tflite_ops_shape.c */
C(reshape)
#undef C

#endif
