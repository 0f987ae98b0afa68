/* test_closures.c: functions as values, data types and match in compiled models.  What a model
 * should give is what the interpreter gives for the same text and inputs; numbers that
 * are given by hand check the interpreter too. */
#include "driver/test_driver.h"

#define LIST "type List[A] { Cons(A, List[A]), Nil }\n"
#define MAP                                                                     \
  "def @map[A, B](%f: fn (A) -> B, %l: List[A]) -> List[B] {\n"                 \
  "  match (%l) { Cons(%h, %t) => Cons(%f(%h), @map(%f, %t)), Nil => Nil() }\n" \
  "}\n"
#define FOLDL                                                                \
  "def @foldl[A, B](%f: fn (B, A) -> B, %b: B, %l: List[A]) -> B {\n"        \
  "  match (%l) { Cons(%h, %t) => @foldl(%f, %f(%b, %h), %t), Nil => %b }\n" \
  "}\n"

/* ---- against the interpreter -------------------------------------------------------------- */

typedef struct Asked {
  World *w;
  int n;
  const LatheRtTensor *in;
  const LatheRtTensor **have;
  int nhave;
} Asked;

static DType dtype_of(LatheRtDType t)
{
  return t.code == 2 ? DTYPE(DT_FLOAT, t.bits) : t.code == 1 ? DT_BOOL : DTYPE(DT_INT, t.bits);
}

static int compare_leaves(const RtValue *v, const LatheRtTensor **have, int at)
{
  if (v->kind == RV_TUPLE) {
    for (int i = 0; i < v->n; i++) at = compare_leaves(v->field[i], have, at);
    return at;
  }
  assert_int_equal(v->kind, RV_TENSOR);
  size_t bytes;
  assert_int_equal(lathe_rt_tensor_bytes(have[at], &bytes, NULL), 0);
  assert_int_equal(bytes, v->tensor.bytes);
  if (bytes) assert_memory_equal(have[at]->data, v->tensor.data, bytes);
  return at + 1;
}

static void ask_interpreter(Ctx *ctx, void *arg)
{
  Asked *a = arg;
  Arena *arena = arena_new(ctx);
  const RtValue *in[8];
  for (int i = 0; i < a->n; i++) {
    ConstData d = {.dtype = dtype_of(a->in[i].dtype), .ndim = a->in[i].ndim, .data = a->in[i].data};
    for (int k = 0; k < d.ndim; k++) d.shape[k] = a->in[i].shape[k];
    assert_int_equal(lathe_rt_tensor_bytes(&a->in[i], &d.bytes, NULL), 0);
    in[i] = graph_value_tensor(arena, &d);
  }
  const RtValue *v = graph_eval(a->w->m, arena, graph_main(a->w->m), a->n, in);
  assert_int_equal(compare_leaves(v, a->have, 0), a->nhave);
  arena_free(arena);
}

/* Runs the model on these inputs; every output must be the interpreter's, to the bit (the
 * tests compute in small whole numbers). */
static void check(World *w, int n, const LatheRtTensor *in)
{
  for (int i = 0; i < n; i++) set(w->x, i, in[i]);
  run(w->x);
  const LatheRtTensor *have[16];
  const LatheRtPort *port;
  Asked a = {.w = w, .n = n, .in = in, .have = have, .nhave = lathe_rt_model_outputs(compiled_model(w->c), &port)};
  for (int i = 0; i < a.nhave; i++) have[i] = output(w->x, i);
  if (protect(w->ctx, ask_interpreter, &a)) fail_msg("the interpreter: %s", error_message(w->ctx));
}

static float first(World *w, int i) { return *(const float *)output(w->x, i)->data; }

/* ---- functions as values --------------------------------------------------------------------- */

/* Which function is called is decided by an input; both capture. */
static void test_chosen_function(void **state)
{
  (void)state;
  World w = compile_text("def @apply(%f: fn (Tensor[(n), float32]) -> Tensor[(n), float32], %x: Tensor[(n), float32]) "
                         "-> Tensor[(n), float32] { %f(%f(%x)) }\n"
                         "def @main(%c: bool, %x: Tensor[(n), float32], %k: float32) {\n"
                         "  let %f = if (%c) { fn (%y: Tensor[(n), float32]) { add(multiply(%y, %k), %x) } } else { fn "
                         "(%y: Tensor[(n), float32]) { subtract(%y, %k) } };\n"
                         "  (@apply(%f, %x), %f(negative(%x)))\n"
                         "}\n");
  float x[] = {1, 2, 3};
  float k = 2;
  for (uint8_t c = 0; c < 2; c++)
    check(&w, 3, (LatheRtTensor[]){tensor(BOOL, &c, 0, NULL), tensor(F32, x, SHAPE(3)), tensor(F32, &k, 0, NULL)});
  expect_floats(output(w.x, 0), 3, (float[]){7, 14, 21}, 0);
  close_world(&w);
}

/* A function that gives a function, which is kept in a tuple and called later; one that calls itself
 * is handed on as a value. */
static void test_returned_function(void **state)
{
  (void)state;
  World w = compile_text(
      "def @adder(%k: float32) -> fn (float32) -> float32 { fn (%x: float32) -> float32 { add(%x, %k) } }\n"
      "def @twice(%f: fn (float32) -> float32) -> fn (float32) -> float32 { fn (%x: float32) -> float32 { %f(%f(%x)) } "
      "}\n"
      "def @main(%a: float32, %n: int32) {\n"
      "  let %two = (@adder(%a), @twice(@adder(10f)));\n"
      "  let %f = %two.1;\n"
      "  let %power: fn (float32) -> float32 = fn (%i: float32) -> float32 { if (greater(%i, 0f)) { "
      "multiply(%power(subtract(%i, 1f)), %a) } else { 1f } };\n"
      "  (%two.0(1f), %f(1f), @twice(%power)(%a))\n"
      "}\n");
  float a = 2;
  int32_t n = 3;
  check(&w, 2, (LatheRtTensor[]){tensor(F32, &a, 0, NULL), tensor(I32, &n, 0, NULL)});
  assert_true(first(&w, 0) == 3 && first(&w, 1) == 21 && first(&w, 2) == 16);
  close_world(&w);
}

/* Tuples cross a function value as one value, in and out; a type parameter may be a tuple. */
static void test_tuples_through_values(void **state)
{
  (void)state;
  World w = compile_text(
      "def @pair[A, B](%f: fn (A) -> B, %x: A) -> (A, B) { (%x, %f(%x)) }\n"
      "def @swap(%p: (float32, (float32, int32))) -> ((float32, int32), float32) { (%p.1, %p.0) }\n"
      "def @id[A](%x: A) -> A { %x }\n"
      "def @main(%c: bool, %x: float32, %i: int32) {\n"
      "  let %f = if (%c) { @swap } else { fn (%p: (float32, (float32, int32))) { ((negative(%p.0), 7), %p.1.0) } };\n"
      "  let %r = @pair(%f, (%x, (add(%x, 1f), %i)));\n"
      "  let %u = @pair(fn (%e: ()) { %e }, ());\n"
      "  (%r, @id(%r).1.0, @id((%x, %i)))\n"
      "}\n");
  float x = 5;
  int32_t i = 3;
  for (uint8_t c = 0; c < 2; c++)
    check(&w, 3, (LatheRtTensor[]){tensor(BOOL, &c, 0, NULL), tensor(F32, &x, 0, NULL), tensor(I32, &i, 0, NULL)});
  close_world(&w);
}

/* Functions that are known when the model is compiled are called directly, through lets too. */
static void test_known_functions_are_direct(void **state)
{
  (void)state;
  char path[] = "/tmp/lathe-closures-XXXXXX";
  assert_non_null(mkdtemp(path));
  World w;
  CompileOptions options = {.dump_dir = path};
  const char *why = try_compile(
      &w,
      "def @g(%x: float32) -> float32 { if (less(%x, 3f)) { @g(add(%x, 1f)) } else { %x } }\n"
      "def @main(%x: float32) { let %f = @g; let %h = fn (%y: float32) { %f(multiply(%y, %x)) }; %h(%x) }\n",
      &options);
  if (why) fail_msg("%s", why);
  char text[4096] = "";
  char name[300];
  for (int i = 0; i < 60 && !*text; i++) {
    snprintf(name, sizeof name, "%s/%02d_program.txt", path, i);
    FILE *f = fopen(name, "r");
    if (!f) continue;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
  }
  assert_non_null(strstr(text, "tail g("));
  assert_null(strstr(text, "closure"));
  assert_null(strstr(text, "apply"));
  snprintf(name, sizeof name, "rm -r %s", path);
  assert_int_equal(system(name), 0);
  close_world(&w);
}

/* A size of the surroundings that only the type of a captured function's result speaks of. */
static void test_captured_size(void **state)
{
  (void)state;
  World w = compile_text("def @main(%c: bool, %x: Tensor[(n, 2), float32], %k: float32) {\n"
                         "  let %f = if (%c) { fn (%y: float32) { broadcast_to(%y, shape=[n, 2]) } } else { fn (%y: "
                         "float32) { broadcast_to(add(%y, 1f), shape=[n, 2]) } };\n"
                         "  %f(%k)\n"
                         "}\n");
  float x[8] = {0};
  float k = 4;
  uint8_t c = 0;
  for (int64_t n = 1; n < 4; n++)
    check(&w, 3, (LatheRtTensor[]){tensor(BOOL, &c, 0, NULL), tensor(F32, x, SHAPE(n, 2)), tensor(F32, &k, 0, NULL)});
  close_world(&w);
}

/* Sizes that a pattern tells, and a function that names itself and speaks of one. */
static void test_captured_size_of_pattern(void **state)
{
  (void)state;
  World w = compile_text(
      LIST
      "def @apply(%f: fn (float32) -> Tensor[(?, 2), float32], %x: float32) -> Tensor[(?, 2), float32] { %f(%x) }\n"
      "def @first(%l: List[Tensor[(k), float32]]) -> Tensor[(?, 2), float32] {\n"
      "  match (%l) { Cons(%h, _) => { let %s = sum(%h); @apply(fn (%y: float32) -> Tensor[(?, 2), float32] { "
      "broadcast_to(%y, shape=[k, 2]) }, %s) }, Nil => zeros(shape=[1, 2], dtype=\"float32\") }\n"
      "}\n"
      "def @main(%l: Tensor[(n), float32], %k: float32) {\n"
      "  let %down: fn (float32) -> Tensor[(?, 2), float32] = fn (%i: float32) -> Tensor[(?, 2), float32] { if "
      "(greater(%i, 0f)) { @apply(%down, subtract(%i, 1f)) } else { broadcast_to(%i, shape=[n, 2]) } };\n"
      "  (@first(Cons(concatenate((%l, %l), axis=0), Nil())), @apply(%down, %k))\n"
      "}\n");
  float l[] = {1, 2, 3};
  float k = 3;
  for (int64_t n = 1; n < 4; n++) {
    check(&w, 2, (LatheRtTensor[]){tensor(F32, l, SHAPE(n)), tensor(F32, &k, 0, NULL)});
    assert_true(output(w.x, 0)->shape[0] == 2 * n && output(w.x, 1)->shape[0] == n);
  }
  close_world(&w);
}

/* ---- data ------------------------------------------------------------------------------------------ */

/* A list made in a loop, mapped by a function that captures, folded. */
static void test_list(void **state)
{
  (void)state;
  World w = compile_text(
      LIST MAP FOLDL
      "def @build(%i: int32, %x: Tensor[(2), float32], %l: List[Tensor[(2), float32]]) -> List[Tensor[(2), float32]] "
      "{\n"
      "  if (greater(%i, 0)) { @build(subtract(%i, 1), add(%x, 1f), Cons(%x, %l)) } else { %l }\n"
      "}\n"
      "def @main(%n: int32, %x: Tensor[(2), float32], %k: float32) {\n"
      "  let %l = @build(%n, %x, Nil());\n"
      "  let %m = @map(fn (%y: Tensor[(2), float32]) { nn.relu(subtract(multiply(%y, %k), 1f)) }, %l);\n"
      "  let %plus = fn (%a: Tensor[(2), float32], %b: Tensor[(2), float32]) { add(multiply(%a, 2f), %b) };\n"
      "  (@foldl(%plus, zeros_like(%x), %l), @foldl(%plus, zeros_like(%x), %m))\n"
      "}\n");
  float x[] = {1, -3};
  float k = 3;
  for (int32_t n = 0; n < 6; n++)
    check(&w, 3, (LatheRtTensor[]){tensor(I32, &n, 0, NULL), tensor(F32, x, SHAPE(2)), tensor(F32, &k, 0, NULL)});
  close_world(&w);
}

/* Trees: recursion on both sides, constructors as functions, nested patterns and tuples in fields. */
static void test_tree(void **state)
{
  (void)state;
  World w = compile_text("type Tree[A] { Node(Tree[A], (A, int32), Tree[A]), Leaf }\n"
                         "def @put(%t: Tree[float32], %x: float32, %depth: int32) -> Tree[float32] {\n"
                         "  match (%t) {\n"
                         "    Leaf => Node(Leaf(), (%x, %depth), Leaf()),\n"
                         "    Node(%l, (%y, %d), %r) => if (less(%x, %y)) { Node(@put(%l, %x, add(%depth, 1)), (%y, "
                         "%d), %r) } else { Node(%l, (%y, %d), @put(%r, %x, add(%depth, 1))) }\n"
                         "  }\n"
                         "}\n"
                         "def @sum(%t: Tree[float32]) -> (float32, int32) {\n"
                         "  match (%t) {\n"
                         "    Node(Leaf, (%x, %d), Leaf) => (%x, %d),\n"
                         "    Node(%l, %p, %r) => { let %a = @sum(%l); let %b = @sum(%r); (add(add(%a.0, %b.0), "
                         "multiply(%p.0, 10f)), add(add(%a.1, %b.1), %p.1)) },\n"
                         "    _ => (0f, 0)\n"
                         "  }\n"
                         "}\n"
                         "def @main(%a: float32, %b: float32, %c: float32) {\n"
                         "  @sum(@put(@put(@put(@put(Leaf(), %a, 0), %b, 0), %c, 0), 3f, 0))\n"
                         "}\n");
  static float v[][3] = {{1, 2, 4}, {5, 4, 1}, {2, 7, 3}, {3, 3, 3}};
  for (int i = 0; i < 4; i++)
    check(&w, 3,
          (LatheRtTensor[]){tensor(F32, &v[i][0], 0, NULL), tensor(F32, &v[i][1], 0, NULL),
                            tensor(F32, &v[i][2], 0, NULL)});
  close_world(&w);
}

/* A constructor as a function; functions in fields; a match that is no tail; clauses in order. */
static void test_functions_in_data(void **state)
{
  (void)state;
  World w = compile_text(LIST MAP
                         "type Op { Unary(fn (float32) -> float32), Const(float32), Pair(Op, (float32, Op)) }\n"
                         "def @run(%o: Op, %x: float32) -> float32 {\n"
                         "  add(match (%o) { Unary(%f) => %f(%x), Pair(Const(%c), (%k, Unary(%g))) => add(%c, "
                         "multiply(%k, %g(%x))), Pair(%p, (_, %q)) => @run(%q, @run(%p, %x)), Const(%c) => %c }, 1f)\n"
                         "}\n"
                         "def @sum(%l: List[Op], %x: float32) -> float32 { match (%l) { Cons(%h, %t) => add(@run(%h, "
                         "%x), @sum(%t, %x)), Nil => 0f } }\n"
                         "def @main(%x: float32, %y: float32) {\n"
                         "  let %f = fn (%z: float32) { multiply(%z, %y) };\n"
                         "  let %ops = Cons(Unary(%f), Cons(Pair(Const(3f), (%y, Unary(%f))), Cons(Pair(Unary(%f), "
                         "(0f, Const(%x))), Nil())));\n"
                         "  (@sum(%ops, %x), @sum(@map(Const, Cons(%x, Cons(%y, Nil()))), 0f))\n"
                         "}\n");
  float x = 2;
  float y = 5;
  check(&w, 2, (LatheRtTensor[]){tensor(F32, &x, 0, NULL), tensor(F32, &y, 0, NULL)});
  close_world(&w);
}

/* The items of a list have sizes of their own; what comes out of a pattern tells them. */
static void test_sizes_in_data(void **state)
{
  (void)state;
  World w = compile_text(
      LIST "def @total(%l: List[Tensor[(?), float32]]) -> float32 { match (%l) { Cons(%h, %t) => add(sum(nn.relu(%h)), "
           "@total(%t)), Nil => 0f } }\n"
           "def @join(%l: List[Tensor[(?), float32]]) -> Tensor[(?), float32] {\n"
           "  match (%l) { Cons(%a, Cons(%b, Nil)) => concatenate((add(%a, 1f), multiply(%b, 2f)), axis=0), Cons(%a, "
           "%t) => concatenate((%a, @join(%t)), axis=0), Nil => zeros(shape=[0], dtype=\"float32\") }\n"
           "}\n"
           "def @main(%a: Tensor[(n), float32], %b: Tensor[(m), float32]) {\n"
           "  let %l = Cons(%a, Cons(%b, Cons(concatenate((%a, %b), axis=0), Nil())));\n"
           "  (@total(%l), @join(%l))\n"
           "}\n");
  float a[] = {1, -2, 3, 4};
  float b[] = {5, 6, -7, 8};
  for (int64_t n = 1; n < 4; n++) {
    check(&w, 2, (LatheRtTensor[]){tensor(F32, a, SHAPE(n)), tensor(F32, b, SHAPE(4 - n))});
    assert_int_equal(output(w.x, 1)->shape[0], 8);
  }
  close_world(&w);
}

/* A size by name that only the tensor in a pattern tells. */
static void test_named_size_in_data(void **state)
{
  (void)state;
  World w = compile_text(
      LIST "def @ones(%l: List[Tensor[(k), float32]]) -> Tensor[(?, 2), float32] {\n"
           "  match (%l) { Cons(%h, _) => broadcast_to(sum(%h), shape=[k, 2]), Nil => zeros(shape=[1, 2], "
           "dtype=\"float32\") }\n"
           "}\n"
           "def @main(%c: bool, %x: Tensor[(n), float32]) { @ones(if (%c) { Cons(%x, Nil()) } else { Nil() }) }\n");
  float x[] = {1, 2, 3, 4};
  for (uint8_t c = 0; c < 2; c++)
    for (int64_t n = 1; n < 4; n++)
      check(&w, 2, (LatheRtTensor[]){tensor(BOOL, &c, 0, NULL), tensor(F32, x, SHAPE(n))});
  assert_int_equal(output(w.x, 0)->shape[0], 3);
  close_world(&w);
}

/* A size that a type says is shared is checked when a value comes out of a pattern. */
static void test_size_that_lies(void **state)
{
  (void)state;
  World w =
      compile_text(LIST "def @f(%x: Tensor[(n), float32], %l: List[Tensor[(n), float32]]) -> float32 { match (%l) { "
                        "Cons(%h, _) => sum(add(%h, %x)), Nil => 0f } }\n"
                        "def @main(%a: Tensor[(n), float32], %b: Tensor[(m), float32]) { @f(%a, Cons(%b, Nil())) }\n");
  float a[] = {1, 2, 3};
  check(&w, 2, (LatheRtTensor[]){tensor(F32, a, SHAPE(3)), tensor(F32, a, SHAPE(3))});
  LatheRtError err;
  set(w.x, 1, tensor(F32, a, SHAPE(2)));
  assert_int_equal(lathe_rt_run(w.x, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "pattern variable 'h': dimension 0 is not n");
  set(w.x, 1, tensor(F32, a, SHAPE(3)));
  run(w.x);
  close_world(&w);
}

static void test_no_clause_fits(void **state)
{
  (void)state;
  World w =
      compile_text(LIST "def @head(%l: List[float32]) -> float32 { match (%l) { Cons(%h, _) => %h } }\n"
                        "def @main(%c: bool, %x: float32) { @head(if (%c) { Cons(%x, Nil()) } else { Nil() }) }\n");
  uint8_t c = 1;
  float x = 3;
  check(&w, 2, (LatheRtTensor[]){tensor(BOOL, &c, 0, NULL), tensor(F32, &x, 0, NULL)});
  LatheRtError err;
  c = 0;
  set(w.x, 0, tensor(BOOL, &c, 0, NULL));
  assert_int_equal(lathe_rt_run(w.x, &err), LATHE_RT_ARGUMENT);
  assert_string_equal(err.text, "match: no clause fits the value (in function 'head')");
  close_world(&w);
}

/* 200,000 cells, walked by a loop and freed at once: no C stack is used for either, and the memory
 * of a turn goes before the next. */
static void test_long_list(void **state)
{
  (void)state;
  World w = compile_text(
      LIST FOLDL
      "def @build(%i: float32, %l: List[float32]) -> List[float32] { if (greater(%i, 0f)) { @build(subtract(%i, 1f), "
      "Cons(%i, %l)) } else { %l } }\n"
      "def @main(%n: float32) { @foldl(fn (%a: float32, %b: float32) { subtract(%b, %a) }, 0f, @build(%n, Nil())) }\n");
  float n = 200000;
  set(w.x, 0, tensor(F32, &n, 0, NULL));
  run(w.x);
  assert_true(first(&w, 0) == 100000);
  run(w.x);
  assert_true(first(&w, 0) == 100000);
  close_world(&w);
}

/* A loop through a function value runs in constant space. */
static void test_loop_through_value(void **state)
{
  (void)state;
  World w = compile_text(
      "def @step(%again: fn (float32, float32) -> float32, %i: float32, %x: float32) -> float32 {\n"
      "  if (greater(%i, 0f)) { %again(subtract(%i, 1f), add(%x, 2f)) } else { %x }\n"
      "}\n"
      "def @main(%c: bool, %n: float32) {\n"
      "  let %go: fn (float32, float32) -> float32 = fn (%i: float32, %x: float32) -> float32 { @step(%go, %i, %x) };\n"
      "  let %f = if (%c) { %go } else { fn (%i: float32, %x: float32) -> float32 { %x } };\n"
      "  %f(%n, 0f)\n"
      "}\n");
  uint8_t c = 1;
  float n = 150000;
  set(w.x, 0, tensor(BOOL, &c, 0, NULL));
  set(w.x, 1, tensor(F32, &n, 0, NULL));
  run(w.x);
  assert_true(first(&w, 0) == 300000);
  uint64_t storage;
  lathe_rt_executor_memory(w.x, &storage, NULL);
  assert_true(storage < 10000);
  close_world(&w);
}

/* ---- several entries, and data that lives between calls ----------------------------------------------- */

static const char counter[] =
    LIST "def @begin(%x: float32) { Cons(%x, Nil()) }\n"
         "def @push(%l: List[float32], %x: float32) { Cons(%x, %l) }\n"
         "def @total(%l: List[float32]) -> float32 { match (%l) { Cons(%h, %t) => add(%h, @total(%t)), Nil => 0f } }\n"
         "def @twice(%v: Tensor[(8), float32]) { multiply(%v, 2f) }\n";

static void test_entries(void **state)
{
  (void)state;
  static const char *const names[] = {"begin", "push", "total", "twice"};
  World w;
  LatheRtError err;
  LatheRtObject *list;
  CompileOptions o = {.nentries = 4, .entries = names};
  const char *why = try_compile(&w, counter, &o);
  if (why) fail_msg("%s", why);
  LatheRtModel *m = compiled_model(w.c);
  assert_int_equal(lathe_rt_model_entries(m), 4);
  assert_int_equal(lathe_rt_model_entry(m, 3)->is_dynamic, 0); /* planned by itself */
  assert_int_equal(lathe_rt_model_entry(m, 1)->inputs[0].kind, LATHE_RT_PORT_OBJECT);
  assert_int_equal(lathe_rt_executor_new(m, &w.x, &err), 0);
  float x = 1;
  set(w.x, 0, tensor(F32, &x, 0, NULL));
  run(w.x);
  assert_int_equal(lathe_rt_get_output_object(w.x, 0, &list, &err), 0);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(lathe_rt_executor_select(w.x, 1, &err), 0);
    assert_int_equal(lathe_rt_set_input_object(w.x, 0, list, &err), 0);
    x *= 10;
    set(w.x, 1, tensor(F32, &x, 0, NULL));
    run(w.x);
    assert_int_equal(lathe_rt_get_output_object(w.x, 0, &list, &err), 0);
  }
  assert_int_equal(lathe_rt_executor_select(w.x, 2, &err), 0);
  assert_int_equal(lathe_rt_set_input_object(w.x, 0, list, &err), 0);
  run(w.x);
  assert_true(first(&w, 0) == 1111);
  float v[8] = {3};
  assert_int_equal(lathe_rt_executor_select(w.x, 3, &err), 0);
  set(w.x, 0, tensor(F32, v, 1, (int64_t[]){8}));
  run(w.x);
  assert_true(first(&w, 0) == 6);
  close_world(&w);
  static const struct {
    int n;
    const char *name[2], *says;
  } wrong[] = {{1, {"absent"}, "the module has no graph function @absent to be an entry"},
               {2, {"twice", "twice"}, "@twice is an entry twice"}};
  for (int i = 0; i < 2; i++) {
    CompileOptions bad = {.nentries = wrong[i].n, .entries = wrong[i].name};
    why = try_compile(&w, counter, &bad);
    assert_non_null(why);
    assert_string_equal(why, wrong[i].says);
    close_world(&w);
  }
}

/* ---- what is refused -------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
  (void)state;
  static const char *const texts[][2] = {
    {"def @main(%x: float32) { fn (%y: float32) { add(%x, %y) } }",
     "of type fn (float32) -> float32 cannot be an input or output"},
    {"def @main(%f: fn (float32) -> float32) { %f(1f) }",
     "'f' of type fn (float32) -> float32 cannot be an input or output"},
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    World w;
    const char *why = try_compile(&w, texts[i][0], NULL);
    if (!why || !strstr(why, texts[i][1])) fail_msg("%s: %s", texts[i][0], why ? why : "was compiled");
    close_world(&w);
  }
}

/* Every level, and passes left out. */
static void test_levels(void **state)
{
  (void)state;
  static const char text[] = LIST MAP FOLDL
      "def @main(%x: Tensor[(3), float32], %k: float32) {\n"
      "  let %g = @map; let %cons = Cons;\n"
      "  let %f = fn (%y: Tensor[(3), float32]) { let %z = add(%y, %k); multiply(%z, %z) };\n"
      "  let %l = %g(%f, %cons(%x, Cons(negative(%x), Nil())));\n"
      "  match ((%l, %k)) { (Cons(%a, Cons(%b, Nil)), %q) => add(%a, multiply(%b, %q)), (_, %q) => add(%x, %q) }\n"
      "}\n";
  float x[] = {1, 2, 3};
  float k = 2;
  for (int level = 0; level <= 3; level++) {
    World w = {.ctx = ctx_new()};
    PassContext *pc = pass_context_new(w.ctx);
    pc->opt_level = level;
    Job j = {.text = text, .w = &w, .options.passes = pc};
    if (protect(w.ctx, job_body, &j)) fail_msg("level %d: %s", level, error_message(w.ctx));
    LatheRtError err;
    if (lathe_rt_executor_new(compiled_model(w.c), &w.x, &err)) fail_msg("%s", err.text);
    check(&w, 2, (LatheRtTensor[]){tensor(F32, x, SHAPE(3)), tensor(F32, &k, 0, NULL)});
    pass_context_free(pc);
    close_world(&w);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_chosen_function),
    cmocka_unit_test(test_returned_function),
    cmocka_unit_test(test_tuples_through_values),
    cmocka_unit_test(test_known_functions_are_direct),
    cmocka_unit_test(test_captured_size),
    cmocka_unit_test(test_captured_size_of_pattern),
    cmocka_unit_test(test_list),
    cmocka_unit_test(test_tree),
    cmocka_unit_test(test_functions_in_data),
    cmocka_unit_test(test_sizes_in_data),
    cmocka_unit_test(test_named_size_in_data),
    cmocka_unit_test(test_size_that_lies),
    cmocka_unit_test(test_no_clause_fits),
    cmocka_unit_test(test_long_list),
    cmocka_unit_test(test_loop_through_value),
    cmocka_unit_test(test_entries),
    cmocka_unit_test(test_refused),
    cmocka_unit_test(test_levels),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
