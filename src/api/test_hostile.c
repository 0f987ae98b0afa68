/* Every function of the table, called with absent, wrong and hostile values.
 *
 * A call is made from the function's signature: most arguments are of the type that it asks
 * for, out of a pool of objects of every kind, so that bodies are reached; the others are
 * none, of other kinds, huge, negative, not numbers, text with zeros or of a megabyte,
 * lists in lists, objects that were released.  What a call gives goes into the pool.  A call
 * may succeed or be refused with a sentence; it may not crash, hang, leak a handle or
 * be an internal error.
 *
 * Each function runs in a process of its own, so that a crash has a name.
 *   LATHE_HOSTILE=function[:call] runs one here, for a debugger, up to that call.
 *
 * What nothing can check is left true: an address points to memory as large as it is said to
 * be, a function's address to a function of its type. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api.h"

#if defined(__SANITIZE_ADDRESS__)
/* A size that no machine has is refused like any other allocation that fails. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
#endif

/* ---- values -------------------------------------------------------------------------------- */

static LatheValue num(int64_t i) { return (LatheValue){.tag = LATHE_INT, .u.i = i}; }
static LatheValue flag(bool b) { return (LatheValue){.tag = LATHE_BOOL, .u.i = b}; }
static LatheValue real(double f) { return (LatheValue){.tag = LATHE_FLOAT, .u.f = f}; }
static LatheValue bytes(const char *s, int64_t n) { return (LatheValue){.tag = LATHE_STR, .u.s = s, .n = n}; }
static LatheValue str(const char *s) { return bytes(s, (int64_t)strlen(s)); }
static LatheValue list(int64_t n, const LatheValue *v) { return (LatheValue){.tag = LATHE_LIST, .u.list = v, .n = n}; }
static LatheValue address(const void *p) { return num((int64_t)(intptr_t)p); }

enum { KINDS = LATHE_COMPILED + 1, MOST = 64, ROOM = 1 << 16 };
typedef struct Pool {
  LatheValue v[MOST];
  int n;
} Pool;

static LatheContext *context;
static Pool pool[KINDS];
static LatheValue released[KINDS];    /* handles that were given back */
static uint64_t state;                /* of the random numbers */
static LatheValue arguments[1 << 14]; /* lists of the call that is being made */
static int used;
static unsigned char memory[ROOM] __attribute__((aligned(64)));
static char *megabyte;
static LatheValue deep[20000]; /* a list in a list in a list … */
static int64_t polls;
static uint64_t seed = 1; /* LATHE_HOSTILE_SEED */
static bool of_memory;    /* the function is given addresses: ints and sizes stay what is true of them */

static uint64_t draw(uint64_t n)
{
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (state * UINT64_C(0x2545F4914F6CDD1D) >> 33) % n;
}

#define PICK(array) ((array)[draw(sizeof(array) / sizeof *(array))])

static LatheValue *take(int64_t n)
{
  LatheValue *v = &arguments[used];
  used += (int)n;
  assert_true(used < (int)(sizeof arguments / sizeof *arguments));
  return v;
}

static void release(LatheValue v)
{
  if (v.tag == LATHE_OBJECT) lathe_object_release(v.kind, v.u.p);
  if (v.tag == LATHE_LIST)
    for (int64_t i = 0; i < v.n; i++) release(v.u.list[i]);
}

/* Objects of a result go into the pool, in the place of older ones when it is full. */
static void keep(LatheValue v)
{
  if (v.tag == LATHE_LIST)
    for (int64_t i = 0; i < v.n; i++) keep(v.u.list[i]);
  if (v.tag != LATHE_OBJECT) return;
  Pool *p = &pool[v.kind];
  if (p->n < MOST) {
    p->v[p->n++] = v;
    return;
  }
  uint64_t at = MOST / 2 + draw(MOST / 2); /* what set_up made stays */
  lathe_object_release(p->v[at].kind, p->v[at].u.p);
  p->v[at] = v;
}

static LatheValue make_(const char *name, int n, const LatheValue *args)
{
  LatheValue out;
  int32_t code = lathe_call(context, name, n, args, &out);
  if (code) {
    fprintf(stderr, "%s: %s: %s\n", name, lathe_error_name(code), lathe_error_message(context));
    abort();
  }
  keep(out);
  return out;
}
#define MAKE(name, ...) \
  make_(name, (int)(sizeof((LatheValue[]){__VA_ARGS__}) / sizeof(LatheValue)), (LatheValue[]){__VA_ARGS__})

static LatheValue first(LatheKind kind) { return pool[kind].v[0]; }

/* ---- objects of every kind --------------------------------------------------------------------- */

static const char script[] = "@T.prim_func\n"
                             "def main(A: T.Buffer((16, 4), \"float32\"), B: T.Buffer((16,), \"float32\")):\n"
                             "    for i, k in T.grid(16, 4):\n"
                             "        with T.block(\"B\"):\n"
                             "            v, r = T.axis.remap(\"SR\", [i, k])\n"
                             "            with T.init():\n"
                             "                B[v] = T.float32(0)\n"
                             "            B[v] = B[v] + A[v, r]\n";
static const char graph[] = "type List[A] { Cons(A, List[A]), Nil }\n"
                            "def @twice(%x: Tensor[(2, 3), float32]) { add(%x, %x) }\n"
                            "def @main(%x: Tensor[(2, 3), float32]) { nn.relu(@twice(%x)) }\n";

static void make_expressions(LatheValue w)
{
  static const char *const ops[] = {"add", "div", "floormod", "max", "lt", "ne", "eq"};
  static const char *const dtypes[] = {"int32", "float32", "bool", "int64", "float32x4", "handle", "uint8"};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) MAKE("var", w, str("v"), str(dtypes[i]), flag(i == 3));
  LatheValue x = first(LATHE_VAR);
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) MAKE("binary", w, str(ops[i]), x, num(3));
  MAKE("const", w, real(1.5), str("float64"));
  MAKE("string", w, str("text"));
  MAKE("itervar", w, x, num(0), num(8), str("spatial"), (LatheValue){0});
  LatheValue k = MAKE("itervar", w, MAKE("var", w, str("k"), str("int32"), flag(0)), num(0), num(4), str("reduce"));
  MAKE("itervar", w, MAKE("var", w, str("t"), str("int32"), flag(0)), (LatheValue){0}, (LatheValue){0}, str("thread"),
       str("threadIdx.x"));
  LatheValue shape[] = {num(8), num(4)};
  LatheValue b = MAKE("buffer", w, str("b"), str("float32"), list(2, shape));
  MAKE("load", w, b, list(2, (LatheValue[]){x, num(0)}));
  LatheValue sum = MAKE("reducer_named", w, str("sum"), str("float32"));
  MAKE("reducer_named", w, str("argmax"), str("float32"), str("int32"));
  LatheValue a = MAKE("te_placeholder", w, str("A"), str("float32"), list(2, shape));
  LatheValue read = MAKE("te_read", w, a, list(2, (LatheValue[]){x, k}));
  LatheValue total = MAKE("reduce", w, sum, list(1, &read), list(1, &k), (LatheValue){0}, (LatheValue){0}, num(0));
  LatheValue axis = first(LATHE_ITERVAR);
  LatheValue op = MAKE("te_compute", w, str("B"), str(""), list(1, shape), list(1, &axis), list(1, &total));
  MAKE("teop_fields", op);
  LatheValue store = MAKE("stmt_store", w, b, list(2, (LatheValue[]){x, num(0)}), real(1));
  MAKE("stmt_for", w, x, num(0), num(8), str("serial"), (LatheValue){0}, store);
  LatheValue schedule = MAKE("te_schedule", w, list(1, &op));
  LatheValue stages = MAKE("te_schedule_stages", schedule);
  MAKE("stage_leaves", stages.u.list[1]);
}

static void make_programs(void)
{
  LatheValue f = MAKE("parse_primfunc", str(script), (LatheValue){0}, num(1), list(0, NULL));
  MAKE("parse_module",
       str("@I.ir_module\nclass Module:\n    @T.prim_func\n    def f(A: T.Buffer((4,), \"int32\")):\n"
           "        A[0] = 1\n"),
       (LatheValue){0}, num(1), list(0, NULL));
  MAKE("primfunc_fields", f);
  LatheValue s = MAKE("schedule", f, num(1));
  LatheValue name = str("B");
  LatheValue block = MAKE("schedule_call", s, str("get_block"), list(1, &name));
  MAKE("schedule_call", s, str("get_loops"), list(1, &block));
  LatheValue t[] = {num(1), num(2)};
  LatheValue sample[] = {list(2, t), list(2, (LatheValue[]){real(0.5), real(0.5)})};
  MAKE("schedule_call", s, str("sample_categorical"), list(2, sample));
  MAKE("tensor_intrin", str("intrin"), f, f);
  MAKE("target", str("c"));
  MAKE("target", str("cuda"));
  MAKE("build", list(1, &f), first(LATHE_TARGET));
}

static void make_graphs(void)
{
  LatheValue w = first(LATHE_WORLD);
  LatheValue dims[] = {num(2), num(3)};
  LatheValue t = MAKE("tensor_type", w, list(2, dims), str("float32"));
  MAKE("tuple_type", w, list(1, &t));
  MAKE("func_type", w, list(1, &t), t);
  MAKE("tensor_type", w, list(2, (LatheValue[]){{0}, pool[LATHE_VAR].v[3]}), str("int64"));
  LatheValue x = MAKE("node_var", w, str("x"), t);
  MAKE("node_var", w, str("untyped"));
  LatheValue one = MAKE("node_const", w, address(memory), str("float32"), list(2, dims));
  LatheValue y = MAKE("node_call", w, str("add"), list(2, (LatheValue[]){x, one}));
  LatheValue pair = MAKE("node_tuple", w, list(2, (LatheValue[]){x, y}));
  MAKE("node_get", w, pair, num(1));
  MAKE("node_func", w, list(1, &x), y);
  MAKE("node_infer", w, y);
  LatheValue m = MAKE("graph_parse", str(graph));
  MAKE("module_get_graph", w, m, str("main"));
  MAKE("module_data", w, m);
  LatheValue p = MAKE("pass_context", num(3), list(0, NULL), list(0, NULL), list(0, NULL));
  MAKE("compile", m, first(LATHE_TARGET), p);
  LatheValue header = pool[LATHE_TYPE].v[pool[LATHE_TYPE].n - 1];
  LatheValue nil = MAKE("node_ctor", w, header, num(1));
  LatheValue any = str("_");
  LatheValue clause = list(1, &any);
  MAKE("node_match", w, MAKE("node_apply", w, nil, list(0, NULL)), list(1, &clause), list(1, &x));
}

static int32_t poll(void *user)
{
  (void)user;
  return ++polls > 100000; /* work without end is stopped, as Ctrl-C would */
}

static void set_up(void)
{
  context = lathe_context_new();
  megabyte = malloc(1 << 20);
  memset(megabyte, 'A', 1 << 20);
  for (size_t i = 1; i < sizeof deep / sizeof *deep; i++) deep[i] = list(1, &deep[i - 1]);
  LatheValue w = make_("world", 0, NULL);
  for (int i = 0; i < 2; i++) { /* twice, so that of each kind one can be given back */
    make_expressions(w);
    make_programs();
    make_graphs();
  }
  for (int k = 0; k < KINDS; k++) {
    assert_true(pool[k].n > 0);
    released[k] = pool[k].v[0];
  }
  LatheContext *other = lathe_context_new(); /* its handles are none of ours, though they are alive */
  assert_int_equal(lathe_call(other, "world", 0, NULL, &released[LATHE_WORLD]), 0);
  lathe_set_poll(context, poll, NULL);
}

/* ---- functions of the user's own ------------------------------------------------------------------ */

static LatheValue any_value(int depth);
static LatheValue answers[64];

static LatheValue object_of(LatheKind kind) { return pool[kind].v[draw((uint64_t)pool[kind].n)]; }

/* What lists it holds must outlive the call. */
static LatheValue answer_value(int depth)
{
  uint64_t what = draw(8);
  if (what < 3) return object_of(LATHE_NODE);
  if (what == 3) return object_of(LATHE_TENSOR);
  if (what == 4) return flag(draw(2));
  if (what == 5 || depth > 3) return any_value(9);
  int n = (int)draw(3);
  LatheValue *v = &answers[draw(60)];
  LatheValue items[3];
  for (int i = 0; i < n; i++) items[i] = answer_value(depth + 4);
  memcpy(v, items, (size_t)n * sizeof *v);
  return list(n, v);
}

static int32_t user_answer(void *user, int32_t n, const LatheValue *args, LatheValue *answer)
{
  (void)user, (void)n, (void)args;
  *answer = answer_value(0);
  return draw(8) ? 0 : -1;
}
static int32_t user_watch(void *user, int32_t when, const char *pass, const LatheValue *module)
{
  (void)user, (void)when, (void)pass, (void)module;
  return (int32_t)draw(3) - 1;
}
static int32_t user_pass(void *user, const char *pass, const LatheValue *module)
{
  (void)user, (void)pass, (void)module;
  return draw(4) ? 0 : -1;
}
static int32_t user_progress(void *user, const char *stage, int32_t done, int32_t total)
{
  (void)user, (void)stage, (void)done, (void)total;
  return draw(50) == 0;
}

/* Tuning that is stopped at its first step. */
static int32_t user_tuning(void *user, const LatheValue *progress)
{
  (void)user;
  assert_true(progress->n == 7 || progress->n == 5);
  return 1;
}

static LatheValue function_for(const char *function)
{
  if (!strcmp(function, "pass_context_watch")) return num((int64_t)(intptr_t)user_watch);
  if (!strcmp(function, "pass_context_add")) return num((int64_t)(intptr_t)user_pass);
  if (!strcmp(function, "compile")) return num((int64_t)(intptr_t)user_progress);
  if (!strcmp(function, "tune_network") || !strcmp(function, "tune_program"))
    return num((int64_t)(intptr_t)user_tuning);
  return num((int64_t)(intptr_t)user_answer);
}

/* ---- making an argument ------------------------------------------------------------------------------ */

static LatheValue text(const char *param)
{
  static const char *const dtypes[] = {"float32", "int32", "bool",   "int64", "float16",   "uint8",
                                       "handle",  "int65", "string", "int4",  "float32x4", "int32x65535"};
  static const char *const kinds[] = {"spatial", "reduce", "opaque",   "thread",   "serial", "parallel", "vectorized",
                                      "add",     "exp",    "sequence", "optional", "sum",    "argmin",   "unroll"};
  static const char *const names[] = {"main", "A", "x", "B", "twice", "nn.relu", "FuseOps", "FoldConstant", "shared"};
  static const char *const formats[] = {"c", "ll", "asm", "obj", "cuda", ""};
  static const char *const hostile[] = {"",     "%s%n%s", "\xff\xfe\x80", "a\nb\"c\\d", "?",     "None", "[1, 2",
                                        script, graph,    "__proto__",    "float32x",   "1e999", "nan",  "\xe2\x82"};
  if (!strcmp(param, "workers")) return str(draw(2) ? "exit 3" : "echo no answer"); /* commands that a shell runs */
  if (draw(10) == 0) return bytes("a\0b", 3);
  if (draw(10) == 0) return bytes(megabyte, (int64_t)draw(1 << 20));
  if (draw(6) == 0) return str(PICK(hostile));
  if (strstr(param, "dtype")) return str(dtypes[draw(sizeof dtypes / sizeof *dtypes - of_memory)]);
  if (!strcmp(param, "format")) return str(PICK(formats));
  if (!strcmp(param, "kind") || !strcmp(param, "op")) return str(PICK(kinds));
  if (!strcmp(param, "path")) return str(draw(2) ? "out.c" : "no such folder/x.so");
  if (!strcmp(param, "intrinsic")) return str(intrin_info((Intrin)draw(IN_COUNT))->name);
  if (!strcmp(param, "text")) return str(draw(2) ? script : graph);
  return str(draw(4) ? PICK(names) : PICK(kinds));
}

static int64_t integer(void)
{
  static const int64_t small[] = {0, 1, 2, 3, 4, 7, 16};
  static const int64_t large[] = {-1,        -7,        255,       65536,     INT32_MAX,    INT32_MIN,
                                  1LL << 32, 1LL << 40, INT64_MAX, INT64_MIN, INT64_MAX - 1};
  static const int64_t odd[] = {-1, INT64_MIN};
  if (draw(4)) return PICK(small);
  return of_memory ? PICK(odd) : PICK(large);
}

static LatheValue any_value(int depth)
{
  static const double doubles[] = {0.0, -0.0, 1.5, -1e308, NAN, INFINITY, -INFINITY, 5e-324};
  switch (draw(depth < 3 ? 14 : 11)) {
  case 0: return (LatheValue){0};
  case 1: return flag(draw(2));
  case 2: return num(of_memory ? 0 : integer());
  case 3: return real(PICK(doubles));
  case 4: return text("");
  case 5: return released[draw(KINDS)];
  case 6: return (LatheValue){.tag = LATHE_OBJECT, .kind = (int32_t)draw(KINDS), .u.p = NULL};
  case 7: {
    LatheValue v = object_of((LatheKind)draw(KINDS));
    v.kind = draw(3) ? v.kind : (int32_t)draw(30) - 3; /* says to be something else */
    return v;
  }
  case 8: return (LatheValue){.tag = (int32_t)draw(20) - 5, .kind = (int32_t)draw(40) - 8};
  case 9: return deep[draw(sizeof deep / sizeof *deep)];
  case 10: return object_of((LatheKind)draw(KINDS));
  default: {
    int64_t n = (int64_t)draw(4);
    LatheValue *v = take(n);
    for (int64_t i = 0; i < n; i++) v[i] = any_value(depth + 1);
    return list(n, v);
  }
  }
}

typedef struct Maker {
  const char *function, *param;
} Maker;

static bool named(const char *p, const char *end, const char *word)
{
  return (size_t)(end - p) == strlen(word) && !memcmp(p, word, (size_t)(end - p));
}

static LatheValue of_type(const Maker *k, const char **p, int depth);

/* An array that is as large as it says: [address, dtype, shape, strides]. */
static LatheValue array_argument(void)
{
  LatheValue *v = take(4);
  LatheValue *dims = take(3);
  int64_t n = (int64_t)draw(4);
  for (int64_t i = 0; i < n; i++) dims[i] = num((int64_t)draw(17));
  v[0] = address(memory);
  v[1] = text("dtype");
  v[2] = list(n, dims);
  v[3] = (LatheValue){0};
  return list(4, v);
}

static LatheValue of_word(const Maker *k, const char *p, const char *end, int depth)
{
  static const char *const kinds[] = {
#define X(id, name) name,
    LATHE_OBJECT_KINDS(X)
#undef X
  };
  static int64_t dims[] = {2, 3};
  static LatheRtTensor tensor;
  if (named(p, end, "bool")) return flag(draw(2));
  if (named(p, end, "int")) return num(!strcmp(k->param, "bytes") ? (int64_t)draw(600) - 10 : integer());
  if (named(p, end, "float")) return real(draw(2) ? 0.5 : NAN);
  if (named(p, end, "str")) return text(k->param);
  if (named(p, end, "function")) return function_for(k->function);
  if (named(p, end, "address")) {
    tensor = (LatheRtTensor){.data = memory, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = dims};
    return strcmp(k->param, "inputs") ? address(memory) : address(&tensor);
  }
  if (named(p, end, "argument") && draw(2)) return array_argument();
  const char *type = api_type_named(p, (size_t)(end - p));
  if (type) return of_type(k, &type, depth + 1);
  if (named(p, end, "expression")) return object_of(draw(2) ? LATHE_EXPR : draw(2) ? LATHE_VAR : LATHE_ITERVAR);
  if (named(p, end, "expr") && draw(2)) return draw(2) ? num(integer()) : object_of(LATHE_VAR);
  for (int i = 0; i < KINDS; i++)
    if (named(p, end, kinds[i])) return object_of((LatheKind)i);
  return any_value(depth);
}

/* Past a type, without making one. */
static const char *past_type(const char *p)
{
  int open = 0;
  for (;; p++) {
    if (*p == '[') open++;
    if (*p == ']' && open-- == 0) return p;
    if ((*p == ',' || *p == ' ' || *p == '=' || *p == 0) && open == 0) return p;
  }
}

/* A value of one of the alternatives of the type at *p, which moves past it. */
static LatheValue of_type(const Maker *k, const char **p, int depth)
{
  const char *option[8];
  const char *end = past_type(*p);
  int n = 0;
  int open = 0;
  option[n++] = *p;
  for (const char *q = *p; q < end; q++) {
    open += (*q == '[') - (*q == ']');
    if (*q == '|' && open == 0) option[n++] = q + 1;
  }
  bool none = end[-1] == '?';
  *p = end;
  if ((none && draw(4) == 0) || depth > 12) return (LatheValue){0};
  if (draw(25) == 0) return any_value(depth);
  const char *q = option[draw((uint64_t)n)];
  if (str_starts(q, "list[")) {
    int64_t count = (int64_t)(draw(30) || of_memory ? draw(4) : draw(40));
    LatheValue *v = take(count);
    for (int64_t i = 0; i < count; i++) {
      const char *item = q + strlen("list[");
      v[i] = of_type(k, &item, depth + 1);
    }
    return list(count, v);
  }
  if (*q == '[') {
    LatheValue *v = take(6);
    int64_t count = 0;
    do {
      for (q++; *q == ' ';) q++;
      v[count++] = of_type(k, &q, depth + 1);
    } while (*q == ',');
    return list(count, v);
  }
  const char *stop = q;
  while ((*stop >= 'a' && *stop <= 'z') || *stop == '_') stop++;
  return of_word(k, q, stop, depth);
}

/* A primitive of schedules, or an operator, with arguments of the types that its row asks for. */
static void of_row(const char *function, LatheValue *args)
{
  bool primitive = !strcmp(function, "schedule_call");
  if (!primitive && strcmp(function, "node_call")) return;
  if (primitive) {
    const PrimInfo *info = prim_info((int)draw((uint64_t)prim_count()));
    LatheValue *v = take(16);
    int64_t n = 0;
    for (const char *p = info->args; *p;) {
      p = strchr(p, ':') + 1;
      while (*p == ' ') p++;
      v[n++] = of_type(&(Maker){function, ""}, &p, 0);
      while (*p && *p != ',') p++;
      if (*p == ',') p++;
    }
    args[1] = str(info->name);
    if (draw(4)) args[2] = list(n - (draw(3) == 0 && n), v);
    return;
  }
  const OpDef *op = opdef_at((int)draw((uint64_t)opdef_count()));
  int64_t n = 0;
  LatheValue *v = take(40);
  args[1] = str(op->name);
  for (int i = 0; op->attrs && i < op->attrs->n && i < 40; i++) {
    if (draw(2)) continue;
    LatheValue *pair = take(2);
    const char *type = "setting";
    pair[0] = str(op->attrs->field[i].name);
    pair[1] = of_type(&(Maker){function, ""}, &type, 0);
    v[n++] = list(2, pair);
  }
  args[3] = list(n, v);
  if (op->min_args >= 0 && draw(4)) {
    LatheValue *node = take(op->min_args + 1);
    for (int i = 0; i < op->min_args; i++) node[i] = object_of(LATHE_NODE);
    args[2] = list(op->min_args, node);
  }
}

static int make_arguments(const char *name, const char *signature, LatheValue *args)
{
  int n = 0;
  const char *p = signature;
  of_memory = strstr(signature, "address") || strstr(signature, "list[value]") || strstr(signature, "list[argument]") ||
              strstr(signature, "function");
  used = 0;
  while (*p == ' ') p++;
  while (*p && *p != '-') {
    char param[64] = {0};
    const char *colon = strchr(p, ':');
    memcpy(param, p, (size_t)(colon - p));
    p = colon + 2;
    bool intrinsic = !strcmp(name, "call") && !strcmp(param, "name");
    Maker k = {name, intrinsic ? "intrinsic" : param};
    args[n] = of_type(&k, &p, 0);
    if (n == 0 && str_starts(signature, "world: ") && draw(30)) args[n] = first(LATHE_WORLD);
    n++;
    while (*p == ',' || *p == ' ') p++;
  }
  of_row(name, args);
  if (draw(40) == 0) n -= (int)draw(3); /* too few; below none at all */
  if (draw(40) == 0) {                  /* too many */
    for (int i = n < 0 ? 0 : n; i < 20; i++) args[i] = any_value(0);
    n = 20;
  }
  return n;
}

/* ---- the calls ------------------------------------------------------------------------------------------ */

/* These compile or write files. */
static int calls_of(const char *name)
{
  static const char *const heavy[] = {
    "build",         "compile",    "built_export", "compiled_export", "built_source",       "pass_pipeline",
    "built_runtime", "lower",      "pass_run",     "onnx_import",     "tflite_import",      "compiled_source",
    "tune_network",  "tune_tasks", "tune_program", "tune_measure",    "tune_measure_plans", "tune_answer"};
  for (size_t i = 0; i < sizeof heavy / sizeof *heavy; i++)
    if (!strcmp(heavy[i], name)) return 40;
  return 400;
}

/* Seen by the process that waits: which call it is now, and how many were done. */
typedef struct Progress {
  int call, succeeded;
} Progress;
static volatile Progress *progress;

static int run_function(const char *name, const char *signature, int last)
{
  int wrong = 0;
  state = hash_bytes(name, strlen(name), seed) | 1;
  for (int k = 0; k < last; k++) {
    LatheValue args[24] = {0};
    LatheValue out;
    int n = make_arguments(name, signature, args);
    progress->call = k;
    polls = 0;
    int32_t code = lathe_call(context, name, n, draw(200) ? args : NULL, &out);
    const char *said = lathe_error_message(context);
    if (code == ERR_INTERNAL || (code && !*said)) {
      fprintf(stderr, "%s, call %d: %s: %s\n", name, k, lathe_error_name(code), said);
      wrong = 1;
    }
    progress->succeeded += code == 0;
    keep(out);
  }
  return wrong;
}

static int clean_up(const char *name)
{
  for (int k = 0; k < KINDS; k++)
    for (int i = 0; i < pool[k].n; i++) release(pool[k].v[i]);
  if (lathe_object_count(context) == 0) return 0;
  fprintf(stderr, "%s: %d handles are left\n", name, (int)lathe_object_count(context));
  return 1;
}

static _Noreturn void child(const char *name, const char *signature)
{
  char folder[] = "/tmp/lathe-hostile-XXXXXX";
  if (!mkdtemp(folder) || chdir(folder)) _exit(3);
  alarm(300);
#if !defined(__SANITIZE_ADDRESS__)
  for (int s = 1; s < 32; s++) signal(s, SIG_DFL); /* what cmocka catches, the waiting process is to see */
#endif
  /* A released handle of each kind that others hold a second time is still alive: of the
   * last one made of each kind, the only handle is given back. */
  for (int k = 0; k < KINDS; k++)
    if (pool[k].n > 2) {
      released[k] = pool[k].v[--pool[k].n];
      lathe_object_release(released[k].kind, released[k].u.p);
    }
  int wrong = run_function(name, signature, calls_of(name));
  wrong |= clean_up(name);
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  if (system(command)) wrong |= 1;
  _exit(wrong);
}

static bool run_in_process(const char *name, const char *signature)
{
  fflush(NULL);
  *progress = (Progress){-1, 0};
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) child(name, signature);
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (WIFSIGNALED(status))
    fprintf(stderr, "%s: call %d died of signal %d (%s)\n", name, progress->call, WTERMSIG(status),
            strsignal(WTERMSIG(status)));
  else if (WEXITSTATUS(status))
    fprintf(stderr, "%s: exit status %d, at call %d\n", name, WEXITSTATUS(status), progress->call);
  return status == 0;
}

static void test_every_function_with_hostile_values(void **unused)
{
  (void)unused;
  const char *name, *signature, *doc;
  char only[128] = {0};
  int last = -1;
  const char *asked = getenv("LATHE_HOSTILE");
  const char *other = getenv("LATHE_HOSTILE_SEED");
  if (other) seed = strtoull(other, NULL, 10);
  if (asked) sscanf(asked, "%127[^:]:%d", only, &last);
  progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(progress != MAP_FAILED);
  set_up();
  int failed = 0;
  int reached = 0;
  int n = 0;
  for (int i = 0; lathe_functions(i, &name, &signature, &doc); i++) {
    if (*only && strcmp(only, name)) continue;
    if (*only && last >= 0) run_function(name, signature, last + 1);
    else failed += !run_in_process(name, signature);
    reached += progress->succeeded > 0;
    n++;
    if (getenv("LATHE_HOSTILE_COUNT")) fprintf(stderr, "%s: %d succeeded\n", name, progress->succeeded);
  }
  clean_up("all");
  assert_int_equal(failed, 0);
  if (!*only) assert_true(reached > n * 8 / 10); /* most bodies are run to their end, not only refused at the door */
}

static void test_values_that_are_none(void **unused)
{
  (void)unused;
  LatheContext *c = lathe_context_new();
  LatheValue out;
  LatheValue w;
  assert_int_equal(lathe_call(NULL, "world", 0, NULL, &out), ERR_ARGUMENT);
  assert_string_equal(lathe_error_message(NULL), "there is no context");
  assert_int_equal(lathe_call(c, NULL, 0, NULL, &out), ERR_ARGUMENT);
  assert_int_equal(lathe_call(c, "expr_text", 1, NULL, &out), ERR_ARGUMENT);
  assert_int_equal(lathe_call(c, "expr_text", -1, NULL, &out), ERR_ARGUMENT);
  assert_int_equal(lathe_call(c, "world", 0, NULL, &w), 0);
  LatheValue args[] = {w, num(1)};
  LatheValue one;
  assert_int_equal(lathe_call(c, "const", 2, args, &one), 0);
  lathe_object_release(one.kind, one.u.p);
  assert_int_equal(lathe_call(c, "expr_text", 1, &one, &out), ERR_ARGUMENT);
  assert_string_equal(lathe_error_message(c),
                      "expr_text: argument 'e' is an object that is not there (released, or of another context)");
  lathe_object_release(one.kind, one.u.p); /* a second time: nothing happens */
  LatheValue wrong = w;
  wrong.kind = LATHE_EXPR;
  assert_int_equal(lathe_call(c, "expr_text", 1, &wrong, &out), ERR_ARGUMENT);
  assert_string_equal(lathe_error_message(c), "expr_text: argument 'e' is an object of another kind than it says");
  lathe_object_release(w.kind, w.u.p);
  assert_int_equal(lathe_object_count(c), 0);
  lathe_context_free(c);
}

/* An attribute of none is one that is not there. */
static void test_attributes_of_none(void **unused)
{
  (void)unused;
  LatheContext *c = lathe_context_new();
  LatheValue w, x, f, text;
  assert_int_equal(lathe_call(c, "world", 0, NULL, &w), 0);
  assert_int_equal(lathe_call(c, "node_var", 2, (LatheValue[]){w, str("x")}, &x), 0);
  LatheValue pair[] = {str("A"), {0}};
  LatheValue attr = list(2, pair);
  LatheValue args[] = {w, list(1, &x), x, {0}, list(1, &attr)};
  assert_int_equal(lathe_call(c, "node_func", 5, args, &f), 0);
  assert_int_equal(lathe_call(c, "node_text", 1, &f, &text), 0);
  assert_null(strstr(text.u.s, "A="));
  release(f);
  release(x);
  release(w);
  lathe_context_free(c);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_values_that_are_none),
    cmocka_unit_test(test_attributes_of_none),
    cmocka_unit_test(test_every_function_with_hostile_values),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
