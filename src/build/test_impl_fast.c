/* test_impl_fast.c: implementations in reduced precision.  Pairs of bfloat16 run here, spelled out in
 * float32 where the machine has no instruction for them.  Sums in float16 and blocks of sums over fours of bfloat16 are
 * scheduled for a processor that has such arithmetic and interpreted: the loops are the ones that it would run; blocks
 * are also run where this machine has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "build/test_impl.h"

/* ---- pairs of bfloat16 -------------------------------------------------------------------------- */

static const Node *cast(Fn *f, const Node *x, const char *dtype)
{
  return CALL(f, "cast", fn_attrs(f, "cast", "dtype", dtype, NULL), x);
}
static const Node *blocks(Fn *f, const Node *x, const char *from, const char *to)
{
  return CALL(f, "layout_transform", fn_attrs(f, "layout_transform", "src_layout", from, "dst_layout", to, NULL), x);
}

#define CONV(pad, data, kernel, out)                                                                                 \
  fn_attrs(f, "nn.contrib_conv2d_NCHWc", "padding", pad, "data_layout", data, "kernel_layout", kernel, "out_layout", \
           out, "out_dtype", "\"float32\"", NULL)

/* The sum over pairs is the convolution of the rounded values.  Many channels, where a multiply-add takes a lane:
 * positions are packed. */
static void pair_conv(Fn *f)
{
  const Target *own = f->target;
  Target lanes = lane_target(own);
  for (int k = 1; k <= 3; k++) {
    f->n = 0;
    bool many = k == 2;
    f->target = many ? &lanes : own;
    const char *pad = k == 3 ? "[1, 1]" : "[0, 0]";
    const Node *x = PARAM(f, 1, 32, 9, 7);
    const Node *w = PARAM(f, many ? 256 : 48, 32, k, k);
    const Node *narrow = cast(f, x, "\"bfloat16\"");
    const char *layout = "\"OIHW8i16o2i\"";
    const Node *y =
        CALL(f, "nn.contrib_conv2d_NCHWc", CONV(pad, "\"NCHW16c\"", layout, "\"NCHW16c\""),
             blocks(f, narrow, "\"NCHW\"", "\"NCHW16c\""), blocks(f, cast(f, w, "\"bfloat16\""), "\"OIHW\"", layout));
    const Node *want = CALL(f, "nn.contrib_conv2d_NCHWc", CONV(pad, "\"NCHW\"", "\"OIHW\"", "\"NCHW16c\""),
                            cast(f, narrow, "\"float32\""), cast(f, cast(f, w, "\"bfloat16\""), "\"float32\""));
    fn_same(f, "pairs of bfloat16", want, y, 1e-6);
    if (many) y = fn_plan(f, y, "conv2d.panels");
    want_impl(f, "convolution over pairs", fn_check(f, "convolution over pairs", y, 0, 1e-6),
              many ? "conv2d.panels" : "conv2d.nchwc");
  }
  f->target = own;
}

static void pair_dense(Fn *f)
{
  const Target *own = f->target;
  Target lanes = lane_target(own);
  f->target = &lanes; /* rows are packed where there are several */
  for (int rows = 5; rows <= 64; rows += 59) {
    f->n = 0;
    const Node *x = PARAM(f, rows, 96);
    const Node *w = PARAM(f, 512, 96);
    const Node *narrow = cast(f, x, "\"bfloat16\"");
    const Node *y =
        CALL(f, "nn.contrib_dense_pack",
             fn_attrs(f, "nn.contrib_dense_pack", "weight_layout", "\"NC32n2c\"", "out_dtype", "\"float32\"", NULL),
             narrow, blocks(f, cast(f, w, "\"bfloat16\""), "\"NC\"", "\"NC32n2c\""));
    const Node *want =
        CALL(f, "nn.dense", NULL, cast(f, narrow, "\"float32\""), cast(f, cast(f, w, "\"bfloat16\""), "\"float32\""));
    fn_same(f, "pairs of bfloat16", want, y, 1e-6);
    want_impl(f, "product over pairs", fn_check(f, "product over pairs", y, 0, 1e-6), "matmul.packed");
  }
  f->target = own;
}

static void pairs(void **state)
{
  (void)state;
  run_job(pair_conv, "llvm");
  run_job(pair_dense, "llvm");
  if (target_host_arch() == ARCH_X86_64 && !TEST_SANITIZED) run_job(pair_conv, "llvm -mcpu=generic");
}

/* Lowered for another processor, interpreted here, against the operators' meaning (sums in float32).  Gives the
 * kernel. */
static PrimFunc *check_lowered(Fn *f, const char *target, FastMath fast, const char *want_name, const Node *body,
                               double error)
{
  Arena *arena = scratch(f->ctx);
  Module *dst = module_new(f->ctx);
  defer(f->ctx, drop_module, dst);
  Fn other = *f;
  other.target = target_parse(f->ctx, target);
  other.config.fast_math = fast;
  ImplResult r;
  PrimFunc *kernel = fn_lower(&other, dst, fn_done(f, body), &r);
  want_impl(f, want_name, r.impl, want_name);
  TirArg arg[16], want;
  uint64_t seed = 11;
  for (int i = 0; i < f->n; i++) arg[i] = fn_tensor(arena, f->param[i]->type, 0, &seed);
  fn_reference(f, arena, body, f->n, arg, &want);
  arg[f->n] = want;
  arg[f->n].data = arena_alloc(arena, run_bytes(&want) + 1);
  func_interpret(kernel, f->n + 1, arg);
  fn_compare(f, want_name, &want, &arg[f->n], error);
  return kernel;
}

/* ---- fours of bfloat16, in blocks ------------------------------------------------------------------------ */

static const char *const arm_blocks = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v1";

static int count_of(const char *text, const char *word)
{
  int n = 0;
  for (const char *p = text; (p = strstr(p, word)); p++) n++;
  return n;
}

static const char *assembly(Fn *f, PrimFunc *kernel, const char *target)
{
  Built *built = build_funcs(f->ctx, 1, &kernel, target_parse(f->ctx, target), &(LowerConfig){0});
  defer(f->ctx, drop_built, built);
  return code_get(built_code(built), CODE_ASM, scratch(f->ctx), NULL);
}

/* The interpreter, this machine where it has the instruction, and LLVM's text for the one that has. */
static void check_blocks(Fn *f, const char *want_name, const Node *body)
{
  PrimFunc *kernel = check_lowered(f, arm_blocks, FAST_BF16, want_name, body, 1e-6);
  if (codegen_has_llvm() && count_of(assembly(f, kernel, arm_blocks), "bfmmla") < 4)
    raise(f->ctx, ERR_INTERNAL, NOWHERE, "%s: the code has no bfmmla", want_name);
  if (target_block_dot(f->target, DOT_BF16, DOT_BF16))
    want_impl(f, want_name, fn_check(f, want_name, body, 0, 2e-6), want_name);
}

/* Rounded, with zeros behind the last column of (n, k). */
static const Node *fours_of(Fn *f, const Node *w)
{
  static const char *const width[] = {"[0, 0, 0, 0]", "[0, 0, 0, 3]", "[0, 0, 0, 2]", "[0, 0, 0, 1]"};
  const Node *narrow = cast(f, w, "\"bfloat16\"");
  const Node *zero = node_scalar(f->m, (Value){.dtype = DT_BF16});
  int64_t left = w->type->shape[1]->u.i % 4;
  return w->type->ndim == 2 ? CALL(f, "nn.pad", fn_attrs(f, "nn.pad", "pad_width", width[left], NULL), narrow, zero)
                            : narrow;
}

/* Rows and steps that blocks do not divide, the fewest rows, a function behind the product. */
static void block_dense(Fn *f)
{
  static const int rows[] = {3, 4, 5, 13, 24};
  static const int depth[] = {96, 7, 97, 98, 64};
  const char *op = "nn.contrib_dense_pack";
  for (int i = 0; i < 5; i++) {
    f->n = 0;
    const Node *x = PARAM(f, rows[i], depth[i]);
    const Node *w = PARAM(f, 64, depth[i]);
    const Node *narrow = cast(f, x, "\"bfloat16\"");
    const char *layout = i % 2 ? "\"NC16n4c\"" : "\"NC8n4c\"";
    const Node *y = CALL(f, op, fn_attrs(f, op, "weight_layout", layout, "out_dtype", "\"float32\"", NULL), narrow,
                         blocks(f, fours_of(f, w), "\"NC\"", layout));
    const Node *want =
        CALL(f, "nn.dense", NULL, cast(f, narrow, "\"float32\""), cast(f, cast(f, w, "\"bfloat16\""), "\"float32\""));
    fn_same(f, "fours of bfloat16", want, y, 1e-6);
    if (i > 2) y = CALL(f, "tanh", NULL, CALL(f, "add", NULL, y, PARAM(f, 64)));
    check_blocks(f, "matmul.blocks", y);
  }
}

/* One tap and several, padding, strides, positions that tiles do not divide. */
static void block_conv(Fn *f)
{
  const char *op = "nn.contrib_conv2d_NCHWc";
  for (int k = 1; k <= 3; k++) {
    f->n = 0;
    const char *pad = k == 3 ? "[1, 1]" : "[0, 0]";
    const char *stride = k == 2 ? "[2, 2]" : "[1, 1]";
    const Node *x = PARAM(f, 1, 16, 9, 7);
    const Node *w = PARAM(f, 64, 16, k, k);
    const Node *narrow = cast(f, x, "\"bfloat16\"");
    const void *in_blocks =
        fn_attrs(f, op, "padding", pad, "strides", stride, "data_layout", "\"NCHW8c\"", "kernel_layout",
                 "\"OIHW2i8o4i\"", "out_layout", "\"NCHW8c\"", "out_dtype", "\"float32\"", NULL);
    const void *plain = fn_attrs(f, op, "padding", pad, "strides", stride, "out_layout", "\"NCHW8c\"", NULL);
    const Node *y = CALL(f, op, in_blocks, blocks(f, narrow, "\"NCHW\"", "\"NCHW8c\""),
                         blocks(f, fours_of(f, w), "\"OIHW\"", "\"OIHW2i8o4i\""));
    fn_same(f, "fours of bfloat16",
            CALL(f, op, plain, cast(f, narrow, "\"float32\""), cast(f, cast(f, w, "\"bfloat16\""), "\"float32\"")), y,
            1e-6);
    check_blocks(f, "conv2d.panels", CALL(f, "nn.relu", NULL, CALL(f, "add", NULL, y, PARAM(f, 8, 1, 1, 8))));
  }
}

static void fours(void **state)
{
  (void)state;
  run_job(block_dense, "llvm");
  run_job(block_conv, "llvm");
}

/* ---- sums in float16 ---------------------------------------------------------------------------------- */

static const Node *half_param(Fn *f, int n, const int64_t *shape) { return fn_param(f, DT_F16, n, shape); }
#define HALF(...) \
  half_param(f, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

static void check_half(Fn *f, const char *want_name, const Node *body, double error)
{
  check_lowered(f, "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", FAST_FP16, want_name, body, error);
}

static void half_convs(Fn *f)
{
  const char *op = "nn.contrib_conv2d_NCHWc";
  /* several blocks of terms, with an epilogue and rows that tiles do not divide; one block */
  const Node *x = HALF(1, 8, 5, 5, 8);
  const Node *w = HALF(2, 8, 3, 3, 8, 8);
  const void *same = fn_attrs(f, op, "padding", "[1, 1]", "data_layout", "\"NCHW8c\"", "kernel_layout", "\"OIHW8i8o\"",
                              "out_layout", "\"NCHW8c\"", NULL);
  const Node *y = CALL(f, "nn.relu", NULL, CALL(f, "add", NULL, CALL(f, op, same, x, w), HALF(2, 1, 1, 8)));
  check_half(f, "conv2d.half", y, 6e-3);
  f->n = 0;
  y = CALL(
      f, op,
      fn_attrs(f, op, "data_layout", "\"NCHW8c\"", "kernel_layout", "\"OIHW8i8o\"", "out_layout", "\"NCHW8c\"", NULL),
      HALF(1, 2, 4, 6, 8), HALF(3, 2, 1, 1, 8, 8));
  check_half(f, "conv2d.half", y, 3e-3);
  f->n = 0;
  op = "nn.contrib_depthwise_conv2d_NCHWc";
  y = CALL(f, op,
           fn_attrs(f, op, "groups", "16", "padding", "[1, 1]", "data_layout", "\"NCHW8c\"", "kernel_layout",
                    "\"OIHW8o\"", "out_layout", "\"NCHW8c\"", NULL),
           HALF(1, 2, 6, 5, 8), HALF(2, 1, 3, 3, 8));
  check_half(f, "conv2d.depthwise_half", y, 3e-3);
}

static void half_products(Fn *f)
{
  const char *op = "nn.contrib_dense_pack";
  for (int k = 64; k <= 1024; k += 960) /* one block of terms, four */
    for (int rows = 8; rows <= 23; rows += 15) {
      f->n = 0;
      const Node *y = CALL(f, op, fn_attrs(f, op, "weight_layout", "\"NC16n\"", NULL), HALF(rows, k), HALF(3, k, 16));
      check_half(f, "matmul.half", CALL(f, "nn.relu", NULL, CALL(f, "add", NULL, y, HALF(48))), 6e-3);
    }
}

static void half_winograd(Fn *f)
{
  const char *op = "nn.contrib_conv2d_winograd_NCHWc";
  for (int tile = 2; tile <= 4; tile += 2)
    for (int c = 1; c <= 16; c += 15) {
      f->n = 0;
      const char *size = tile == 2 ? "2" : "4";
      const Node *x = HALF(1, c, 8, 6, 8);
      const Node *w = HALF(tile + 2, tile + 2, 2, 8 * c, 8);
      const Node *y = CALL(f, op,
                           fn_attrs(f, op, "tile_size", size, "padding", "[1, 1]", "data_layout", "\"NCHW8c\"",
                                    "out_layout", "\"NCHW8c\"", NULL),
                           x, w);
      check_half(f, "conv2d.winograd_half", y, 8e-3);
    }
}

static void halves(void **state)
{
  (void)state;
  run_job(half_convs, "llvm");
  run_job(half_products, "llvm");
  run_job(half_winograd, "llvm");
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(pairs), cmocka_unit_test(fours), cmocka_unit_test(halves)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
