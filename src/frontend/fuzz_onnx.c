/* fuzz_onnx.c: libFuzzer target for the ONNX reader. */
#define FUZZ_IMPORT onnx_import
#include "frontend/fuzz_import.h"
