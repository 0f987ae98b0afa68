/* test_tir.c: building, copying and rewriting statements; what blocks touch;
 * well-formedness and bounds. */
#include "tir/tir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

typedef struct Job {
  Module *m;
  const char *text;
  PrimFunc *f;
  void (*what)(const PrimFunc *);
} Job;

static void job_body(Ctx *ctx, void *arg)
{
  (void)ctx;
  Job *j = arg;
  if (j->text) j->f = func_parse(j->m, j->text, "test.py", 1, 0, NULL);
  if (j->what) j->what(j->f);
}

static PrimFunc *parse(Module *m, const char *text)
{
  Job j = {m, text, NULL, NULL};
  if (protect(m->ctx, job_body, &j)) {
    fprintf(stderr, "%s\n%s\n", error_message(m->ctx), text);
    fail();
  }
  return j.f;
}

static void passes(Module *m, const PrimFunc *f, void (*what)(const PrimFunc *))
{
  Job j = {m, NULL, (PrimFunc *)(uintptr_t)f, what};
  if (protect(m->ctx, job_body, &j)) fail_msg("%s\n%s", error_message(m->ctx), func_print(m->arena, f));
}

static void refuses(Module *m, const PrimFunc *f, void (*what)(const PrimFunc *), ErrKind kind, const char *message)
{
  Job j = {m, NULL, (PrimFunc *)(uintptr_t)f, what};
  ErrKind got = protect(m->ctx, job_body, &j);
  if (got != kind || strcmp(error_message(m->ctx), message))
    fail_msg("got  %s\nwant %s\n%s", got ? error_message(m->ctx) : "no error", message, func_print(m->arena, f));
}

#define HEAD "@T.prim_func\ndef f(A: T.Buffer((8, 8), \"float32\"), B: T.Buffer((8,), \"float32\"), n: T.int32):\n"
static const char *const conv =
    HEAD "    C = T.alloc_buffer((8, 10))\n"
         "    for i, j in T.grid(8, 10):\n"
         "        with T.block(\"pad\"):\n"
         "            vi, vj = T.axis.remap(\"SS\", [i, j])\n"
         "            C[vi, vj] = T.if_then_else(1 <= vj and vj < 9, A[vi, vj - 1], T.float32(0))\n"
         "    for i in range(8):\n"
         "        for j, k in T.grid(8, 3):\n"
         "            with T.block(\"B\"):\n"
         "                vi, vj, vk = T.axis.remap(\"SRR\", [i, j, k])\n"
         "                with T.init():\n"
         "                    B[vi] = T.float32(0)\n"
         "                B[vi] = B[vi] + C[vi, vj + vk]\n";

/* ---- build and walk ---------------------------------------------------------------- */

static bool count_stmt(void *env, Stmt *s)
{
  (void)s;
  ++*(int *)env;
  return true;
}

static void test_clone(void **state)
{
  Module *m = *state;
  PrimFunc *f = parse(m, conv);
  PrimFunc *g = func_clone(f);
  const char *why;
  assert_true(func_equal(f, g, m->arena, &why));
  Stmt *a = func_find_block(f, "pad");
  Stmt *b = func_find_block(g, "pad");
  assert_true(a != b && a->id == b->id && func_find_id(g, a->id) == b);
  assert_null(func_find_block(f, "none"));
  /* a change of the clone does not show in the original */
  b->u.block->body->u.store.index[0] = expr_i32(m, 0);
  b->u.block->writes[0].min[0] = expr_i32(m, 0);
  assert_false(func_equal(f, g, m->arena, &why));
  assert_true(a->u.block->writes[0].min[0]->kind == E_VAR);
  int n = 0;
  int k = 0;
  stmt_visit(f->body, count_stmt, &n);
  stmt_visit(g->body, count_stmt, &k);
  assert_int_equal(n, k);
}

static void test_clone_fresh(void **state)
{
  Module *m = *state;
  PrimFunc *f = parse(m, conv);
  Map map = {0};
  Stmt *loop = func_find_block(f, "pad")->parent->parent;
  Stmt *copy = stmt_clone_fresh(m, loop, &map);
  assert_true(copy->u.loop.var != loop->u.loop.var && copy->id != loop->id);
  assert_true(map_get(&map, loop->u.loop.var) == copy->u.loop.var->expr);
  Stmt *body = f->body->u.block->body;
  assert_int_equal(body->kind, S_SEQ);
  stmt_replace(f, loop, stmt_seq(m, 2, (Stmt *[]){loop, copy}));
  assert_int_equal(f->body->u.block->body->u.seq.n, 3);
  assert_non_null(func_find_block(f, "pad_1"));
  passes(m, f, func_check);
  /* a whole function, its allocation too */
  Stmt *all = stmt_clone_fresh(m, f->body, NULL);
  assert_true(all->u.block->allocs[0] != f->body->u.block->allocs[0]);
  assert_string_equal(all->u.block->name, "root_1");
}

static void test_replace(void **state)
{
  Module *m = *state;
  PrimFunc *f = parse(m, conv);
  Stmt *block = func_find_block(f, "pad");
  const Var *v = var_new(m, "u", DT_I32, VAR_PLAIN);
  Stmt *wrap = stmt_for(m, v, expr_i32(m, 0), expr_i32(m, 1), FOR_SERIAL, NULL, block);
  stmt_replace(f, block, wrap);
  assert_true(wrap->u.loop.body == block && block->parent == wrap && wrap->parent->kind == S_FOR);
  Stmt **loops;
  assert_int_equal(stmt_loops(m->arena, block, &loops), 3);
  assert_true(loops[2] == wrap && loops[0]->parent->kind == S_SEQ);
  assert_true(stmt_enclosing_block(block) == f->body && !stmt_enclosing_block(f->body));
  stmt_replace(f, f->body, stmt_nop(m));
  assert_int_equal(f->body->kind, S_EVAL);
}

static void test_substitute(void **state)
{
  Module *m = *state;
  PrimFunc *f = parse(m, "@T.prim_func\n"
                         "def f(A: T.Buffer((8,), \"float32\"), n: T.int32):\n"
                         "    t = T.decl_buffer((n * 2,))\n"
                         "    for i in range(n):\n"
                         "        t[i] = A[i + n]\n");
  const PrimFunc *g = parse(m, "@T.prim_func\n"
                               "def f(A: T.Buffer((8,), \"float32\"), n: T.int32):\n"
                               "    t = T.decl_buffer((T.Mul(4, 2),))\n"
                               "    for i in range(4):\n"
                               "        t[i] = A[i + 4]\n");
  Map map = {0};
  map_put(m->arena, &map, f->param[1].var, (void *)(uintptr_t)expr_i32(m, 4));
  stmt_substitute(m, f->body, &map);
  const char *why = NULL;
  assert_true(func_equal(f, g, m->arena, &why));
  const Buffer *old = f->body->u.alloc.buffer;
  const Buffer *b = buffer_new(m, "shared", old->dtype, 1, old->shape, NULL, NULL, "shared", 0, 0, NULL);
  stmt_replace_buffer(m, f->body, old, b);
  assert_true(f->body->u.alloc.buffer == b && f->body->u.alloc.body->u.loop.body->u.store.buffer == b);
  passes(m, f, func_check);
}

static void test_import(void **state)
{
  Module *m = *state;
  Module *other = module_new(m->ctx);
  PrimFunc *f = parse(m, conv);
  PrimFunc *g = func_import(other, f);
  const char *why;
  assert_true(func_equal(f, g, m->arena, &why));
  assert_int_equal(func_find_block(g, "B")->id, func_find_block(f, "B")->id);
  assert_true(other->next_id > func_find_block(f, "B")->id);
  passes(m, g, func_check);
  module_release(other);
}

static void bad_store(const PrimFunc *f)
{
  const Expr *index[] = {expr_i32(f->m, 0)};
  stmt_store(f->m, f->param[0].buffer, 1, index, expr_float(f->m, DT_F32, 0));
}

static void bad_value(const PrimFunc *f)
{
  const Expr *index[] = {expr_i32(f->m, 0)};
  stmt_store(f->m, f->param[1].buffer, 1, index, f->param[2].var->expr);
}

static void test_constructors(void **state)
{
  Module *m = *state;
  PrimFunc *f = parse(m, conv);
  refuses(m, f, bad_store, ERR_TYPE, "store to 'A': 1 indices for a buffer of 2 dimensions");
  refuses(m, f, bad_value, ERR_TYPE, "store to 'B': the buffer takes float32, the value n is int32; cast it");
  Annots a = {0};
  annots_set(m->arena, &a, "x", expr_i32(m, 1));
  annots_set(m->arena, &a, "y", expr_i32(m, 2));
  annots_set(m->arena, &a, "x", expr_i32(m, 3));
  assert_true(a.n == 2 && expr_is_int(annots_get(&a, "x"), 3) && annots_remove(&a, "x") && !annots_remove(&a, "x"));
  assert_true(expr_is_int(annots_get(&a, "y"), 2) && !annots_get(&a, "x"));
  Stmt *nop = stmt_nop(m);
  Stmt *seq = stmt_seq(m, 2, (Stmt *[]){stmt_seq(m, 2, (Stmt *[]){nop, stmt_nop(m)}), stmt_nop(m)});
  assert_true(seq->u.seq.n == 3 && nop->parent == seq && stmt_seq(m, 1, &nop) == nop);
}

/* ---- regions --------------------------------------------------------------------------- */

static const char *region_text(Module *m, const Region *r)
{
  Text t = text_new(m->arena);
  text_add(&t, r->buffer->name);
  for (int d = 0; d < r->buffer->ndim; d++)
    text_printf(&t, " %s:+%s", expr_str_of(m->arena, r->min[d]), expr_str_of(m->arena, r->extent[d]));
  return text_str(&t);
}

static void test_infer_access(void **state)
{
  Module *m = *state;
  PrimFunc *f = parse(m, conv);
  const Block *pad = func_find_block(f, "pad")->u.block;
  const Block *sum = func_find_block(f, "B")->u.block;
  assert_true(pad->nreads == 1 && pad->nwrites == 1 && sum->nreads == 1 && sum->nwrites == 1);
  assert_string_equal(region_text(m, &pad->reads[0]), "A vi:+1 vj - 1:+1");
  assert_string_equal(region_text(m, &sum->reads[0]), "C vi:+1 vj + vk:+1");
  assert_string_equal(region_text(m, &sum->writes[0]), "B vi:+1");
  f = parse(m, HEAD "    for i in range(4):\n"
                    "        with T.block(\"b\"):\n"
                    "            vi = T.axis.spatial(4, i)\n"
                    "            t = T.alloc_buffer((4,))\n"
                    "            for j in range(2):\n"
                    "                for k in T.vectorized(3):\n"
                    "                    t[k] = A[vi * 2 + j, k + 1] + A[vi * 2 + j, k + 2]\n"
                    "                B[vi * 2 + j] = t[j] + B[vi * 2 + T.Cast(\"int32\", A[0, j])]\n");
  const Block *b = func_find_block(f, "b")->u.block;
  assert_int_equal(b->nreads, 2);
  assert_string_equal(region_text(m, &b->reads[0]), "A 0:+vi*2 + 2 0:+5");
  assert_string_equal(region_text(m, &b->reads[1]), "B 0:+8");
  assert_string_equal(region_text(m, &b->writes[0]), "B vi*2:+2");
}

static void test_stmt_region(void **state)
{
  Module *m = *state;
  PrimFunc *f = parse(m, conv);
  Scope scope = scope_begin(m->ctx);
  Analyzer *an = analyzer_new(m, scratch(m->ctx));
  Stmt *loop = func_find_block(f, "B")->parent->parent->parent; /* for i: fixed */
  analyzer_bind(an, loop->u.loop.var, loop->u.loop.min, loop->u.loop.extent);
  Region r;
  const Buffer *c = f->body->u.block->allocs[0];
  assert_true(stmt_region(an, loop, c, false, &r));
  assert_string_equal(region_text(m, &r), "C i:+1 0:+10");
  assert_false(stmt_region(an, loop, c, true, &r));
  assert_true(stmt_region(an, f->body, c, true, &r));
  assert_string_equal(region_text(m, &r), "C 0:+8 0:+10");
  scope_end(m->ctx, scope);
}

/* ---- check -------------------------------------------------------------------------------- */

static void test_check(void **state)
{
  Module *m = *state;
  PrimFunc *f = parse(m, conv);
  passes(m, f, func_check);
  passes(m, f, func_check_bounds);
  Stmt *pad = func_find_block(f, "pad");
  Stmt *sum = func_find_block(f, "B");
  const Expr *i = sum->parent->parent->parent->u.loop.var->expr;
  Stmt *store = pad->u.block->body;
  const Expr *index = store->u.store.index[0];
  store->u.store.index[0] = i;
  refuses(m, f, func_check, ERR_TYPE, "function 'f', block 'pad': variable 'i' is used outside of its scope");
  store->u.store.index[0] = index;
  const Expr *value = store->u.store.value;
  store->u.store.value = expr_i32(m, 1);
  refuses(m, f, func_check, ERR_TYPE, "function 'f', block 'pad': the store to 'C' takes float32, its value is int32");
  store->u.store.value = value;
  const char *name = pad->u.block->name;
  pad->u.block->name = "B";
  refuses(m, f, func_check, ERR_TYPE, "function 'f', block 'B': two blocks are named 'B'");
  pad->u.block->name = name;
  Stmt *loop = pad->parent;
  const Var *var = loop->u.loop.var;
  loop->u.loop.var = loop->parent->u.loop.var;
  refuses(m, f, func_check, ERR_TYPE,
          "function 'f', loop 'i': variable 'i' is defined twice; each binder has a variable of its own");
  loop->u.loop.var = var;
  f->body->u.block->nallocs = 0;
  refuses(m, f, func_check, ERR_TYPE, "function 'f', block 'pad': buffer 'C' is used where it is not declared");
  f->body->u.block->nallocs = 1;
  f->body = f->body->u.block->body;
  refuses(m, f, func_check, ERR_TYPE,
          "function 'f': it holds blocks, but its outermost statement is not the root block");
}

static void test_domains(void **state)
{
  Module *m = *state;
  PrimFunc *f = parse(m, HEAD "    for i, j in T.grid(3, 3):\n"
                              "        with T.block(\"b\"):\n"
                              "            v = T.axis.spatial(8, i * 3 + j)\n"
                              "            B[v] = 0.0\n");
  refuses(m, f, func_check, ERR_TYPE,
          "function 'f', axis 'v': the binding i*3 + j, which runs from 0 to 8, reaches 8, outside of its domain of 8");
  f = parse(m, HEAD "    for i, j in T.grid(3, 3):\n"
                    "        with T.block(\"b\"):\n"
                    "            v = T.axis.spatial(8, i * 3 + j)\n"
                    "            T.where(i * 3 + j < 8)\n"
                    "            B[v] = 0.0\n");
  passes(m, f, func_check);
}

/* Each body: the message, or NULL when nothing is certain. */
static const struct {
  const char *body, *message;
} accesses[] = {
  {"    for i in range(8):\n        B[i + 1] = 0.0\n",
   "function 'f': write to buffer 'B' is out of bounds: dimension 0 has extent 8, index i + 1, which runs from 1 to 8, "
   "reaches 8"},
  {"    for i in range(8):\n        B[i] = A[i, i - 1]\n",
   "function 'f': read of buffer 'A' is out of bounds: dimension 1 has extent 8, index i - 1, which runs from -1 to 6, "
   "reaches -1"},
  {"    for i in range(8):\n        B[i] = T.if_then_else(i >= 1, A[i, i - 1], T.float32(0))\n", NULL},
  {"    for i in range(8):\n        B[i] = T.Select(i >= 1, A[i, i - 1], T.float32(0))\n", NULL},
  {"    for i in range(8):\n        if i < 7:\n            B[i + 1] = 0.0\n", NULL},
  {"    for i in range(8):\n        if i > 3 and i % 2 == 1:\n            B[i + 1] = 0.0\n",
   "function 'f': write to buffer 'B' is out of bounds: dimension 0 has extent 8, index i + 1, which runs from 5 to 8, "
   "reaches 8"},
  {"    for i in range(8):\n        for j in range(i):\n            B[i + j] = 0.0\n",
   "function 'f': write to buffer 'B' is out of bounds: dimension 0 has extent 8, index i + j, which runs from 0 to "
   "13, reaches 8"},
  {"    for r in range(2):\n        for i in range(r):\n            B[8 - r] = 0.0\n", NULL}, /* r = 0: no i */
  {"    for i in range(n):\n        B[i] = 0.0\n", NULL},                                     /* n may be 8 */
  {"    for i in range(8):\n        B[T.Cast(\"int32\", A[i, 0])] = 0.0\n", NULL},            /* data */
  {"    for i in range(8):\n        if A[i, 0] > T.float32(0):\n            B[i + 1] = 0.0\n", NULL},
  {"    if n < 0:\n        B[9] = 0.0\n", NULL},
  {"    for i in range(2):\n        B[T.Ramp(i * 4 + 1, 1, 4)] = T.Broadcast(T.float32(0), 4)\n",
   "function 'f': write to buffer 'B' is out of bounds: dimension 0 has extent 8, index ramp(i*4 + 1, 1, 4) reaches 8"},
  {"    C = T.decl_buffer((n,))\n    for i in range(n):\n        C[i + 1] = 0.0\n",
   "function 'f': write to buffer 'C' is out of bounds: dimension 0 has extent n, index i + 1 reaches n"},
  {"    for i in range(8):\n        x = i * 2\n        B[x // 2] = 0.0\n", NULL},
  {"    for io, ii in T.grid(3, 3):\n        if T.likely(io * 3 + ii < 8):\n            B[io * 3 + ii] = 0.0\n", NULL},
};

static void test_bounds(void **state)
{
  Module *m = *state;
  for (size_t i = 0; i < sizeof accesses / sizeof *accesses; i++) {
    char text[1000];
    snprintf(text, sizeof text, HEAD "%s", accesses[i].body);
    PrimFunc *f = parse(m, text);
    if (accesses[i].message) refuses(m, f, func_check_bounds, ERR_BOUNDS, accesses[i].message);
    else passes(m, f, func_check_bounds);
  }
}

static int setup(void **state)
{
  *state = module_new(ctx_new());
  return 0;
}

static int teardown(void **state)
{
  Module *m = *state;
  Ctx *ctx = m->ctx;
  module_release(m);
  ctx_free(ctx);
  return 0;
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  /* clang-format off */
  const struct CMUnitTest tests[] = {
      TEST(test_clone),  TEST(test_clone_fresh),  TEST(test_replace),      TEST(test_substitute),  TEST(test_import),
      TEST(test_constructors), TEST(test_infer_access), TEST(test_stmt_region), TEST(test_check), TEST(test_domains),
      TEST(test_bounds),
  };
  /* clang-format on */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
