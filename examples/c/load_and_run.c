/* load_and_run.c: a compiled model, with the runtime alone: no compiler, no model file, no Python.
 *
 *   lathe compile ../digits/digits.onnx -o digits.so --shape pixels=1,1,8,8
 *   cc load_and_run.c $(pkg-config --cflags --libs lathe_rt) -o load_and_run
 *   ./load_and_run digits.so
 *
 * Shows a hand-drawn digit to the classifier of examples/digits. */
#include <stdio.h>
#include <string.h>

#include <lathe_rt.h>

static const char *const digit[8] = {
  "  ####  ", "      # ", "      # ", "    ##  ", "      # ", "      # ", "      # ", "  ####  ",
};

static int failed(const LatheRtError *err)
{
  fprintf(stderr, "error: %s\n", err->text);
  return 1;
}

int main(int argc, char **argv)
{
  LatheRtModel *model;
  LatheRtExecutor *executor;
  LatheRtError err;
  if (argc != 2) {
    fprintf(stderr, "usage: load_and_run digits.so\n");
    return 2;
  }
  if (lathe_rt_model_load(argv[1], &model, &err) != LATHE_RT_OK) return failed(&err);
  if (lathe_rt_executor_new(model, &executor, &err) != LATHE_RT_OK) return failed(&err);

  float pixels[64];
  int64_t shape[] = {1, 1, 8, 8};
  for (int i = 0; i < 64; i++) pixels[i] = digit[i / 8][i % 8] == '#';
  LatheRtTensor input = {.data = pixels, .device = {LATHE_RT_CPU, 0}, .ndim = 4, .dtype = {2, 32, 1}, .shape = shape};
  const LatheRtTensor *output;
  if (lathe_rt_set_input_view(executor, 0, &input, &err) != LATHE_RT_OK) return failed(&err);
  if (lathe_rt_run(executor, &err) != LATHE_RT_OK) return failed(&err);
  if (lathe_rt_get_output(executor, 0, &output, &err) != LATHE_RT_OK) return failed(&err);

  const float *p = output->data;
  int best = 0;
  for (int i = 1; i < 10; i++)
    if (p[i] > p[best]) best = i;
  for (int i = 0; i < 8; i++) printf("  %s\n", digit[i]);
  printf("this is a %d (%.0f %%)\n", best, 100 * (double)p[best]);
  lathe_rt_executor_free(executor);
  lathe_rt_model_free(model);
  return 0;
}
