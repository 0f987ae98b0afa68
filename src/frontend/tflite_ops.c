/* tflite_ops.c: TFLite's builtin operators and what converts them. */
#include "frontend/tflite_ops.h"

/* clang-format off */
/* name, kind of its options, newest version, quantized?, converter */
static const TflRow rows[] = {
  {"ADD", 11, 5, true, tfl_convert_add},
  {"AVERAGE_POOL_2D", 5, 3, true, tfl_convert_average_pool},
  {"CONV_2D", 1, 8, true, tfl_convert_conv},
  {"DEPTHWISE_CONV_2D", 2, 7, true, tfl_convert_depthwise_conv},
  {"DEQUANTIZE", 38, 6, true, tfl_convert_dequantize},
  {"FULLY_CONNECTED", 8, 13, true, tfl_convert_fully_connected},
  {"MAX_POOL_2D", 5, 3, true, tfl_convert_max_pool},
  {"QUANTIZE", 89, 3, true, tfl_convert_quantize},
  {"RESHAPE", 17, 1, true, tfl_convert_reshape},
  {"SOFTMAX", 9, 3, true, tfl_convert_softmax},
};
/* clang-format on */
enum { NROWS = sizeof rows / sizeof *rows };

const TflRow *tfl_find(const char *name)
{
  for (int i = 0; i < NROWS; i++)
    if (!strcmp(rows[i].name, name)) return &rows[i];
  return NULL;
}

int tflite_op_count(void) { return NROWS; }
const char *tflite_op_name(int i) { return i >= 0 && i < NROWS ? rows[i].name : NULL; }
int tflite_op_version(int i) { return i >= 0 && i < NROWS ? rows[i].version : 0; }
