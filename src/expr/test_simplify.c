/* test_simplify.c: what expressions become, as text. */
#include "expr/analysis.h"
#include "expr/test_parse.h"

typedef struct Case {
  const char *domain, *assume, *in, *out;
} Case;

#define TILES "io:32 ii:32 jo:32 ji:32"

/* clang-format off */
static const Case cases[] = {
    /* natural order */
    {"i:1024 j:1024", "", "j + i*1024", "i*1024 + j"},
    {"io:32 ii:32", "", "ii + 32*io", "io*32 + ii"},
    {"i:8 n:size", "", "n - i", "n - i"},
    {"i:8", "", "-i + 7", "7 - i"},
    {"i:8 j:8", "", "3 + j + i", "i + j + 3"},
    {"i:any j:any n:size", "", "n*i + j", "i*n + j"},
    {"i:any", "", "i - 1", "i - 1"},
    /* sums */
    {"i:any j:any", "", "i + j - i", "j"},
    {"i:any", "", "i*3 + i - i*4", "0"},
    {"i:any", "", "(i + 2)*4 - 8", "i*4"},
    {"i:any", "", "2*(i*3)", "i*6"},
    {"i:any n:size", "", "(i + 1)*n - i*n", "n"},
    {"i:any n:size m:size", "", "(n + m)*i - n*i", "i*m"},
    {TILES, "", "(io*32 + ii)*1024 + (jo*32 + ji)", "io*32768 + ii*1024 + jo*32 + ji"},
    /* split, perfect */
    {"io:32 ii:32", "", "(io*32 + ii)//32", "io"},
    {"io:32 ii:32", "", "(io*32 + ii)%32", "ii"},
    {"io:32 ii:32", "", "io*32 + ii < 1024", "True"},
    {"i:1024 j:1024", "", "(i*1024 + j)//1024", "i"},
    {"i:1024 j:1024", "", "(i*1024 + j)%1024", "j"},
    {TILES, "", "((io*32 + ii)*1024 + jo*32 + ji)//1024", "io*32 + ii"},
    {TILES, "", "((io*32 + ii)*1024 + jo*32 + ji)%1024", "jo*32 + ji"},
    {TILES, "", "((io*32 + ii)*1024 + jo*32 + ji)//32768", "io"},
    {TILES, "", "((io*32 + ii)*1024 + jo*32 + ji)%32768//1024", "ii"},
    {TILES, "", "((io*32 + ii)*1024 + jo*32 + ji)%32", "ji"},
    {"a:4 b:4 c:4", "", "(a*16 + b*4 + c)//8", "a*2 + b//2"},
    {"a:4 b:4 c:4", "", "(a*16 + b*4 + c)%8", "b%2*4 + c"},
    {"x:any y:4", "", "(x*4 + y)//8", "x//2"},
    {"x:any y:4", "", "(x*4 + y)%8", "x%2*4 + y"},
    {"x:any y:8", "", "(x*4 + y)//8", "(x*4 + y)//8"},
    {"x:any", "", "(x*4 + 6)//8", "(x + 1)//2"},
    {"x:any", "", "(x*6)%9", "x*2%3*3"},
    /* split, imperfect */
    {"io:32 ii:32", "", "io*32 + ii < 1000", "io*32 + ii < 1000"},
    {"io:32 ii:32", "", "io*32 + ii < 992", "io < 31"},
    {"io:4 ii:3", "", "io*3 + ii < 10", "io*3 + ii < 10"},
    {"io:4 ii:3", "io*3 + ii < 10", "io*3 + ii < 10", "True"},
    {"io:4 ii:3", "io*3 + ii < 10", "io*3 + ii < 12", "True"},
    {"io:4 ii:3", "io*3 + ii < 10", "io*3 + ii <= 9", "True"},
    {"io:4 ii:3", "io*3 + ii < 10", "io*6 + ii*2 < 19", "True"},
    {"io:4 ii:3", "io*3 + ii < 9", "io < 3", "True"},
    {"n:size io:(n//32) ii:32", "", "io*32 + ii < n", "True"},
    {"n:size io:((n+31)//32) ii:32", "", "io*32 + ii < n", "io*32 + ii < n"},
    {"n:size io:((n+31)//32) ii:32", "n%32 == 0", "io*32 + ii < n", "True"},
    {"n:size io:((n+31)//32) ii:(min(32, n - io*32))", "", "io*32 + ii < n", "True"},
    {"n:size io:((n+31)//32) ii:32", "io*32 + ii < n", "io*32 < n", "True"},
    {"n:size io:((n+31)//32)", "", "io*32 < n", "True"},
    /* fuse, sizes known at run time */
    {"n:size m:size f:(n*m)", "", "f//m < n", "True"},
    {"n:size m:size f:(n*m)", "", "f%m < m", "True"},
    {"n:size m:size f:(n*m)", "", "f//m < n + 1 and 0 <= f//m", "True"},
    {"n:size m:size f:(n*m)", "", "n <= f//m", "False"},
    {"n:size m:size f:(n*m)", "", "f//m < m", "f//m < m"},
    {"n:size m:any f:(n*m)", "", "f//m < n", "f//m < n"},
    /* fuse */
    {"f:1024", "", "f//32*32 + f%32", "f"},
    {"f:4096", "", "f%64//32*32 + f%32", "f%64"},
    {"f:4096", "", "f//32%2*32 + f%32", "f%64"},
    {"f:4096", "", "f//64*64 + f//32%2*32 + f%32", "f"},
    {"f:1024", "", "f//4%8", "f%32//4"},
    {"f:32", "", "f//4%8", "f//4"},
    {"x:any", "", "x - x//4*4", "x%4"},
    {"x:any", "", "x - x%4", "x//4*4"},
    {"x:any", "", "(x + 3)//4*4 + (x + 3)%4", "x + 3"},
    {"p:any w:size", "", "p//w*w + p%w", "p"},
    {"p:any w:size", "", "p//(w + 2)*(w + 2)*8 + p%(w + 2)*8 + 3", "p*8 + 3"},
    {"p:any w:size", "", "(p//(w*2)*w*2 + p%(w*2))*4", "p*4"},
    {"f:any h:size w:size", "", "f//w//h*h*w + f//w%h*w + f%w", "f"},
    /* nested division */
    {"x:any", "", "x//4//8", "x//32"},
    {"x:any", "", "(x//4 + 1)//8", "(x + 4)//32"},
    {"x:any", "", "x%32%8", "x%8"},
    {"x:any", "", "x%8%32", "x%8"},
    {"x:any y:any", "", "(x%64 + y)%32", "(x + y)%32"},
    {"x:any", "", "(x*32 + 5)//32", "x"},
    {"x:any", "", "(x + 33)//32", "(x + 1)//32 + 1"},
    {"x:any", "", "x//-4", "x*-1//4"},
    {"x:0..9", "", "x/4", "x//4"},
    {"x:0..9", "", "x mod 4", "x%4"},
    {"x:any", "", "x/4", "truncdiv(x, 4)"},
    {"x:0..7", "", "x//8", "0"},
    {"x:8..15", "", "x//8", "1"},
    {"x:8..15", "", "x%8", "x - 8"},
    {"x:-4..-1", "", "x%8", "x + 8"},
    /* symbolic division */
    {"n:size i:any j:n", "", "(i*n + j)//n", "i"},
    {"n:size i:any j:n", "", "(i*n + j)%n", "j"},
    {"n:size m:size i:any j:n k:m", "", "((i*n + j)*m + k)//m", "i*n + j"},
    {"n:size m:size i:any j:n k:m", "", "((i*n + j)*m + k)%m", "k"},
    {"n:size i:8 j:any", "", "(j*n*8 + i*n)//(n*8)", "j"},
    {"n:size m:size i:any", "", "(i*n*m)%(n*8)", "i*m%8*n"},
    {"n:size i:any", "", "i*n//(n*n)", "i//n"},
    {"n:size ii:32", "n%32 == 0", "(n + ii)//32", "n//32"},
    {"n:size ii:32", "n%32 == 0", "(n + ii)%32", "ii"},
    {"n:size ii:32", "n%32 == 0", "(n*3 + 5)%32", "5"},
    /* comparisons */
    {"x:any n:size", "", "x + 1 < n", "x + 1 < n"},
    {"x:any", "", "x + 1 < 5", "x < 4"},
    {"x:any", "", "x >= 1", "1 <= x"},
    {"x:any", "", "x > 1", "2 <= x"},
    {"x:any", "", "5 > x", "x < 5"},
    {"x:any", "", "2*x < 7", "x < 4"},
    {"x:any", "", "2*x == 7", "False"},
    {"x:any", "", "2*x == 8", "x == 4"},
    {"x:any n:size", "", "x*4 + 3 < n*4", "x < n"},
    {"x:any n:size", "", "x < n + 1", "x <= n"},
    {"x:0..9", "", "x == 10", "False"},
    {"x:0..9", "", "x != 10", "True"},
    {"x:any", "", "x%4 < 4", "True"},
    {"x:any", "", "x%4 == 4", "False"},
    {"x:any", "", "x*4 + 1 == 8", "False"},
    {"x:any", "", "x//4 < 8", "x < 32"},
    {"x:any", "", "x//4 >= 8", "32 <= x"},
    {"n:size", "", "n >= 0", "True"},
    {"n:size i:n", "", "i < n", "True"},
    {"n:size i:n", "", "n > 0", "1 <= n"},
    {"n:size i:n j:i", "", "j < n", "True"},
    {"n:size m:size i:n j:m", "", "i*m + j < n*m", "True"},
    /* logic in context */
    {"x:any", "", "x < 5 and x < 10", "x < 5"},
    {"x:any", "", "x < 10 and x < 5", "x < 5"},
    {"x:any", "", "x < 5 and x > 7", "False"},
    {"x:any", "", "x < 5 or x < 10", "x < 10"},
    {"x:any", "", "x < 5 or x >= 5", "True"},
    {"x:any", "", "x >= 1 and x < 225", "1 <= x && x < 225"},
    {"x:any y:any", "", "not (x < y)", "y <= x"},
    {"x:any y:any", "", "x == 3 and x + y == 5", "x == 3 && y == 2"},
    {"x:any", "", "not (x < 5 or x > 7)", "5 <= x && x < 8"},
    {"h:224 kh:3", "", "h + kh >= 1 and h + kh < 225", "1 <= h + kh && h + kh < 225"},
    /* min, max, select */
    {"i:32", "", "min(i, 40)", "i"},
    {"i:32", "", "max(i, 0)", "i"},
    {"n:size", "", "max(n, 0)", "n"},
    {"x:any", "", "min(x + 1, x + 3)", "x + 1"},
    {"x:any y:any", "", "max(min(x, y), y)", "y"},
    {"x:any", "", "min(min(x, 7), 5)", "min(x, 5)"},
    {"x:any y:any", "", "select(x < y, x, y)", "min(x, y)"},
    {"x:any", "", "select(x < 5, min(x, 9), 2)", "select(x < 5, x, 2)"},
    {"x:any", "", "select(not (x < 5), 1, 2)", "select(5 <= x, 1, 2)"},
    {"x:any", "", "if_then_else(x < 5, x//(x - 5), 2)", "if_then_else(x < 5, x//(x - 5), 2)"},
    {"x:any", "", "select(x == 0, 7//x, 2)", "select(x == 0, 7//x, 2)"},
    /* assumptions */
    {"x:any", "x < 5 and x >= 4", "x", "4"},
    {"x:any y:any", "x == y", "x - y == 0", "True"},
    {"x:any", "x%8 == 3", "x%4", "3"},
    {"x:any", "x%8 == 3", "(x*2 + 1)%16", "7"},
    {"x:0..9", "x != 0", "1 <= x", "True"},
    {"x:any", "not (x < 5)", "x < 3", "False"},
    {"x:any y:any z:any", "x < y and y < z", "x + 1 < z", "True"},
    /* vectors */
    {"i:8", "", "ramp(i*8, 1, 8)//broadcast(8, 8)", "broadcast(i, 8)"},
    {"i:8", "", "ramp(i*8, 1, 8)%broadcast(8, 8)", "ramp(0, 1, 8)"},
    {"i:any", "", "ramp(i, 1, 4) + broadcast(3, 4)", "ramp(i + 3, 1, 4)"},
    {"i:any", "", "ramp(i, 1, 4)*broadcast(3, 4)", "ramp(i*3, 3, 4)"},
    {"i:any", "", "ramp(i, 0, 4)", "broadcast(i, 4)"},
    {"i:any", "", "broadcast(i, 4) + broadcast(2, 4)", "broadcast(i + 2, 4)"},
    {"i:31", "", "ramp(i*8, 1, 8) < broadcast(248, 8)", "broadcast(True, 8)"},
    {"i:32", "", "ramp(i*8, 1, 8) < broadcast(248, 8)", "broadcast(i < 31, 8)"},
    {"i:32", "", "ramp(i*8, 1, 8) < broadcast(250, 8)", "ramp(i*8, 1, 8) < broadcast(250, 8)"},
    /* casts */
    {"i:32", "", "int64(i) < int64(40)", "True"},
    {"i:any j:any", "", "int64(i) < int64(j)", "i < j"},
    {"i:32 n:size", "", "int64(i)*4 + 3", "cast(int64, i)*4 + 3"},
};
/* clang-format on */

static void check_cases(void **state)
{
  (void)state;
  int wrong = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    World w = world_new(cases[i].domain);
    if (*cases[i].assume) analyzer_push(w.a, parse_text(&w, cases[i].assume));
    const char *out = world_text(&w, expr_simplify(w.a, parse_text(&w, cases[i].in)));
    if (strcmp(out, cases[i].out)) {
      print_error("%s [%s] %s\n  gave   %s\n  wanted %s\n", cases[i].domain, cases[i].assume, cases[i].in, out,
                  cases[i].out);
      wrong++;
    }
    assert_int_equal(w.a->cycles, 0);
    world_free(&w);
  }
  assert_int_equal(wrong, 0);
}

/* ---- integers that wrap, and floats ----------------------------------------------------- */

static const Expr *binary(World *w, ExprKind k, const Expr *x, double y)
{
  return expr_binary(w->m, k, x, expr_const(w->m, x->dtype, y));
}

static void wrapping_is_kept(void **state)
{
  (void)state;
  World w = world_new("");
  const Expr *x = var_new(w.m, "x", DT_U8, VAR_PLAIN)->expr;
  /* 255 + 1 < 1 holds for uint8: nothing may cancel across the comparison */
  const Expr *e = binary(&w, E_LT, binary(&w, E_ADD, x, 1), 1);
  assert_ptr_equal(expr_simplify(w.a, e), e);
  assert_ptr_equal(expr_simplify(w.a, binary(&w, E_SUB, binary(&w, E_ADD, x, 1), 1)), x);
  e = binary(&w, E_FLOORDIV, binary(&w, E_MUL, x, 4), 4);
  assert_ptr_equal(expr_simplify(w.a, e), e);
  /* an int32 that is read from memory wraps too */
  const Expr *zero = expr_i32(w.m, 0);
  const Buffer *b = buffer_new(w.m, "b", DT_I32, 1, &zero, NULL, NULL, NULL, 0, 0, NULL);
  const Expr *load = expr_load(w.m, b, 1, &zero);
  e = binary(&w, E_LT, binary(&w, E_ADD, load, 1), 5);
  assert_ptr_equal(expr_simplify(w.a, e), e);
  e = binary(&w, E_FLOORDIV, binary(&w, E_MUL, load, 4), 4);
  assert_ptr_equal(expr_simplify(w.a, e), e);
  world_free(&w);
}

static void floats_keep_zeros_and_nans(void **state)
{
  (void)state;
  World w = world_new("");
  const Expr *x = var_new(w.m, "x", DT_F32, VAR_PLAIN)->expr;
  const Expr *kept[] = {binary(&w, E_ADD, x, 0),
                        binary(&w, E_MUL, x, 0),
                        expr_sub(w.m, x, x),
                        expr_binary(w.m, E_EQ, x, x),
                        expr_binary(w.m, E_DIV, x, x),
                        expr_sub(w.m, binary(&w, E_ADD, x, 1), expr_float(w.m, DT_F32, 1)),
                        expr_not(w.m, binary(&w, E_LT, x, 3))};
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) assert_ptr_equal(expr_simplify(w.a, kept[i]), kept[i]);
  const Expr *gone[] = {binary(&w, E_SUB, x, 0), binary(&w, E_MUL, x, 1), binary(&w, E_DIV, x, 1),
                        expr_add(w.m, x, expr_float(w.m, DT_F32, -0.0)),
                        expr_cast(w.m, DT_F32, expr_cast(w.m, DT_F64, x))};
  for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) assert_ptr_equal(expr_simplify(w.a, gone[i]), x);
  const Expr *twice = expr_cast(w.m, DT_F32, expr_cast(w.m, DT_F16, x));
  assert_ptr_equal(expr_simplify(w.a, twice), twice);
  world_free(&w);
}

/* ---- bindings and assumptions come and go -------------------------------------------------- */

static void assumptions_end(void **state)
{
  (void)state;
  World w = world_new("x:any");
  const Expr *e = parse_text(&w, "x < 5");
  int outer = analyzer_push(w.a, parse_text(&w, "x < 3"));
  assert_true(analyzer_prove(w.a, e));
  int inner = analyzer_push(w.a, parse_text(&w, "x == 1"));
  assert_int_equal(analyzer_bounds(w.a, parse_text(&w, "x*2")).max, 2);
  analyzer_pop(w.a, inner);
  assert_int_equal(analyzer_bounds(w.a, parse_text(&w, "x*2")).max, 4);
  analyzer_pop(w.a, outer);
  assert_false(analyzer_prove(w.a, e));
  world_free(&w);
}

static void binding_again_forgets(void **state)
{
  (void)state;
  World w = world_new("i:8");
  const Var *i = strmap_get(&w.vars, "i");
  assert_true(analyzer_prove(w.a, parse_text(&w, "i < 8")));
  analyzer_bind(w.a, i, expr_i32(w.m, 0), expr_i32(w.m, 16));
  assert_false(analyzer_prove(w.a, parse_text(&w, "i < 8")));
  analyzer_bind_value(w.a, i, expr_i32(w.m, 5));
  assert_string_equal(world_text(&w, expr_simplify(w.a, parse_text(&w, "i*2 + 1"))), "11");
  world_free(&w);
}

static void assuming_memory_is_not_remembered(void **state)
{
  (void)state;
  World w = world_new("");
  const Expr *zero = expr_i32(w.m, 0);
  const Buffer *b = buffer_new(w.m, "b", DT_I32, 1, &zero, NULL, NULL, NULL, 0, 0, NULL);
  const Expr *cond = binary(&w, E_LT, expr_load(w.m, b, 1, &zero), 5);
  analyzer_push(w.a, cond);
  assert_false(analyzer_prove(w.a, cond));
  world_free(&w);
}

static void let_is_seen_through(void **state)
{
  (void)state;
  World w = world_new("i:8 v:any");
  const Var *v = strmap_get(&w.vars, "v");
  const Expr *e = expr_let(w.m, v, parse_text(&w, "i*4"), parse_text(&w, "v + v%4"));
  assert_string_equal(world_text(&w, expr_simplify(w.a, e)), "(let v = i*4 in v)");
  e = expr_let(w.m, v, parse_text(&w, "i*4"), parse_text(&w, "v%4 + i"));
  assert_string_equal(world_text(&w, expr_simplify(w.a, e)), "i");
  world_free(&w);
}

/* An unrolled kernel's worth of indices: all of them, in a few milliseconds. */
static void many_indices_are_cheap(void **state)
{
  (void)state;
  World w = world_new("io:16 jo:16 ko:256");
  Map distinct = {0};
  for (int ii = 0; ii < 8; ii++)
    for (int ki = 0; ki < 4; ki++)
      for (int ji = 0; ji < 32; ji++) {
        const char *text =
            arena_printf(w.m->arena, "((io*8 + %d)*1024 + (ko*4 + %d))*64 + (jo*32 + %d)%%512//4", ii, ki, ji);
        const Expr *e = expr_simplify(w.a, parse_text(&w, text));
        map_put(w.m->arena, &distinct, e, NULL);
      }
  assert_int_equal(distinct.n, 8 * 4 * 8); /* ji//4 */
  world_free(&w);
}

/* Shared terms: as trees these have 2^60 leaves. */
static void graphs_are_not_trees(void **state)
{
  (void)state;
  World w = world_new("i:8 j:8");
  const Expr *sum = parse_text(&w, "i + 1");
  const Expr *product = sum;
  const Expr *mix = sum;
  for (int k = 0; k < 60; k++) {
    sum = k % 4 == 3 ? expr_floormod(w.m, expr_add(w.m, sum, sum), expr_i32(w.m, 1000)) : expr_add(w.m, sum, sum);
    product = expr_mul(w.m, product, product);
    mix = expr_max(w.m, expr_add(w.m, mix, mix), expr_sub(w.m, mix, parse_text(&w, "j")));
  }
  expr_simplify(w.a, sum);
  expr_simplify(w.a, product);
  expr_simplify(w.a, mix);
  bounds_of(w.a, sum);
  bounds_of(w.a, product);
  modular_of(w.a, mix);
  assert_false(analyzer_prove(w.a, expr_lt(w.m, mix, sum)));
  world_free(&w);
}

/* Choices inside choices, none of which can be decided: each level reads the one below twice. */
static void nested_choices_are_cheap(void **state)
{
  enum { DEPTH = 60 };
  (void)state;
  Ctx *ctx = ctx_new();
  Module *m = module_new(ctx);
  const Var *v[4];
  for (int i = 0; i < 4; i++) v[i] = var_new(m, (const char *[]){"a", "b", "c", "d"}[i], DT_I32, VAR_PLAIN);
  const Expr *e = var_expr(v[0]);
  for (int i = 0; i < DEPTH; i++) {
    const Expr *cond = expr_binary(m, E_LT, expr_add(m, e, var_expr(v[i % 4])), expr_i32(m, 3 * i + 7));
    e = expr_select(m, cond, expr_add(m, e, expr_i32(m, i)), expr_sub(m, var_expr(v[(i + 1) % 4]), e));
  }
  Scope scope = scope_begin(ctx);
  mem_fail_after(ctx, 0);
  const Expr *r = expr_simplify(analyzer_new(m, NULL), e);
  int64_t made = mem_fail_after(ctx, 0);
  if (made > 3000000) fail_msg("%lld allocations", (long long)made);
  assert_true(r->kind == E_SELECT || r->nargs > 0);
  scope_end(ctx, scope);
  module_release(m);
  ctx_free(ctx);
}

/* What a concatenation of many tensors of open sizes asks: where an element comes from is found by comparing
 * its position with the end of each, a sum of all sizes before.  in_budget: a proof may look at that many terms. */
static void compare_with_ends(int parts, bool in_budget)
{
  Ctx *ctx = ctx_new();
  Module *m = module_new(ctx);
  const Expr **end = arena_array(m->arena, const Expr *, parts + 1);
  end[0] = expr_i32(m, 0);
  for (int k = 0; k < parts; k++) end[k + 1] = expr_add(m, end[k], var_expr(var_new(m, "s", DT_I32, VAR_SIZE)));
  const Var *i = var_new(m, "i", DT_I32, VAR_PLAIN);
  const Expr *at = var_expr(i);
  const Expr *value = at;
  for (int k = parts - 1; k >= 0; k--) {
    const Expr *arg[] = {expr_lt(m, at, end[k + 1]), expr_sub(m, at, end[k]), value};
    value = expr_call(m, DT_I32, IN_IF_THEN_ELSE, 3, arg);
  }
  Scope scope = scope_begin(ctx);
  Analyzer *a = analyzer_new(m, NULL);
  analyzer_bind(a, i, expr_i32(m, 0), end[parts]);
  expr_simplify(a, value);
  for (int k = 0; k < parts - 2; k++) {
    analyzer_push(a, expr_binary(m, E_GE, at, end[k + 1])); /* not in the parts before … */
    bool inside = analyzer_prove(a, expr_binary(m, E_GE, expr_sub(m, at, end[k]), expr_i32(m, 0)));
    assert_true(inside);
    bool below_all = analyzer_prove(a, expr_lt(m, at, end[parts]));
    if (in_budget) assert_true(below_all);
    assert_false(analyzer_prove(a, expr_lt(m, at, end[k + 2]))); /* … and perhaps not in the next one */
  }
  if (a->terms > 300000000) fail_msg("%lld terms were looked at", (long long)a->terms);
  scope_end(ctx, scope);
  module_release(m);
  ctx_free(ctx);
}

static void long_sums_are_cheap(void **state)
{
  (void)state;
  compare_with_ends(16, true); /* as many as a kernel concatenates */
  compare_with_ends(90, false);
}

/* ---- every allocation may fail ----------------------------------------------------------- */

static void much_work(Ctx *ctx, void *arg)
{
  World *w = arg;
  (void)ctx;
  Analyzer *a = analyzer_new(w->m, NULL);
  for (int i = 0; i < w->order.n; i++) analyzer_bind(a, w->order.v[i], expr_i32(w->m, 0), expr_i32(w->m, 32));
  analyzer_push(a, parse_text(w, "io*32 + ii < 1000 and io != 3"));
  expr_simplify(a, parse_text(w, "select((io*32 + ii)//10 < 5, (io*32 + ii)%10, min(io, ii) - ii//3*3)"));
  const Expr *index[] = {parse_text(w, "(io*32 + ii)//10"), parse_text(w, "(io*32 + ii)%10")};
  const Expr *zero = expr_i32(w->m, 0);
  const IterVar *loop[2];
  for (int i = 0; i < 2; i++) loop[i] = itervar_new(w->m, w->order.v[i], zero, expr_i32(w->m, 32), ITER_SPATIAL, NULL);
  itermap_detect(a, 2, index, 2, loop, parse_text(w, "io*32 + ii < 1000"), ITERMAP_BIJECTIVE, NULL, NULL);
}

static void out_of_memory_is_an_error(void **state)
{
  (void)state;
  int failures = 0;
  for (int64_t n = 1;; n++) {
    World w = world_new("io:32 ii:32");
    mem_fail_after(w.ctx, n);
    ErrKind kind = protect(w.ctx, much_work, &w);
    mem_fail_after(w.ctx, 0);
    assert_true(kind == ERR_NONE || kind == ERR_MEMORY);
    world_free(&w);
    if (kind == ERR_NONE) break;
    failures++;
  }
  assert_true(failures > 100);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(check_cases),
    cmocka_unit_test(wrapping_is_kept),
    cmocka_unit_test(floats_keep_zeros_and_nans),
    cmocka_unit_test(assumptions_end),
    cmocka_unit_test(binding_again_forgets),
    cmocka_unit_test(assuming_memory_is_not_remembered),
    cmocka_unit_test(let_is_seen_through),
    cmocka_unit_test(many_indices_are_cheap),
    cmocka_unit_test(graphs_are_not_trees),
    cmocka_unit_test(nested_choices_are_cheap),
    cmocka_unit_test(long_sums_are_cheap),
    cmocka_unit_test(out_of_memory_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
