/* test_nn_golden.h: operators against numbers that ONNX Runtime or ONNX's reference evaluator
 * gave for the same call.  Inputs come from a seed (random_array) or are listed. */
#ifndef LATHE_TEST_NN_GOLDEN_H
#define LATHE_TEST_NN_GOLDEN_H

#include "op/test_nn.h"

typedef struct GoldenIn {
  int seed; /* of a float32 tensor; negative: its elements are listed, of that many bits */
  DCode code;
  int n;
  int64_t shape[6];
  const double *v;
} GoldenIn;

typedef struct GoldenOut {
  int n;
  int64_t shape[6];
  const float *v;
} GoldenOut;

typedef struct Golden {
  const char *name;
  const OpDef *op;
  const char *attrs[40]; /* name, text, …, NULL */
  int nin;
  GoldenIn in[8];
  int nout;
  GoldenOut out[3];
  float tolerance;
} Golden;

static const Golden *golden_now;

static Array golden_in(World *w, const GoldenIn *g)
{
  if (g->seed >= 0) return random_array(w, (uint32_t)g->seed, g->n, g->shape);
  Array a = array_of(w, DTYPE(g->code, (uint8_t)-g->seed), g->n, g->shape);
  for (int64_t k = 0; k < array_size(&a); k++) {
    a.f[k] = (float)g->v[k];
    a.i[k] = (int64_t)g->v[k];
  }
  return a;
}

static void golden_body(World *w)
{
  const Golden *g = golden_now;
  Array in[8], out[3];
  for (int i = 0; i < g->nin; i++) in[i] = golden_in(w, &g->in[i]);
  const Node *call = call_of(w, g->op, g->op->attrs ? attrs_from(w, g->op, g->attrs) : NULL, g->nin, in);
  evaluate(w, call, g->nin, in, g->nout, out);
  for (int i = 0; i < g->nout; i++) {
    assert_shape(&out[i], g->out[i].n, g->out[i].shape);
    assert_close(&out[i], g->out[i].v, g->tolerance);
  }
}

static void golden_test(void **state)
{
  golden_now = *state;
  assert_int_equal(world(golden_body, NULL, 0), ERR_NONE);
}

#define GOLDEN_MAIN(table)                                                                                      \
  int main(void)                                                                                                \
  {                                                                                                             \
    enum { N = (int)(sizeof(table) / sizeof *(table)) };                                                        \
    static struct CMUnitTest tests[N];                                                                          \
    for (int i = 0; i < N; i++)                                                                                 \
      tests[i] = (struct CMUnitTest){(table)[i].name, golden_test, NULL, NULL, (void *)(uintptr_t)&(table)[i]}; \
    return cmocka_run_group_tests(tests, NULL, NULL);                                                           \
  }

#endif
