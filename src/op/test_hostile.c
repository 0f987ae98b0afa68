/* test_hostile.c: Relay text that lies, with every operator at hand: one row for each class
 * of hostile input; each is refused with a sentence.  What the parser alone refuses
 * stands in src/graph/test_text.c. */
#include "te/test_te.h"

#include "op/op.h"

typedef struct Text1 {
  Module *m;
  const char *text;
} Text1;

static void parse_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  Text1 *t = arg;
  graph_parse_module(t->m, t->text, "test");
}

typedef struct Row {
  const char *what, *body; /* of @main over x (2, 3), y (4) and the images im (1, 4, 6, 6) */
  ErrKind kind;
  const char *says;
} Row;

static const Row rows[] = {
  /* size overflow, huge and negative dimensions */
  {"zeros of 2^93 elements", "zeros(shape=[2147483647, 2147483647, 2147483647], dtype=\"float32\")", ERR_SHAPE,
   "overflow"},
  {"negative zeros", "zeros(shape=[2, -3], dtype=\"float32\")", ERR_SHAPE, "-3"},
  {"a repeat beyond 64 bits", "repeat(%x, repeats=9223372036854775807, axis=0)", ERR_ARGUMENT, "9223372036854775807"},
  {"a negative repeat", "repeat(%x, repeats=-1, axis=0)", ERR_ARGUMENT, "-1"},
  {"a broadcast to a negative size", "broadcast_to(%x, shape=[-2, 2, 3])", ERR_SHAPE, "-2"},
  {"a padding beyond 64 bits", "nn.pad(%x, pad_width=[9223372036854775807, 9223372036854775807, 0, 0])", ERR_ARGUMENT,
   "too large"},
  /* index out of range */
  {"an axis beyond", "sum(%x, axis=[2])", ERR_ARGUMENT, "axis 2"},
  {"an axis before", "nn.softmax(%x, axis=-3)", ERR_SHAPE, "axis -3"},
  {"a permutation beyond", "transpose(%x, axes=[0, 2])", ERR_ARGUMENT, "2"},
  {"a field beyond", "split(%x, indices_or_sections=[3], axis=1).3", ERR_TYPE, "no field 3"},
  {"a position beyond", "expand_dims(%x, axis=7)", ERR_ARGUMENT, "axis 7"},
  /* attribute length against the shape */
  {"axes too few", "transpose(%x, axes=[0])", ERR_ARGUMENT, "1"},
  {"pads too few", "nn.pad(%x, pad_width=[1, 1])", ERR_ARGUMENT, "2 numbers"},
  {"strides too many", "nn.max_pool2d(%im, pool_size=[2, 2], strides=[1, 1, 1])", ERR_ARGUMENT, "3"},
  {"a reshape of another size", "reshape(%x, newshape=[4, 2])", ERR_SHAPE, "6 elements"},
  {"a slice of other lengths", "strided_slice(%x, begin=[0, 0], end=[1])", ERR_ARGUMENT, "1"},
  /* zero divisors */
  {"a stride of zero", "nn.max_pool2d(%im, pool_size=[2, 2], strides=[0, 1])", ERR_ARGUMENT, "0"},
  {"no groups", "nn.conv2d(%im, %im, groups=0, kernel_size=[6, 6])", ERR_ARGUMENT, "groups"},
  {"a dilation of zero", "nn.conv2d(%im, %im, dilation=[0, 0], kernel_size=[6, 6])", ERR_ARGUMENT, "dilation"},
  {"parts of nothing", "split(%x, indices_or_sections=[0])", ERR_ARGUMENT, "0"},
  {"a step of zero", "strided_slice(%x, begin=[0], end=[2], strides=[0])", ERR_ARGUMENT, "0"},
  {"a block of zero", "nn.space_to_depth(%im, block_size=0)", ERR_ARGUMENT, "0"},
  {"a range of step zero", "arange(0, 10, 0)", ERR_ARGUMENT, "0"},
  {"an upsampling by zero", "nn.upsampling(%im, scale_h=0.0)", ERR_ARGUMENT, "scale"},
  /* missing tensors */
  {"a name that is nowhere", "add(%x, %z)", ERR_PARSE, "no %z"},
  {"an argument too few", "nn.conv2d(%im)", ERR_ARGUMENT, "1 given"},
  {"a constant that is nowhere", "add(%x, meta[relay.Constant][5])", ERR_PARSE, "no constant 5"},
  /* unknown operator, dtype, attribute */
  {"an unknown operator", "nn.conv22d(%im, %im)", ERR_ARGUMENT, "nn.conv2d"},
  {"an unknown dtype", "cast(%x, dtype=\"float33\")", ERR_TYPE, "float33"},
  {"an unknown attribute", "sum(%x, axs=[1])", ERR_PARSE, "axs"},
  {"an unknown layout", "nn.conv2d(%im, %im, data_layout=\"NQHW\", kernel_size=[6, 6])", ERR_ARGUMENT, "NQHW"},
};

CASE(every_lie_is_refused)
{
  int bad = 0;
  op_init();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *text = arena_printf(w->m->arena,
                                    "def @main%zu(%%x: Tensor[(2, 3), float32], %%y: Tensor[(4), float32], %%im: "
                                    "Tensor[(1, 4, 6, 6), float32]) {\n  %s\n}\n",
                                    i, rows[i].body);
    ErrKind k = protect(w->ctx, parse_body, &(Text1){w->m, text});
    if (k == rows[i].kind && strstr(error_message(w->ctx), rows[i].says)) continue;
    fprintf(stderr, "%s: %s: '%s', wants '%s'\n", rows[i].what, error_kind_name(k), error_message(w->ctx),
            rows[i].says);
    bad++;
  }
  error_clear(w->ctx);
  assert_int_equal(bad, 0);
}

/* None for a string attribute is its default, in every operator; where there is none the call is refused. */
typedef struct CallOf {
  Module *m;
  const OpDef *op;
  const void *attrs;
  int rank;
  const Node *made;
} CallOf;
static void call_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  CallOf *c = arg;
  const Expr *four = expr_i32(c->m, 4);
  const Type *t = type_tensor(c->m, DT_F32, c->rank, (const Expr *[]){four, four, four, four, four});
  int n = c->op->min_args;
  const Node **x = arena_array(c->m->arena, const Node *, n + 1);
  for (int i = 0; i < n; i++) x[i] = node_var(c->m, "x", c->rank < 0 ? NULL : t);
  c->made = node_call(c->m, c->op, n, x, c->attrs, NULL);
}
CASE(none_for_a_string_is_its_default)
{
  op_init();
  int strings = 0;
  int required = 0;
  for (int i = 0; i < opdef_count(); i++) {
    const OpDef *op = opdef_at(i);
    for (int k = 0; op->attrs && k < op->attrs->n; k++) {
      const AttrField *f = &op->attrs->field[k];
      if (f->kind != AT_STR) continue;
      void *attrs = attrs_new(w->m, op->attrs);
      for (int j = 0; j < op->attrs->n; j++)
        if (op->attrs->field[j].kind == AT_STR && !op->attrs->field[j].def)
          attrs_set_str(w->m, op->attrs, attrs, op->attrs->field[j].name, "x");
      attrs_set_str(w->m, op->attrs, attrs, f->name, "another");
      attrs_set_text(w->m, op->attrs, attrs, f->name, "None");
      for (int rank = -1; rank <= 5; rank++) { /* -1: of no type */
        CallOf c = {w->m, op, attrs, rank, NULL};
        ErrKind kind = protect(w->ctx, call_body, &c);
        assert_true(kind != ERR_INTERNAL);
        const char *message = kind ? error_message(w->ctx) : "";
        if (!f->def && !(kind == ERR_ARGUMENT && strstr(message, f->name) && strstr(message, "must be given")))
          fail_msg("%s, %s=None: '%s'", op->name, f->name, message);
        if (f->def && rank < 0 && kind) fail_msg("%s, %s=None: '%s'", op->name, f->name, message);
        if (c.made && f->def) {
          const char *value = *(const char *const *)((const char *)c.made->u.call.attrs + f->offset);
          assert_non_null(value);
          assert_string_equal(arena_printf(w->m->arena, "\"%s\"", value), f->def);
        }
        error_clear(w->ctx);
      }
      strings++;
      required += !f->def;
    }
  }
  assert_true(strings > 100 && required > 5);
}

/* Evaluating terabytes is refused before anything is allocated. */
typedef struct Eval {
  Module *m;
  const Node *f;
} Eval;
static void eval_body(Ctx *ctx, void *arg)
{
  Eval *e = arg;
  graph_eval(e->m, scratch(ctx), e->f, 0, NULL);
}
CASE(terabytes_are_refused_by_the_interpreter)
{
  op_init();
  graph_parse_module(w->m, "def @main() { zeros(shape=[1048576, 1048576], dtype=\"float64\") }", "test");
  assert_int_equal(protect(w->ctx, eval_body, &(Eval){w->m, graph_main(w->m)}), ERR_MEMORY);
  assert_non_null(strstr(error_message(w->ctx), "8796093022208 bytes"));
  error_clear(w->ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_lie_is_refused),
                                     cmocka_unit_test(none_for_a_string_is_its_default),
                                     cmocka_unit_test(terabytes_are_refused_by_the_interpreter)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
