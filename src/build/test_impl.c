/* test_impl.c: every implementation against the operator's meaning, compiled and run: odd sizes,
 * tails, strides, epilogues, sizes known only at run time, and for several machines' vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "build/test_impl.h"

static const char *text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static const char *text(const char *fmt, ...)
{
  static char buffer[8][128];
  static int at;
  char *out = buffer[at = (at + 1) % 8];
  va_list list;
  va_start(list, fmt);
  vsnprintf(out, sizeof buffer[0], fmt, list);
  va_end(list);
  return out;
}

/* ---- convolutions ------------------------------------------------------------------------------ */

typedef struct ConvCase {
  int n, c, h, w, o, k, stride, pad, dilation;
} ConvCase;

static const ConvCase conv_cases[] = {
  {1, 16, 7, 7, 16, 3, 1, 1, 1},   {1, 32, 9, 13, 48, 3, 1, 1, 1},  {2, 16, 11, 11, 32, 3, 2, 1, 1},
  {1, 16, 8, 8, 64, 1, 1, 0, 1},   {1, 32, 7, 17, 16, 1, 2, 0, 1},  {1, 3, 19, 23, 32, 7, 2, 3, 1},
  {1, 16, 10, 10, 16, 5, 1, 2, 1}, {1, 16, 13, 13, 16, 3, 1, 2, 2}, {1, 1, 12, 12, 17, 3, 1, 0, 1},
  {3, 17, 6, 5, 19, 3, 1, 1, 1},   {1, 4, 5, 29, 5, 3, 1, 1, 1},
};

static const void *conv_attrs(Fn *f, const char *op, const ConvCase *c, const char *data, const char *kernel,
                              const char *out)
{
  return fn_attrs(f, op, "strides", text("[%d, %d]", c->stride, c->stride), "padding", text("[%d, %d]", c->pad, c->pad),
                  "dilation", text("[%d, %d]", c->dilation, c->dilation), "data_layout", text("\"%s\"", data),
                  "kernel_layout", text("\"%s\"", kernel), "out_layout", text("\"%s\"", out), NULL);
}

static int64_t windows(int64_t in, const ConvCase *c)
{
  return (in + 2 * c->pad - (c->k - 1) * c->dilation - 1) / c->stride + 1;
}

static void conv_nchw(Fn *f)
{
  for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++)
    for (int epilogue = 0; epilogue < 3; epilogue++) {
      const ConvCase *c = &conv_cases[i];
      fresh(f);
      const char *what = text("conv %zu, epilogue %d", i, epilogue);
      const Node *x = PARAM(f, c->n, c->c, c->h, c->w);
      const Node *w = PARAM(f, c->o, c->c, c->k, c->k);
      const Node *y = CALL(f, "nn.conv2d", conv_attrs(f, "nn.conv2d", c, "NCHW", "OIHW", ""), x, w);
      if (epilogue > 0) y = CALL(f, "add", NULL, y, PARAM(f, c->o, 1, 1));
      if (epilogue > 1)
        y = CALL(f, "nn.relu", NULL, CALL(f, "add", NULL, y, PARAM(f, c->n, c->o, windows(c->h, c), windows(c->w, c))));
      want_impl(f, what, fn_check(f, what, y, 0, 1e-5), "conv2d.pack");
    }
}

static void conv_nchwc(Fn *f)
{
  int b = target_lanes(f->target, 32);
  for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++)
    for (int epilogue = 0; epilogue < 3; epilogue++) {
      const ConvCase *c = &conv_cases[i];
      if (c->o % b) continue;
      fresh(f);
      const char *what = text("blocked conv %zu, epilogue %d", i, epilogue);
      const char *op = "nn.contrib_conv2d_NCHWc";
      const char *out = text("NCHW%dc", b);
      bool blocked = c->c % b == 0;
      const Node *x = blocked ? PARAM(f, c->n, c->c / b, c->h, c->w, b) : PARAM(f, c->n, c->c, c->h, c->w);
      const Node *w =
          blocked ? PARAM(f, c->o / b, c->c / b, c->k, c->k, b, b) : PARAM(f, c->o / b, c->c, c->k, c->k, b);
      const void *a =
          conv_attrs(f, op, c, blocked ? out : "NCHW", blocked ? text("OIHW%di%do", b, b) : text("OIHW%do", b), out);
      const Node *y = fn_plan(f, CALL(f, op, a, x, w), "conv2d.nchwc");
      if (epilogue > 0) y = CALL(f, "add", NULL, y, PARAM(f, c->o / b, 1, 1, b));
      if (epilogue > 1)
        y = CALL(f, "nn.relu", NULL,
                 CALL(f, "add", NULL, y, PARAM(f, c->n, c->o / b, windows(c->h, c), windows(c->w, c), b)));
      want_impl(f, what, fn_check(f, what, y, 0, 1e-5), "conv2d.nchwc");
    }
}

/* Many output channels where a multiply-add takes a lane: positions are packed, in one band and in several. */
static void panels(Fn *f)
{
  static const ConvCase cases[] = {{1, 8, 14, 14, 64, 1, 1, 0, 1}, {2, 16, 9, 7, 64, 1, 2, 0, 1},
                                   {1, 8, 10, 13, 64, 3, 2, 1, 1}, {1, 8, 7, 7, 96, 3, 1, 1, 2},
                                   {1, 24, 5, 5, 64, 5, 1, 2, 1},  {1, 8, 5, 5, 32, 3, 1, 1, 1},
                                   {2, 8, 3, 4, 72, 1, 1, 0, 1}};
  const Target *whole = f->target;
  for (int small = 0; small < 2; small++)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
      for (int epilogue = 0; epilogue < 3; epilogue++) {
        const ConvCase *c = &cases[i];
        Target lanes = lane_target(whole);
        if (small) lanes.l2_bytes = 1 << 14;
        f->target = &lanes;
        fresh(f);
        int b = 8;
        int o = c->o;
        const char *what = text("panels %zu, epilogue %d, cache %d", i, epilogue, small);
        const char *op = "nn.contrib_conv2d_NCHWc";
        const char *out = text("NCHW%dc", o / 8);
        const Node *x = PARAM(f, c->n, c->c / b, c->h, c->w, b);
        const Node *w = PARAM(f, 8, c->c / b, c->k, c->k, b, o / 8);
        const Node *y = CALL(f, op, conv_attrs(f, op, c, "NCHW8c", text("OIHW8i%do", o / 8), out), x, w);
        y = fn_plan(f, y, "conv2d.panels");
        if (epilogue > 0) y = CALL(f, "add", NULL, y, PARAM(f, 8, 1, 1, o / 8));
        if (epilogue > 1)
          y = CALL(f, "sigmoid", NULL,
                   CALL(f, "add", NULL, y, PARAM(f, c->n, 8, windows(c->h, c), windows(c->w, c), o / 8)));
        want_impl(f, what, fn_check(f, what, y, 0, 1e-5), o / 8 % 4 || o < 64 ? "conv2d.nchwc" : "conv2d.panels");
      }
  f->target = whole;
}

/* Sizes that the kernel learns when it runs. */
static void conv_symbolic(Fn *f)
{
  fresh(f);
  const Expr *n = var_expr(var_new(f->m, "n", DT_I32, VAR_SIZE));
  const Expr *shape[] = {n, expr_i32(f->m, 5), expr_i32(f->m, 9), expr_i32(f->m, 11)};
  const Node *x = f->param[f->n++] = node_var(f->m, "x", type_tensor(f->m, DT_F32, 4, shape));
  const Node *w = PARAM(f, 24, 5, 3, 3);
  const Node *y =
      CALL(f, "nn.relu", NULL, CALL(f, "nn.conv2d", fn_attrs(f, "nn.conv2d", "padding", "[1, 1]", NULL), x, w));
  want_impl(f, "conv with n", fn_check(f, "conv with n", y, 3, 1e-5), "conv2d.pack");
}

/* Groups and depthwise, by whatever serves them. */
static void conv_groups(Fn *f)
{
  static const int cases[][4] = {{8, 8, 8, 1}, {6, 12, 6, 2}, {12, 6, 3, 1}, {17, 17, 17, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fresh(f);
    const int *c = cases[i];
    const Node *x = PARAM(f, 1, c[0], 9, 10);
    const Node *w = PARAM(f, c[1], c[0] / c[2], 3, 3);
    const void *a = fn_attrs(f, "nn.conv2d", "groups", text("%d", c[2]), "padding", "[1, 1]", "strides",
                             text("[%d, %d]", c[3], c[3]), NULL);
    fn_check(f, text("groups %d", c[2]), CALL(f, "nn.relu", NULL, CALL(f, "nn.conv2d", a, x, w)), 0, 1e-5);
  }
}

static void depthwise(Fn *f)
{
  static const int cases[][5] = {{16, 9, 11, 3, 1}, {48, 14, 14, 3, 2}, {32, 7, 7, 5, 1}, {24, 13, 17, 7, 3}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int *c = cases[i];
    const int b = 8;
    fresh(f);
    const char *op = "nn.contrib_depthwise_conv2d_NCHWc";
    const char *layout = text("\"NCHW%dc\"", b);
    const void *a = fn_attrs(f, op, "groups", text("%d", c[0]), "padding", text("[%d, %d]", c[3] / 2, c[3] / 2),
                             "strides", text("[%d, %d]", c[4], c[4]), "data_layout", layout, "out_layout", layout,
                             "kernel_layout", text("\"OIHW%do\"", b), NULL);
    const Node *y = CALL(f, op, a, PARAM(f, 2, c[0] / b, c[1], c[2], b), PARAM(f, c[0] / b, 1, c[3], c[3], b));
    y = CALL(f, "nn.relu", NULL, CALL(f, "add", NULL, y, PARAM(f, c[0] / b, 1, 1, b)));
    want_impl(f, op, fn_check(f, text("depthwise %zu", i), y, 0, 1e-5), "conv2d.depthwise");
  }
}

static void winograd(Fn *f)
{
  static const int cases[][6] = {{16, 16, 8, 8, 2, 1},  {16, 32, 12, 12, 4, 1}, {32, 16, 7, 14, 4, 1},
                                 {16, 16, 13, 9, 4, 1}, {16, 16, 12, 13, 6, 1}, {16, 16, 5, 3, 2, 1},
                                 {64, 32, 9, 10, 4, 2}, {48, 96, 7, 7, 2, 3}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int epilogue = i % 2; epilogue < 2; epilogue += 2) {
      const int *c = cases[i];
      const int b = 16;
      const int alpha = c[4] + 2;
      const int n = 1 + (int)i % 2;
      fresh(f);
      const char *op = "nn.contrib_conv2d_winograd_NCHWc";
      const void *a = fn_attrs(f, op, "tile_size", text("%d", c[4]), "padding", "[1, 1]", "groups", text("%d", c[5]),
                               "data_layout", "\"NCHW16c\"", "out_layout", "\"NCHW16c\"", NULL);
      const Node *y =
          CALL(f, op, a, PARAM(f, n, c[0] / b, c[2], c[3], b), PARAM(f, alpha, alpha, c[1] / b, c[0] / c[5], b));
      if (epilogue)
        y = CALL(f, "nn.relu", NULL,
                 CALL(f, "add", NULL, CALL(f, "add", NULL, y, PARAM(f, c[1] / b, 1, 1, b)),
                      PARAM(f, n, c[1] / b, c[2], c[3], b)));
      want_impl(f, op, fn_check(f, text("winograd %zu", i), y, 0, 1e-5), "conv2d.winograd");
    }
  /* The weight as it is. */
  static const int plain[][6] = {
    {32, 16, 8, 8, 2, 1}, {64, 32, 7, 7, 4, 1}, {96, 16, 13, 9, 4, 1}, {48, 16, 12, 13, 6, 1}, {128, 64, 9, 10, 4, 2}};
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
    const int *c = plain[i];
    const int b = 16;
    const int n = 1 + (int)i % 2;
    fresh(f);
    const char *op = "nn.contrib_conv2d_winograd_NCHWc";
    const void *a = fn_attrs(f, op, "tile_size", text("%d", c[4]), "padding", "[1, 1]", "groups", text("%d", c[5]),
                             "data_layout", "\"NCHW16c\"", "out_layout", "\"NCHW16c\"", "transformed", "False", NULL);
    const Node *y = CALL(f, op, a, PARAM(f, n, c[0] / b, c[2], c[3], b), PARAM(f, c[1] / b, c[0] / c[5], 3, 3, b));
    y = CALL(f, "nn.relu", NULL, CALL(f, "add", NULL, y, PARAM(f, c[1] / b, 1, 1, b)));
    want_impl(f, op, fn_check(f, text("winograd, weight as it is %zu", i), y, 0, 1e-5), "conv2d.winograd");
  }
  for (int tile = 2; tile <= 6; tile += 2) {
    fresh(f);
    const char *op = "nn.contrib_conv2d_winograd_weight_transform";
    const Node *y = CALL(f, op, fn_attrs(f, op, "tile_size", text("%d", tile), NULL), PARAM(f, 5, 16 + tile, 3, 3));
    want_impl(f, op, fn_check(f, text("winograd weight %d", tile), y, 0, 1e-6), "winograd.weight");
  }
}

/* With a second-level cache so small that all of them work band by band; the last of Winograd's fetches its weight
 * ahead. */
static void bands(Fn *f)
{
  static const int cases[][4] = {{1, 20, 18, 4}, {2, 16, 17, 4}, {1, 12, 14, 2}, {1, 24, 23, 6}, {1, 5, 6, 2}};
  const Target *whole = f->target;
  Target small = *whole;
  small.l2_bytes = 1 << 16;
  f->target = &small;
  conv_nchwc(f);
  depthwise(f);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int *c = cases[i];
    const int alpha = c[3] + 2;
    if (i + 1 == sizeof cases / sizeof *cases) small.l2_bytes = 1 << 12;
    fresh(f);
    const char *op = "nn.contrib_conv2d_winograd_NCHWc";
    const void *a = fn_attrs(f, op, "tile_size", text("%d", c[3]), "padding", "[1, 1]", "data_layout", "\"NCHW16c\"",
                             "out_layout", "\"NCHW16c\"", NULL);
    const Node *y = CALL(f, op, a, PARAM(f, c[0], 1, c[1], c[2], 16), PARAM(f, alpha, alpha, 1, 16, 16));
    y = CALL(f, "nn.relu", NULL, CALL(f, "add", NULL, y, PARAM(f, 1, 1, 1, 16)));
    want_impl(f, op, fn_check(f, text("winograd in bands %zu", i), y, 0, 1e-5), "conv2d.winograd");
  }
  f->target = whole;
}

/* What AlterOpLayout would put in a call's place computes the same, once data is brought there
 * and back. */
static const Node *altered(Fn *f, const Node *call)
{
  AlteredCall to;
  Plan *option;
  ImplCall of = {f->m, f->m->arena, f->target, &f->config, call};
  int n = impl_options(&of, 0, &option);
  const Plan *best = NULL;
  for (int i = 0; i < n; i++)
    if (option[i].alters && (!best || option[i].seconds < best->seconds)) best = &option[i];
  if (best) impl_alter(&of, best, &to);
  else if (!impl_alter_words(f->m, f->target, call, &to)) return NULL;
  const Node *arg[8];
  for (int i = 0; i < to.nargs; i++) {
    arg[i] = to.arg[i];
    if (!to.in[i].to) continue;
    const void *a = fn_attrs(f, "layout_transform", "src_layout", text("\"%s\"", to.in[i].from), "dst_layout",
                             text("\"%s\"", to.in[i].to), NULL);
    arg[i] = CALL(f, "layout_transform", a, to.arg[i]);
  }
  const Node *y = node_call(f->m, to.op, to.nargs, arg, to.attrs, NULL);
  if (!to.out.to) return y;
  return CALL(f, "layout_transform",
              fn_attrs(f, "layout_transform", "src_layout", text("\"%s\"", to.out.to), "dst_layout",
                       text("\"%s\"", to.out.from), NULL),
              y);
}

static void alteration(Fn *f)
{
  static const struct {
    int c, o, groups;
    bool changes;
  } cases[] = {{3, 64, 1, true},   {64, 64, 1, true},  {24, 40, 1, true},
               {32, 32, 32, true}, {17, 19, 1, false}, {16, 16, 2, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fresh(f);
    const Node *x = PARAM(f, 1, cases[i].c, 8, 9);
    const Node *w = PARAM(f, cases[i].o, cases[i].c / cases[i].groups, 3, 3);
    const void *a = fn_attrs(f, "nn.conv2d", "padding", "[1, 1]", "groups", text("%d", cases[i].groups), NULL);
    const Node *call = CALL(f, "nn.conv2d", a, x, w);
    const Node *other = altered(f, call);
    if ((other != NULL) != cases[i].changes)
      raise(f->ctx, ERR_INTERNAL, NOWHERE, "conv %zu %s altered", i, other ? "was" : "was not");
    if (other) fn_same(f, text("altered conv %zu", i), call, other, 1e-5);
  }
}

/* Winograd's algorithm against the convolution itself: the error that alter.c counts on, which grows with the root of
 * the channels. */
static void winograd_error(Fn *f)
{
  static const struct {
    int tile;
    double error;
    int channels, groups;
  } cases[] = {{2, 2e-7, 512, 1}, {4, 1e-6, 512, 1}, {6, 2e-6, 512, 1}, {4, 1e-6, 64, 2}};
  for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
    int k = (int)i / 2;
    int channels = cases[k].channels;
    bool before = i % 2 == 0; /* the weight transformed before, or in the call */
    fresh(f);
    const char *op = "nn.contrib_conv2d_winograd_NCHWc";
    const char *turn = "nn.contrib_conv2d_winograd_weight_transform";
    const char *tile = text("%d", cases[k].tile);
    const char *groups = text("%d", cases[k].groups);
    const Node *x = PARAM(f, 1, channels, 12, 12);
    const Node *w = PARAM(f, 16 * cases[k].groups, channels / cases[k].groups, 3, 3);
    const Node *xb =
        CALL(f, "layout_transform",
             fn_attrs(f, "layout_transform", "src_layout", "\"NCHW\"", "dst_layout", "\"NCHW16c\"", NULL), x);
    const Node *wb = before ? CALL(f, turn, fn_attrs(f, turn, "tile_size", tile, NULL), w) : w;
    const char *from = before ? "\"HWOI\"" : "\"OIHW\"";
    const char *to = before ? "\"HWOI16o\"" : "\"OIHW16o\"";
    wb = CALL(f, "layout_transform", fn_attrs(f, "layout_transform", "src_layout", from, "dst_layout", to, NULL), wb);
    const void *a =
        fn_attrs(f, op, "tile_size", tile, "padding", "[1, 1]", "groups", groups, "data_layout", "\"NCHW16c\"",
                 "out_layout", "\"NCHW16c\"", "transformed", before ? "True" : "False", NULL);
    const Node *y = CALL(f, "layout_transform",
                         fn_attrs(f, "layout_transform", "src_layout", "\"NCHW16c\"", "dst_layout", "\"NCHW\"", NULL),
                         CALL(f, op, a, xb, wb));
    const Node *direct =
        CALL(f, "nn.conv2d", fn_attrs(f, "nn.conv2d", "padding", "[1, 1]", "groups", groups, NULL), x, w);
    fn_same(f, text("winograd %d%s", cases[k].tile, before ? "" : ", weight as it is"), direct, y,
            cases[k].error * sqrt(channels));
  }
}

/* ---- products ------------------------------------------------------------------------------------- */

static void products(Fn *f)
{
  static const int cases[][3] = {{1, 64, 40},  {3, 17, 19},    {8, 32, 64}, {13, 17, 19},
                                 {31, 40, 96}, {64, 33, 1000}, {7, 1, 16},  {16, 128, 48}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int m = cases[i][0];
    int k = cases[i][1];
    int n = cases[i][2];
    int b = 2 * target_lanes(f->target, 32);
    fresh(f);
    const Node *y = CALL(f, "nn.dense", NULL, PARAM(f, m, k), PARAM(f, n, k));
    fn_check(f, text("dense %d %d %d", m, k, n), CALL(f, "nn.relu", NULL, CALL(f, "add", NULL, y, PARAM(f, n))), 0,
             1e-5);
    fresh(f);
    y = CALL(f, "nn.contrib_dense_pack",
             fn_attrs(f, "nn.contrib_dense_pack", "units", text("%d", n), "weight_layout", text("\"NC%dn\"", b), NULL),
             PARAM(f, m, k), PARAM(f, (n + b - 1) / b, k, b));
    fn_check(f, text("dense_pack %d %d %d", m, k, n), CALL(f, "add", NULL, y, PARAM(f, m, n)), 0, 1e-5);
    for (int t = 0; t < 4; t++) {
      const char *ta = t & 1 ? "True" : "False";
      const char *tb = t & 2 ? "True" : "False";
      fresh(f);
      const Node *p = t & 1 ? PARAM(f, k, m) : PARAM(f, m, k);
      const Node *q = t & 2 ? PARAM(f, n, k) : PARAM(f, k, n);
      fn_check(f, text("matmul %d %d %d %d", m, k, n, t),
               CALL(f, "nn.matmul", fn_attrs(f, "nn.matmul", "transpose_a", ta, "transpose_b", tb, NULL), p, q), 0,
               1e-5);
      fresh(f);
      p = t & 1 ? PARAM(f, 3, k, m) : PARAM(f, 3, m, k),
      q = t & 2 ? PARAM(f, i % 2 ? 3 : 1, n, k) : PARAM(f, i % 2 ? 3 : 1, k, n);
      y = CALL(f, "nn.batch_matmul", fn_attrs(f, "nn.batch_matmul", "transpose_a", ta, "transpose_b", tb, NULL), p, q);
      fn_check(f, text("batch_matmul %d %d %d %d", m, k, n, t),
               CALL(f, "multiply", NULL, y, CALL(f, "sigmoid", NULL, y)), 0, 1e-5);
    }
  }
}

/* ---- the generic schedule ------------------------------------------------------------------------------ */

static void elementwise(Fn *f)
{
  static const int64_t shapes[][4] = {{1, 1, 1, 1},    {2, 3, 5, 7},   {1, 64, 7, 7},
                                      {1, 16, 56, 56}, {4, 1, 3, 257}, {1, 3, 64, 1}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const int64_t *s = shapes[i];
    fresh(f);
    const Node *x = fn_param(f, DT_F32, 4, s);
    const Node *y = CALL(f, "exp", NULL, CALL(f, "multiply", NULL, x, PARAM(f, s[1], 1, 1)));
    fn_check(f, text("elementwise %zu", i), CALL(f, "tanh", NULL, CALL(f, "add", NULL, y, fn_param(f, DT_F32, 4, s))),
             0, 1e-5);
    fresh(f);
    x = fn_param(f, DT_F32, 4, s);
    fn_check(f, text("transpose %zu", i),
             CALL(f, "transpose", fn_attrs(f, "transpose", "axes", "[0, 2, 3, 1]", NULL), x), 0, 0);
    fresh(f);
    x = fn_param(f, DT_F32, 4, s);
    fn_check(f, text("transpose back %zu", i),
             CALL(f, "nn.relu", NULL, CALL(f, "transpose", fn_attrs(f, "transpose", "axes", "[3, 1, 0, 2]", NULL), x)),
             0, 0);
    fresh(f);
    x = fn_param(f, DT_F32, 4, s);
    fn_check(f, text("tile %zu", i), CALL(f, "tile", fn_attrs(f, "tile", "reps", "[1, 2, 1, 3]", NULL), x), 0, 0);
    fresh(f);
    x = fn_param(f, DT_F32, 4, s);
    fn_check(f, text("cast %zu", i),
             CALL(f, "cast", fn_attrs(f, "cast", "dtype", "\"int8\"", NULL), CALL(f, "multiply", NULL, x, x)), 0, 0);
  }
}

static void layouts(Fn *f)
{
  fresh(f);
  fn_check(f, "to blocks",
           CALL(f, "layout_transform",
                fn_attrs(f, "layout_transform", "src_layout", "\"NCHW\"", "dst_layout", "\"NCHW16c\"", NULL),
                PARAM(f, 2, 32, 7, 9)),
           0, 0);
  fresh(f);
  fn_check(f, "from blocks",
           CALL(f, "layout_transform",
                fn_attrs(f, "layout_transform", "src_layout", "\"NCHW8c\"", "dst_layout", "\"NCHW\"", NULL),
                PARAM(f, 2, 3, 7, 9, 8)),
           0, 0);
  fresh(f);
  fn_check(f, "weight blocks",
           CALL(f, "layout_transform",
                fn_attrs(f, "layout_transform", "src_layout", "\"OIHW\"", "dst_layout", "\"OIHW8i16o\"", NULL),
                PARAM(f, 32, 16, 3, 3)),
           0, 0);
}

static void reductions(Fn *f)
{
  static const int64_t shapes[][4] = {{2, 3, 5, 7}, {1, 64, 7, 7}, {2, 16, 3, 257}, {1, 1, 1, 1000}, {3, 40, 1, 64}};
  static const char *const axes[] = {"[3]", "[1]", "[2, 3]", "[0]", "[0, 1, 2, 3]", "[1, 3]"};
  static const char *const ops[] = {"sum", "max", "mean", "prod"};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (size_t a = 0; a < sizeof axes / sizeof *axes; a++)
      for (size_t o = (i + a) % 2; o < sizeof ops / sizeof *ops; o += 3) {
        fresh(f);
        const Node *x = CALL(f, "abs", NULL, fn_param(f, DT_F32, 4, shapes[i]));
        fn_check(f, text("%s %zu over %s", ops[o], i, axes[a]),
                 CALL(f, ops[o], fn_attrs(f, ops[o], "axis", axes[a], NULL), x), 0, 1e-5);
      }
}

/* Lanes of a row are put together before the next row: nothing is kept of all rows, however many dimensions are one. */
static void lanes_of_rows(Fn *f)
{
  static const int64_t shapes[][4] = {{1, 8, 64, 128}, {512, 1, 1, 128}, {8, 4, 16, 128}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    fresh(f);
    ImplResult r;
    const Node *y =
        CALL(f, "max", fn_attrs(f, "max", "axis", "[3]", "keepdims", "True", NULL), fn_param(f, DT_F32, 4, shapes[i]));
    PrimFunc *func = fn_lower(f, module_new(f->ctx), fn_done(f, y), &r);
    defer(f->ctx, drop_module, func->m);
    assert_int_equal(lower_kernel(func, f->target, &(LowerConfig){0})->workspace_bytes->u.i, 0);
  }
}

static bool count_vectors(void *env, Stmt *s)
{
  *(int *)env += s->kind == S_FOR && s->u.loop.kind == FOR_VECTORIZED;
  return true;
}

/* Rows that lanes do not divide are taken in vectors all the same, with dimensions of one and without. */
static void ragged_rows(Fn *f)
{
  static const int64_t shapes[][4] = {{1, 512, 1, 49}, {4, 3, 5, 49}, {1, 1, 7, 1001}, {2, 9, 1, 130}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    fresh(f);
    ImplResult r;
    int vectors = 0;
    const Node *y =
        CALL(f, "max", fn_attrs(f, "max", "axis", "[3]", "keepdims", "True", NULL), fn_param(f, DT_F32, 4, shapes[i]));
    PrimFunc *func = fn_lower(f, module_new(f->ctx), fn_done(f, y), &r);
    defer(f->ctx, drop_module, func->m);
    stmt_visit(func->body, count_vectors, &vectors);
    assert_true(vectors >= 2); /* the beginning, the row */
    fn_check(f, text("ragged rows %zu", i), y, 0, 0);
  }
}

static void windows_and_rows(Fn *f)
{
  static const int64_t widths[] = {1, 5, 16, 64, 197, 1000};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    fresh(f);
    fn_check(f, text("softmax of %d", (int)widths[i]), CALL(f, "nn.softmax", NULL, PARAM(f, 3, 5, widths[i])), 0, 1e-5);
  }
  fresh(f);
  fn_check(f, "softmax of axis 1",
           CALL(f, "nn.softmax", fn_attrs(f, "nn.softmax", "axis", "1", NULL), PARAM(f, 3, 10, 33)), 0, 1e-5);
  for (int blocked = 0; blocked < 2; blocked++) {
    const char *layout = blocked ? "\"NCHW16c\"" : "\"NCHW\"";
    for (int s = 1; s < 3; s++) {
      fresh(f);
      const Node *x = blocked ? PARAM(f, 1, 2, 13, 11, 16) : PARAM(f, 1, 5, 13, 11);
      fn_check(f, "max pool",
               CALL(f, "nn.max_pool2d",
                    fn_attrs(f, "nn.max_pool2d", "pool_size", "[3, 3]", "strides", text("[%d, %d]", s, s), "padding",
                             "[1, 1]", "layout", layout, NULL),
                    x),
               0, 0);
      fresh(f);
      x = blocked ? PARAM(f, 1, 2, 13, 11, 16) : PARAM(f, 1, 5, 13, 11);
      fn_check(f, "average pool",
               CALL(f, "nn.avg_pool2d",
                    fn_attrs(f, "nn.avg_pool2d", "pool_size", "[2, 2]", "strides", text("[%d, %d]", s, s), "layout",
                             layout, NULL),
                    x),
               0, 1e-5);
    }
    fresh(f);
    const Node *x = blocked ? PARAM(f, 2, 2, 7, 7, 16) : PARAM(f, 2, 37, 7, 7);
    fn_check(f, "global pool",
             CALL(f, "nn.global_avg_pool2d", fn_attrs(f, "nn.global_avg_pool2d", "layout", layout, NULL), x), 0, 1e-5);
  }
  fresh(f);
  fn_check(f, "layer norm", CALL(f, "nn.layer_norm", NULL, PARAM(f, 4, 6, 100), PARAM(f, 100), PARAM(f, 100)), 0, 1e-4);
}

/* Everything over n rows, n known only when it runs. */
static void symbolic_rows(Fn *f)
{
  for (int i = 0; i < 5; i++) {
    fresh(f);
    const Expr *n = var_expr(var_new(f->m, "n", DT_I32, VAR_SIZE));
    const Expr *shape[] = {n, expr_i32(f->m, 40)};
    const Node *x = f->param[f->n++] = node_var(f->m, "x", type_tensor(f->m, DT_F32, 2, shape));
    const Node *y = NULL;
    if (i == 0) y = CALL(f, "exp", NULL, CALL(f, "add", NULL, x, x));
    if (i == 1) y = CALL(f, "nn.softmax", NULL, x);
    if (i == 2) y = CALL(f, "nn.relu", NULL, CALL(f, "nn.dense", NULL, x, PARAM(f, 24, 40)));
    if (i == 3) y = CALL(f, "sum", fn_attrs(f, "sum", "axis", "[0]", NULL), x);
    if (i == 4) y = CALL(f, "transpose", NULL, x);
    for (int64_t size = 1; size < 30; size += 13) fn_check(f, text("rows %d of %d", i, (int)size), y, size, 1e-5);
  }
}

#define CASE(name)                      \
  static void test_##name(void **state) \
  {                                     \
    (void)state;                        \
    on_targets(name);                   \
  }
CASE(conv_nchw)
CASE(conv_nchwc)
CASE(panels)
CASE(conv_symbolic)
CASE(conv_groups)
CASE(depthwise)
CASE(winograd)
CASE(bands)
CASE(alteration)
CASE(winograd_error)
CASE(products)
CASE(elementwise)
CASE(layouts)
CASE(reductions)
CASE(lanes_of_rows)
CASE(ragged_rows)
CASE(windows_and_rows)
CASE(symbolic_rows)

/* With an argument: the tests whose names fit it ("test_conv*"). */
int main(int argc, char **argv)
{
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_conv_nchw),        cmocka_unit_test(test_conv_nchwc),
    cmocka_unit_test(test_panels),           cmocka_unit_test(test_conv_symbolic),
    cmocka_unit_test(test_conv_groups),      cmocka_unit_test(test_depthwise),
    cmocka_unit_test(test_winograd),         cmocka_unit_test(test_bands),
    cmocka_unit_test(test_alteration),       cmocka_unit_test(test_winograd_error),
    cmocka_unit_test(test_products),         cmocka_unit_test(test_elementwise),
    cmocka_unit_test(test_layouts),          cmocka_unit_test(test_reductions),
    cmocka_unit_test(test_lanes_of_rows),    cmocka_unit_test(test_ragged_rows),
    cmocka_unit_test(test_windows_and_rows), cmocka_unit_test(test_symbolic_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
