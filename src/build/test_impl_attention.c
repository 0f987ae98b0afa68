/* test_impl_attention.c: attention in blocks of queries, compiled and run, against its meaning: odd sizes, one
 * key, layouts, heads in one tensor, masks of every form, sizes known only at run time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "build/test_impl.h"

typedef struct Form {
  int b, h, s, t, d, e;            /* sizes; e: of value's features */
  const char *q, *k, *v, *m, *out; /* layouts; m NULL: no mask */
  const char *dims;                /* of the mask, a letter for each dimension, 1 for one that broadcasts */
  bool choose, causal;
} Form;

static int64_t extent(const Form *c, char letter, bool value)
{
  return letter == 'B'   ? c->b
         : letter == 'H' ? c->h
         : letter == 'S' ? c->s
         : letter == 'T' ? c->t
         : letter == 'D' ? (value ? c->e : c->d)
                         : 1;
}

/* 0 stands for a size that is known only at run time. */
static const Node *param_of(Fn *f, const Form *c, DType dtype, const char *letters, bool value, const Expr *open)
{
  const Expr *shape[4];
  int n = (int)strlen(letters);
  for (int i = 0; i < n; i++) {
    int64_t size = extent(c, letters[i], value);
    shape[i] = size ? expr_i32(f->m, size) : open;
  }
  const Node *v = node_var(f->m, arena_printf(f->m->arena, "p%d", f->n), type_tensor(f->m, dtype, n, shape));
  return f->param[f->n++] = v;
}

static const char *quoted(Fn *f, const char *s) { return arena_printf(ctx_arena(f->ctx), "\"%s\"", s); }

static void check_form(Fn *f, const Form *c, int number)
{
  fresh(f);
  const Expr *open = var_expr(var_new(f->m, "n", DT_I32, VAR_SIZE));
  const Node *arg[4] = {param_of(f, c, DT_F32, c->q, false, open), param_of(f, c, DT_F32, c->k, false, open),
                        param_of(f, c, DT_F32, c->v, true, open), NULL};
  if (c->m) arg[3] = param_of(f, c, c->choose ? DT_BOOL : DT_F32, c->dims, false, open);
  const void *attrs =
      fn_attrs(f, "nn.attention", "scale", "0.35", "fill", "-4", "causal", c->causal ? "True" : "False", "query_layout",
               quoted(f, c->q), "key_layout", quoted(f, c->k), "value_layout", quoted(f, c->v), "mask_layout",
               quoted(f, c->m ? c->m : "BHST"), "out_layout", quoted(f, c->out), NULL);
  const Node *y = fn_call(f, "nn.attention", attrs, c->m ? 4 : 3, arg);
  bool dynamic = !c->s || !c->t || !c->b;
  for (int64_t size = dynamic ? 1 : 0; size < (dynamic ? 40 : 1); size += 37) {
    const char *what =
        arena_printf(ctx_arena(f->ctx), "form %d, %d queries, %d keys, open %d", number, c->s, c->t, (int)size);
    const char *impl = fn_check(f, what, y, size, 2e-5);
    if (strcmp(impl, "attention.blocks")) raise(f->ctx, ERR_INTERNAL, NOWHERE, "%s: '%s' was taken", what, impl);
  }
}

static void forms(Fn *f)
{
  /* clang-format off */
  static const Form all[] = {
      {1, 3, 32, 32, 64, 64, "BHSD", "BHTD", "BHTD", NULL, "BHSD", NULL, false, false},
      {2, 3, 40, 33, 17, 17, "BSHD", "BTHD", "BTHD", "BHST", "BSHD", "B11T", false, false},
      {1, 2, 48, 48, 16, 24, "BSHD", "BTHD", "BTHD", "BHTS", "BSHD", "11TS", false, false},
      {1, 2, 37, 21, 16, 16, "BSHD", "BTHD", "BTHD", "BHTS", "BSHD", "11TS", false, false},
      {2, 2, 29, 30, 9, 12, "BHSD", "BHTD", "BHTD", "BHST", "BHSD", "B1ST", false, false},
      {2, 1, 10, 1, 8, 3, "BHSD", "BHTD", "BHTD", NULL, "BHSD", NULL, false, false},
      {1, 4, 13, 19, 16, 16, "BHSD", "BHDT", "BHTD", "BHST", "BSHD", "T", false, false},
      {2, 2, 16, 34, 9, 33, "DBHS", "TBHD", "HBTD", "BHST", "SBHD", "BHST", true, false},
      {1, 2, 29, 45, 12, 12, "BHSD", "BHTD", "BHTD", NULL, "BHSD", NULL, false, true},
      {1, 2, 64, 64, 64, 64, "BSHD", "BTHD", "BTHD", "BHTS", "BSHD", "B1TS", true, true},
  };
  /* clang-format on */
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_form(f, &all[i], (int)i);
}

static void open_sizes(Fn *f)
{
  /* clang-format off */
  static const Form all[] = {
      {1, 2, 16, 0, 16, 16, "BHSD", "BHTD", "BHTD", "BHST", "BSHD", "11ST", true, false},
      {1, 2, 0, 40, 16, 32, "BSHD", "BTHD", "BHTD", "BHTS", "BSHD", "TS", false, false},
      {0, 3, 0, 0, 17, 8, "BHSD", "BHTD", "BHTD", NULL, "BSHD", NULL, false, true},
  };
  /* clang-format on */
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_form(f, &all[i], 100 + (int)i);
}

/* More queries than keys, counted from the end: the first see nothing. */
static void guards(Fn *f)
{
  static const char *const guard[] = {"\"empty\"", "\"nan\""};
  for (int i = 0; i < 2; i++) {
    fresh(f);
    const Node *q = PARAM(f, 1, 2, 29, 8);
    const Node *k = PARAM(f, 1, 2, 13, 8);
    const Node *v = PARAM(f, 1, 2, 13, 8);
    const void *attrs = fn_attrs(f, "nn.attention", "causal", "True", "guard", guard[i], NULL);
    const char *impl = fn_check(f, guard[i], CALL(f, "nn.attention", attrs, q, k, v), 0, 2e-5);
    if (strcmp(impl, "attention.blocks")) raise(f->ctx, ERR_INTERNAL, NOWHERE, "guard: '%s' was taken", impl);
  }
}

/* Query, key and value in one tensor; two heads of query to one of key and value. */
static void shared_heads(Fn *f)
{
  fresh(f);
  const Node *all = PARAM(f, 2, 35, 12, 16);
  const void *attrs = fn_attrs(f, "nn.attention", "query_layout", "\"BSHD\"", "key_layout", "\"BTHD\"", "value_layout",
                               "\"BTHD\"", "out_layout", "\"BSHD\"", "heads", "4", "first_head", "[0, 4, 8]", NULL);
  fn_check(f, "one tensor", CALL(f, "nn.attention", attrs, all, all, all), 0, 2e-5);
  attrs = fn_attrs(f, "nn.attention", "query_layout", "\"BSHD\"", "key_layout", "\"BTHD\"", "value_layout", "\"BTHD\"",
                   "out_layout", "\"BSHD\"", "heads", "6", "kv_heads", "3", "first_head", "[0, 6, 9]", NULL);
  fn_check(f, "shared heads", CALL(f, "nn.attention", attrs, all, all, all), 0, 2e-5);
}

#define CASE(name)                      \
  static void test_##name(void **state) \
  {                                     \
    (void)state;                        \
    on_targets(name);                   \
  }
CASE(forms)
CASE(open_sizes)
CASE(guards)
CASE(shared_heads)

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_open_sizes),
                                     cmocka_unit_test(test_guards), cmocka_unit_test(test_shared_heads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
