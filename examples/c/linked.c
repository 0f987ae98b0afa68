/* linked.c: a model linked into the program: no file to load.
 *
 *   lathe compile ../digits/digits.onnx -o digits.o --shape pixels=1,1,8,8
 *   cc linked.c digits.o $(pkg-config --cflags --libs lathe_rt) -lm -o linked
 *   ./linked
 *
 * Beside digits.o lies digits.h, with digits_load and the typed digits_run.  With -o digits.c the
 * model is C source, with -o digits.a a static library.
 *
 * Shows a hand-drawn digit to the classifier of examples/digits. */
#include <stdio.h>

#include "digits.h"

static const char *const digit[8] = {
  "  ####  ", "      # ", "      # ", "    ##  ", "      # ", "      # ", "      # ", "  ####  ",
};

int main(void)
{
  LatheRtModel *model;
  LatheRtExecutor *executor = NULL;
  LatheRtError err;
  float pixels[digits_pixels_elements], p[digits_probabilities_elements];
  for (int i = 0; i < digits_pixels_elements; i++) pixels[i] = digit[i / 8][i % 8] == '#';
  if (digits_load(&model, &err) != LATHE_RT_OK || lathe_rt_executor_new(model, &executor, &err) != LATHE_RT_OK ||
      digits_run(executor, pixels, p, &err) != LATHE_RT_OK) {
    fprintf(stderr, "error: %s\n", err.text);
    return 1;
  }
  int best = 0;
  for (int i = 1; i < digits_probabilities_elements; i++)
    if (p[i] > p[best]) best = i;
  for (int i = 0; i < 8; i++) printf("  %s\n", digit[i]);
  printf("this is a %d (%.0f %%)\n", best, 100 * (double)p[best]);
  lathe_rt_executor_free(executor);
  lathe_rt_model_free(model);
  return 0;
}
