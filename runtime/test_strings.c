/* test_strings.c: tensors of strings in the executor: numbers and texts, tables that lie, programs of
 * patterns that lead nowhere. */
#include "test_kit.h"

static const LatheRtModuleInfo info = {"LATHERT", LATHE_RT_ABI, 0, NULL, "", NULL, 64, 0};

static void text(Blob *o, const char *s, bool zero)
{
  b32(o, (uint32_t)strlen(s));
  memcpy(o->b + o->n, s, strlen(s));
  o->n += strlen(s);
  if (zero) num(o, 0, 1);
}
static void bstring(Blob *o) { num(o, LATHE_RT_STRING | 64 << 8 | 1 << 16, 4); }

/* y = op(x, constant 0 or 1): constant 0 is two strings at the start of the weights, constant 1 `nwords`
 * int32 behind them.  The model's strings are these, as they are given. */
static void model(Blob *o, HostOp op, int constant, uint32_t nwords, int nstring, const char *const *string)
{
  bmagic(o, 512, 0);
  b32(o, 1);
  bdevice(o, LATHE_RT_CPU, 0);
  b32(o, 1);
  bmodule(o, "library", 0, 0, 0);
  b32(o, 0); /* images */
  b32(o, 0); /* kernels */
  b32(o, 2);
  bstring(o);
  b32(o, 1);
  num(o, 2, 8);
  b32(o, 0);
  b8(o, CONST_STORED);
  num(o, 0, 8);
  num(o, 0 | 32 << 8 | 1 << 16, 4);
  b32(o, 1);
  num(o, nwords, 8);
  b32(o, 0);
  b8(o, CONST_STORED);
  num(o, 64, 8);
  b32(o, 0); /* sizes */
  b32(o, 1);
  for (int i = 0; i < 3; i++) text(o, "node", false);
  for (int i = 0; i < 3; i++) num(o, 0, 8);
  b32(o, 0); /* operations */
  b32(o, (uint32_t)nstring);
  for (int i = 0; i < nstring; i++) text(o, string[i], true);
  b32(o, 0); /* packed functions */
  b32(o, 1);
  text(o, "main", false);
  b32(o, 3);
  b32(o, 1);
  b32(o, 1);
  b32(o, 0);
  b32(o, 3);
  num(o, MO_CONST, 1);
  b32(o, 1);
  b32(o, (uint32_t)constant);
  num(o, MO_HOST, 1);
  b32(o, op);
  b32(o, 0);
  b32(o, 0);
  b32(o, 2);
  b32(o, 0);
  b32(o, 1);
  b32(o, 1);
  b32(o, 2);
  breturn(o, REGS(2));
  b32(o, 1);
  bentry(o, "main", 0, 0);
  for (int i = 0; i < 2; i++) {
    b32(o, 1);
    text(o, i ? "y" : "x", false);
    text(o, "Tensor", false);
    num(o, PORT_TENSOR, 1);
    b32(o, 0);
    if (i && op == HO_MATCH) num(o, 1 | 1 << 8 | 1 << 16, 4);
    else bstring(o);
    b32(o, 1);
    num(o, (uint64_t)DIM_UNKNOWN, 8);
  }
  bstorage(o, 1, (uint64_t[]){0});
  b32(o, PREPARE_NONE);
}

static _Alignas(64) uint64_t weights[64];

static LatheRtCode load(const Blob *o, LatheRtExecutor **x, LatheRtError *err)
{
  LatheRtModule *module;
  LatheRtModel *m;
  *x = NULL;
  assert_int_equal(lathe_rt_module_wrap(&info, NULL, NULL, &module, err), LATHE_RT_OK);
  LatheRtModelData data = {.magic = MODEL_MAGIC,
                           .size = sizeof(LatheRtModelData),
                           .nmodules = 1,
                           .program = o->b,
                           .program_bytes = o->n,
                           .weights = weights,
                           .weights_bytes = sizeof weights};
  LatheRtCode code = lathe_rt_model_wrap(module, &data, NULL, NULL, NULL, &m, err);
  lathe_rt_module_free(module);
  if (code != LATHE_RT_OK) return code;
  code = lathe_rt_executor_new(m, x, err);
  lathe_rt_model_free(m);
  return code;
}

static void set(LatheRtExecutor *x, int64_t n, const char *const *s)
{
  LatheRtError err;
  if (lathe_rt_set_input_strings(x, 0, 1, &n, s, NULL, &err)) fail_msg("%s", err.text);
}

static const char *const strings[] = {"", "a", "zz"};

/* The model that puts one of its own strings behind each text. */
static LatheRtExecutor *load_concat(void)
{
  Blob o;
  LatheRtExecutor *x;
  LatheRtError err;
  weights[0] = 1, weights[1] = 2;
  model(&o, HO_TEXT_CONCAT, 0, 0, 3, strings);
  assert_int_equal(load(&o, &x, &err), LATHE_RT_OK);
  return x;
}

static void test_numbers(void **state)
{
  (void)state;
  LatheRtError err;
  LatheRtExecutor *x = load_concat();
  uint64_t a, b, c;
  const char *s;
  size_t n;
  assert_int_equal(lathe_rt_string_put(x, "zz", 2, &a, &err), LATHE_RT_OK);
  assert_int_equal(a, 2); /* the model's own */
  assert_int_equal(lathe_rt_string_put(x, "new", 3, &a, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_string_put(x, "new", 3, &b, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_string_put(x, "new\0", 4, &c, &err), LATHE_RT_OK);
  assert_int_equal(a, b);
  assert_int_not_equal(a, c);
  assert_int_equal(lathe_rt_string_get(x, c, &s, &n, &err), LATHE_RT_OK);
  assert_int_equal(n, 4);
  assert_int_equal(lathe_rt_string_get(x, 100, &s, &n, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "no string has the number 100");
  for (int i = 0; i < 1000; i++) { /* the table grows; numbers stay */
    char t[20];
    snprintf(t, sizeof t, "text %d", i);
    assert_int_equal(lathe_rt_string_put(x, t, strlen(t), &b, &err), LATHE_RT_OK);
    assert_int_equal(b, (uint64_t)i + 5);
  }
  set(x, 2, (const char *const[]){"new", "text 999"});
  assert_int_equal(lathe_rt_run(x, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_string_get(x, a, &s, &n, &err), LATHE_RT_OK); /* the input holds it */
  assert_string_equal(s, "new");
  assert_int_equal(lathe_rt_string_get(x, b + 1, &s, &n, &err), LATHE_RT_ARGUMENT);
  assert_true(x->strings.n < 1003 && x->strings.item[c - 3].s == NULL); /* and nothing holds this one */
  const LatheRtTensor *y;
  assert_int_equal(lathe_rt_get_output(x, 0, &y, &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_string_get(x, ((uint64_t *)y->data)[1], &s, &n, &err), LATHE_RT_OK);
  assert_string_equal(s, "text 999zz");
  lathe_rt_executor_free(x);
}

/* Texts one behind the other in memory; a map needs a second port. */
static void test_in_one_piece(void **state)
{
  (void)state;
  LatheRtError err;
  LatheRtExecutor *x = load_concat();
  int64_t two = 2;
  assert_int_equal(lathe_rt_set_input_texts(x, 0, 1, &two, "first\0", &err), LATHE_RT_OK);
  assert_int_equal(lathe_rt_run(x, &err), LATHE_RT_OK);
  const LatheRtTensor *y;
  assert_int_equal(lathe_rt_get_output(x, 0, &y, &err), LATHE_RT_OK);
  static const char *const wanted[] = {"firsta", "zz"};
  for (int i = 0; i < 2; i++) {
    const char *s;
    size_t n;
    assert_int_equal(lathe_rt_string_get(x, ((uint64_t *)y->data)[i], &s, &n, &err), LATHE_RT_OK);
    assert_string_equal(s, wanted[i]);
  }
  assert_int_equal(lathe_rt_set_input_texts(x, 0, 1, &two, NULL, &err), LATHE_RT_ARGUMENT);
  assert_non_null(strstr(err.text, "text 0 is null"));
  assert_int_equal(lathe_rt_set_input_texts(NULL, 0, 1, &two, "a", &err), LATHE_RT_ARGUMENT);
  assert_int_equal(lathe_rt_set_input_map(x, 0, 2, "a\0b", y, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "set_input_map: input 1, the model has 1");
  assert_int_equal(lathe_rt_set_input_map(x, 0, -1, "a", y, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "set_input_map: a map of -1 keys");
  LatheRtModelInfo info = {.size = sizeof info};
  lathe_rt_model_info(x->model, &info);
  assert_int_equal(info.num_strings, 3);
  lathe_rt_executor_free(x);
}

/* The table that the model has. */
static void test_lies(void **state)
{
  (void)state;
  LatheRtExecutor *x;
  LatheRtError err;
  Blob o;
  weights[0] = 1, weights[1] = 3;
  model(&o, HO_TEXT_CONCAT, 0, 0, 3, strings);
  assert_int_equal(load(&o, &x, &err), LATHE_RT_ARGUMENT);
  assert_non_null(strstr(err.text, "constant 0 speaks of string 3, there are 3"));
  weights[1] = 2;
  model(&o, HO_TEXT_CONCAT, 0, 0, 3, (const char *const[]){"a", "b", "a"});
  assert_int_equal(load(&o, &x, &err), LATHE_RT_ARGUMENT);
  assert_non_null(strstr(err.text, "out of order"));
  model(&o, HO_TEXT_CONCAT, 0, 0, 3, (const char *const[]){"a", "b", "b"});
  assert_int_equal(load(&o, &x, &err), LATHE_RT_ARGUMENT);
  model(&o, HO_TEXT_CONCAT, 0, 0, 3, strings);
  size_t whole = o.n;
  for (size_t n = 0; n < whole; n++) {
    o.n = n;
    if (load(&o, &x, &err) == LATHE_RT_OK) fail_msg("%zu of %zu bytes load", n, whole);
  }
  for (size_t i = 0; i < whole; i++) /* any byte another: refused, or it runs or fails with a sentence */
    for (int k = 0; k < 3; k++) {
      model(&o, HO_TEXT_CONCAT, 0, 0, 3, strings);
      o.b[i] = (unsigned char)(k == 0 ? 0xff : k == 1 ? o.b[i] + 1 : 0);
      if (load(&o, &x, &err) != LATHE_RT_OK) continue;
      int64_t n = 2;
      LatheRtCode code = lathe_rt_set_input_strings(x, 0, 1, &n, (const char *const[]){"p", "q"}, NULL, &err);
      if (code == LATHE_RT_OK) code = lathe_rt_run(x, &err);
      lathe_rt_executor_free(x);
    }
  model(&o, HO_LETTERS, 0, 0, 3, strings); /* strings where a table is wanted */
  assert_int_equal(load(&o, &x, &err), LATHE_RT_OK);
  set(x, 1, (const char *const[]){"p"});
  assert_int_equal(lathe_rt_run(x, &err), LATHE_RT_ARGUMENT);
  assert_non_null(strstr(err.text, "tensors of strings that fit each other are wanted"));
  lathe_rt_executor_free(x);
}

static const char *matched(int n, const int32_t *code, const char *s)
{
  static char out[600];
  LatheRtExecutor *x;
  LatheRtError err;
  Blob o;
  const LatheRtTensor *y;
  memcpy(weights + 8, code, (size_t)n * sizeof *code);
  model(&o, HO_MATCH, 1, (uint32_t)n, 3, strings);
  assert_int_equal(load(&o, &x, &err), LATHE_RT_OK);
  set(x, 1, &s);
  if (lathe_rt_run(x, &err) != LATHE_RT_OK) snprintf(out, sizeof out, "%s", err.text);
  else if (lathe_rt_get_output(x, 0, &y, &err) == LATHE_RT_OK) snprintf(out, sizeof out, "%d", *(uint8_t *)y->data);
  lathe_rt_executor_free(x);
  return out;
}

static void test_patterns(void **state)
{
  (void)state;
  /* [ab]* */
  static const int32_t star[] = {PO_SPLIT, 3, 11, PO_LETTER, 1, 5, 'a', 'b', PO_SPLIT, 0, 0, PO_END, 0, 0};
  assert_string_equal(matched(14, star, "abba"), "1");
  assert_string_equal(matched(14, star, ""), "1");
  assert_string_equal(matched(14, star, "abc"), "0");
  static const int32_t word[] = {PO_ASSERT, PA_EDGE,   0,      PO_LETTER, 1,      5, 0,
                                 0x10FFFF,  PO_ASSERT, PA_END, 0,         PO_END, 0, 0};
  assert_string_equal(matched(14, word, "x"), "1");
  assert_string_equal(matched(14, word, "\xc3\xa4"), "0"); /* no word by RE2's rule */
  assert_string_equal(matched(14, word, "\xff"), "0");
  static const struct {
    int n;
    int32_t code[8];
  } lies[] = {
    {3, {PO_SPLIT, 100, 0}},
    {3, {PO_SPLIT, -1, 0}},
    {3, {PO_SPLIT, 1, 1}},
    {5, {PO_LETTER, 2, 3, 0, 200}},
    {5, {PO_LETTER, -1, 3, 0, 200}},
    {5, {PO_LETTER, 1, INT32_MAX, 0, 200}},
    {5, {PO_LETTER, 1, -3, 0, 200}},
    {3, {PO_ASSERT, PA_BEGIN, 0}},
    {2, {PO_END, 0}},
    {0, {0}},
  };
  for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
    if (!strstr(matched(lies[i].n, lies[i].code, "a"), "the model is broken"))
      fail_msg("lie %zu: %s", i, matched(lies[i].n, lies[i].code, "a"));
  static const int32_t odd[] = {PO_SPLIT, 0, 0};
  static const int32_t facts[] = {PO_ASSERT, 77, 0, PO_END, 0, 0};
  static const int32_t other[] = {99, 0, 0};
  assert_string_equal(matched(3, odd, "a"), "0"); /* round and round, once */
  assert_string_equal(matched(6, facts, ""), "0");
  assert_string_equal(matched(3, other, ""), "0");
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_in_one_piece),
                                     cmocka_unit_test(test_lies), cmocka_unit_test(test_patterns)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
