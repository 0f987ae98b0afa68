/* fuzz_tflite.c: libFuzzer target for the TFLite reader. */
#define FUZZ_IMPORT tflite_import
#include "frontend/fuzz_import.h"
