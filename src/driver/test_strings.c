/* test_strings.c: operators on strings: compiled models against the interpreter, and against texts
 * given by hand. */
#include "driver/test_driver.h"

/* The tensor's strings with a bar behind each; numbers as they are. */
static const char *shown(Arena *a, const LatheRtExecutor *x, const LatheRtTensor *t)
{
  Text out = text_new(a);
  size_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= (size_t)t->shape[i];
  for (size_t i = 0; i < n; i++) {
    const char *s;
    size_t bytes;
    LatheRtError err;
    if (t->dtype.code == LATHE_RT_STRING) {
      if (lathe_rt_string_get(x, ((const uint64_t *)t->data)[i], &s, &bytes, &err)) fail_msg("%s", err.text);
      text_addn(&out, s, bytes);
      text_char(&out, '|');
    } else if (t->dtype.bits == 1) {
      text_printf(&out, "%d ", ((const uint8_t *)t->data)[i]);
    } else if (t->dtype.code == 2) {
      text_printf(&out, "%g ",
                  t->dtype.bits == 32 ? (double)((const float *)t->data)[i] : ((const double *)t->data)[i]);
    } else {
      text_printf(&out, "%" PRId64 " ", ((const int64_t *)t->data)[i]);
    }
  }
  return text_str(&out);
}

static const char *shown_value(Ctx *ctx, Arena *a, const ConstData *d)
{
  Text out = text_new(a);
  size_t size = (size_t)dtype_bytes(d->dtype);
  for (size_t i = 0; i < d->bytes / size; i++) {
    size_t n;
    Value v = value_load(dtype_in_kernel(d->dtype), (const char *)d->data + i * size);
    if (dtype_is_string(d->dtype)) {
      const char *s = ctx_string_at(ctx, (uint64_t)v.i, &n);
      text_addn(&out, s, n);
      text_char(&out, '|');
    } else if (dtype_is_float(d->dtype)) {
      text_printf(&out, "%g ", v.f);
    } else {
      text_printf(&out, "%" PRId64 " ", v.i);
    }
  }
  return text_str(&out);
}

typedef struct Meant {
  Module *m;
  Arena *arena;
  const RtValue *value;
  const uint64_t *in;
  int64_t n;
} Meant;

static void meant_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  Meant *e = arg;
  ConstData d = {.dtype = DT_STRING, .ndim = 1, .shape = {e->n}, .bytes = (size_t)e->n * 8, .data = e->in};
  const RtValue *x = graph_value_tensor(e->arena, &d);
  e->value = graph_eval(e->m, e->arena, graph_main(e->m), 1, &x);
}

enum { COUNT = 6 };
static const char *const texts[COUNT] = {"Ab,c", "", "ÄÖ, ß", "12", "aab", "x,,y"};

/* The body's result over `texts` (n of them): by the interpreter, and compiled at every level. */
static void expect(const char *body, const char *more, int n, const char *want)
{
  char text[2000];
  snprintf(text, sizeof text, "def @main(%%x: Tensor[(n), string]) { %s }\n%s", body, more);
  for (int level = 0; level <= 3; level++) {
    World w = {.ctx = ctx_new()};
    PassContext *pc = pass_context_new(w.ctx);
    pc->opt_level = level;
    Job j = {.text = text, .w = &w, .options.passes = pc};
    if (protect(w.ctx, job_body, &j)) fail_msg("%s: %s", body, error_message(w.ctx));
    LatheRtError err;
    if (lathe_rt_executor_new(compiled_model(w.c), &w.x, &err)) fail_msg("%s", err.text);
    int64_t shape = n;
    Arena *a = ctx_arena(w.ctx);
    for (int turn = 0; turn < 3; turn++) { /* the strings of a run before are gone, the input's stay */
      if (turn < 2 && lathe_rt_set_input_strings(w.x, 0, 1, &shape, texts, NULL, &err)) fail_msg("%s", err.text);
      run(w.x);
      const char *have = shown(a, w.x, output(w.x, 0));
      if (strcmp(have, want)) fail_msg("%s: '%s', wants '%s'", body, have, want);
    }
    uint64_t number[COUNT];
    for (int i = 0; i < n; i++) number[i] = ctx_string(w.ctx, texts[i], strlen(texts[i]));
    Meant e = {.m = w.m, .arena = a, .in = number, .n = n};
    if (protect(w.ctx, meant_body, &e)) fail_msg("%s: %s", body, error_message(w.ctx));
    const RtValue *v = e.value->kind == RV_TUPLE ? e.value->field[0] : e.value;
    const char *meant = shown_value(w.ctx, a, &v->tensor);
    if (strcmp(meant, want)) fail_msg("%s: the interpreter gives '%s', wants '%s'", body, meant, want);
    pass_context_free(pc);
    close_world(&w);
  }
}

#define STRINGS(list) "#[metadata]\nrelay.Constant[0]: Tensor[(2), string] = [" list "];\n"

static void test_operators(void **state)
{
  (void)state;
  expect("strings.lower(%x)", "", COUNT, "ab,c||äö, ß|12|aab|x,,y|");
  expect("strings.upper(%x)", "", COUNT, "AB,C||ÄÖ, ß|12|AAB|X,,Y|");
  expect("strings.concat(%x, strings.lower(%x))", "", 3, "Ab,cab,c||ÄÖ, ßäö, ß|");
  expect("strings.split(%x, delimiter=\",\").0", "", 3, "Ab|c|||ÄÖ| ß|");
  expect("strings.split(%x, delimiter=\",\").1", "", COUNT, "2 1 2 1 1 3 ");
  expect("strings.split(%x).1", "", 3, "1 0 2 ");
  expect("strings.split(%x, delimiter=\",\", maxsplit=0).0", "", 1, "Ab,c|");
  expect("strings.full_match(%x, pattern=\"a*b|.{4,5}\")", "", COUNT, "1 0 1 0 1 1 ");
  expect("strings.parse(strided_slice(%x, begin=[3], end=[4]), dtype=\"int64\")", "", COUNT, "12 ");
  expect("strings.format(strings.parse(strided_slice(%x, begin=[3], end=[4])))", "", COUNT, "12|");
  expect("strings.format(cast(equal(%x, %x), dtype=\"int64\"))", "", 2, "1|1|");
}

static void test_moves_and_constants(void **state)
{
  (void)state;
  expect("concatenate((reverse(%x, axis=0), meta[relay.Constant][0]))", STRINGS("\"q\", \"Ab,c\""), 2, "|Ab,c|q|Ab,c|");
  expect("equal(expand_dims(%x, axis=1), meta[relay.Constant][0])", STRINGS("\"12\", \"\""), COUNT,
         "0 0 0 1 0 0 1 0 0 0 0 0 ");
  expect("where(equal(%x, take(meta[relay.Constant][0], 1)), take(meta[relay.Constant][0], 0), %x)",
         STRINGS("\"none\", \"\""), 3, "Ab,c|none|ÄÖ, ß|");
  /* folded: everything but the last concatenation is known when it is compiled */
  expect("concatenate((%x, reverse(concatenate((meta[relay.Constant][0], meta[relay.Constant][0])), axis=0)))",
         STRINGS("\"p\", \"\""), 1, "Ab,c||p||p|");
}

/* What the type rule refuses, and what a run does. */
static void test_refused(void **state)
{
  (void)state;
  static const struct {
    const char *body, *says;
  } cases[] = {
    {"add(%x, %x)", "this operator does not work on strings"},
    {"less(%x, %x)", "this operator does not work on strings"},
    {"sum(%x)", "this operator does not work on strings"},
    {"cast(%x, dtype=\"float32\")", "this operator does not work on strings"},
    {"sort(%x)", "this operator does not work on strings"},
    {"strings.lower(1f)", "it must be strings"},
    {"strings.format(%x)", "cast it to int64, uint64, float32 or float64 first"},
    {"strings.parse(%x, dtype=\"int8\")", "int64, float32 and float64 are read"},
    {"strings.full_match(%x, pattern=\"(\")", "a group is not closed"},
    {"strings.split(%x, maxsplit=-2)", "maxsplit is -2"},
    {"strings.concat(%x, expand_dims(%x, axis=0))", "both need the same shape"},
    {"zeros(shape=[2], dtype=\"string\")", "string is no dtype"},
    {"scatter_elements(%x, shape_of(%x), %x, reduction=\"add\")", "only update works on those"},
    {"equal(%x, 1f)", "string"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    World w;
    char text[300];
    snprintf(text, sizeof text, "def @main(%%x: Tensor[(1), string]) { %s }\n", cases[i].body);
    const char *why = try_compile(&w, text, NULL);
    if (!why) fail_msg("%s is not refused", cases[i].body);
    if (!strstr(why, cases[i].says)) fail_msg("%s: '%s' lacks '%s'", cases[i].body, why, cases[i].says);
    close_world(&w);
  }
  World w = compile_text("def @main(%x: Tensor[(2), string]) { strings.parse(%x) }\n");
  LatheRtError err;
  int64_t shape = 2;
  assert_int_equal(lathe_rt_set_input_strings(w.x, 0, 1, &shape, (const char *const[]){"1.5", "1,5"}, NULL, &err),
                   LATHE_RT_OK);
  assert_int_equal(lathe_rt_run(w.x, &err), LATHE_RT_ARGUMENT);
  assert_non_null(strstr(err.text, "'1,5' is not a number"));
  float f[2] = {0};
  LatheRtTensor t = tensor(F32, f, SHAPE(2));
  assert_int_equal(lathe_rt_set_input(w.x, 0, &t, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "input 'x' is float32, wants string");
  close_world(&w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_operators), cmocka_unit_test(test_moves_and_constants),
                                     cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
