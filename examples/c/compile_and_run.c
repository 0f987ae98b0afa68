/* compile_and_run.c: an ONNX file, compiled and run in one program.
 *
 *   cc compile_and_run.c $(pkg-config --cflags --libs lathe) -o compile_and_run
 *   ./compile_and_run model.onnx
 *
 * Every input is filled with ones; sizes that the model leaves open are 1. */
#include <stdio.h>

#include <lathe.h>

static int failed(const char *why)
{
  fprintf(stderr, "error: %s\n", why);
  return 1;
}

static int run(LatheRtModel *model)
{
  LatheRtExecutor *executor;
  LatheRtError err;
  if (lathe_rt_executor_new(model, &executor, &err) != LATHE_RT_OK) return failed(err.text);
  const LatheRtPort *port;
  int32_t n = lathe_rt_model_inputs(model, &port);
  for (int32_t i = 0; i < n; i++) {
    int64_t shape[8] = {0};
    LatheRtTensor *t;
    size_t bytes;
    if (port[i].ndim < 0 || port[i].ndim > 8 || port[i].dtype.code != 2 || port[i].dtype.bits != 32)
      return failed("this example fills float32 tensors alone");
    for (int32_t k = 0; k < port[i].ndim; k++) shape[k] = port[i].shape[k] < 0 ? 1 : port[i].shape[k];
    if (lathe_rt_tensor_new((LatheRtDevice){LATHE_RT_CPU, 0}, port[i].dtype, port[i].ndim, shape, &t, &err) !=
        LATHE_RT_OK)
      return failed(err.text);
    if (lathe_rt_tensor_bytes(t, &bytes, &err) != LATHE_RT_OK) return failed(err.text);
    for (size_t k = 0; k < bytes / sizeof(float); k++) ((float *)t->data)[k] = 1;
    LatheRtCode code = lathe_rt_set_input(executor, i, t, &err);
    lathe_rt_tensor_free(t);
    if (code != LATHE_RT_OK) return failed(err.text);
  }
  if (lathe_rt_run(executor, &err) != LATHE_RT_OK) return failed(err.text);
  const LatheRtTensor *out;
  if (lathe_rt_get_output(executor, 0, &out, &err) != LATHE_RT_OK) return failed(err.text);
  size_t bytes;
  if (lathe_rt_tensor_bytes(out, &bytes, &err) != LATHE_RT_OK) return failed(err.text);
  printf("first output, %d dimensions:", out->ndim);
  for (size_t k = 0; k < bytes / sizeof(float) && k < 10; k++) printf(" %g", ((const float *)out->data)[k]);
  printf("\n");
  lathe_rt_executor_free(executor);
  return 0;
}

int main(int argc, char **argv)
{
  if (argc != 2) return failed("usage: compile_and_run MODEL.onnx");
  LatheContext *context = lathe_context_new();
  if (!context) return failed("out of memory");
  LatheRtModel *model;
  int status = 1;
  if (lathe_load_onnx(context, argv[1], NULL, &model)) failed(lathe_error_message(context));
  else {
    status = run(model);
    lathe_rt_model_free(model);
  }
  lathe_context_free(context);
  return status;
}
