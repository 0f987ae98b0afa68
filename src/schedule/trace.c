/* trace.c: what was done to a schedule, as text, and back.
 *
 * A line is one call of a primitive in Python:
 *   l3, l4 = sch.split(l1, [None, 8])
 * Required arguments stand by position, others by name and only where they differ
 * from their default.  b, l and v name blocks, loops and sampled integers; a
 * sampling primitive's line carries its decision, so a replay makes the same
 * choice.
 *
 *   line   = [name {"," name} "="] "sch." prim "(" [arg {"," arg}] ")"
 *   arg    = [name "="] value
 *   value  = or-expression | "[" values "]" | "(" values ")" | lambda | "None"
 *   lambda = "lambda" names ":" value
 * A name that the text did not define may be a random variable of the schedule. */
#include "schedule/engine.h"

#include <ctype.h>
#include <stdlib.h>

/* ---- sizes of the function, by name --------------------------------------------------- */

static void add_size(Sched *s, Map *sizes, const Var *v)
{
  if (v && !map_has(sizes, v)) map_put(scratch(s->ctx), sizes, v, (void *)v);
}

static Map function_sizes(Sched *s)
{
  Map sizes = {0};
  for (int i = 0; i < s->f->nparam; i++) {
    const Buffer *b = s->f->param[i].buffer;
    if (!b) add_size(s, &sizes, s->f->param[i].var);
    for (int d = 0; b && d < b->ndim; d++) {
      const Var **v;
      int n = expr_free_vars(scratch(s->ctx), b->shape[d], &v);
      for (int k = 0; k < n; k++) add_size(s, &sizes, v[k]);
    }
  }
  return sizes;
}

static const Var *size_named(const Map *sizes, const char *name)
{
  for (int i = 0; i < sizes->n; i++) {
    const Var *v = sizes->val[i];
    if (v && !strcmp(v->name, name)) return v;
  }
  return NULL;
}

static void import_free_vars(Sched *s, Importer *import, const Map *sizes, const Expr *e)
{
  const Var **v;
  int n = expr_free_vars(scratch(s->ctx), e, &v);
  for (int i = 0; i < n; i++) {
    if (map_has(&import->var, v[i])) continue;
    const Var *own = map_has(sizes, v[i]) ? v[i] : size_named(sizes, v[i]->name);
    if (!own)
      raise(s->ctx, ERR_ARGUMENT, NOWHERE,
            "an expression mentions '%s', which is no size or scalar parameter of function '%s'", v[i]->name,
            s->f->name);
    map_put(import->arena, &import->var, v[i], (void *)own);
  }
}

const Expr *trace_own_expr(Sched *s, const Expr *e)
{
  Map sizes = function_sizes(s);
  Importer import = {.dst = s->m, .arena = scratch(s->ctx)};
  import_free_vars(s, &import, &sizes, e);
  return expr_import(&import, e);
}

const IndexMap *trace_own_map(Sched *s, const IndexMap *map)
{
  Map sizes = function_sizes(s);
  Importer import = {.dst = s->m, .arena = scratch(s->ctx)};
  IndexMap *own = arena_new_of(s->m->arena, IndexMap);
  own->nin = map->nin;
  own->nout = map->nout;
  own->separators = map->separators;
  own->in = arena_array(s->m->arena, const Var *, map->nin);
  own->out = arena_array(s->m->arena, const Expr *, map->nout);
  for (int i = 0; i < map->nin; i++) {
    own->in[i] = var_new(s->m, map->in[i]->name, map->in[i]->dtype, VAR_PLAIN);
    map_put(import.arena, &import.var, map->in[i], (void *)own->in[i]);
  }
  for (int i = 0; i < map->nout; i++) {
    import_free_vars(s, &import, &sizes, map->out[i]);
    own->out[i] = expr_import(&import, map->out[i]);
  }
  return own;
}

/* ---- printing ----------------------------------------------------------------------------- */

/* What stands for a separator among the results of a map. */
#define AXIS_SEPARATOR "axis_separator"

static void print_map(Text *t, const IndexMap *map)
{
  Namer namer = {.arena = t->arena};
  text_add(t, "lambda ");
  for (int i = 0; i < map->nin; i++)
    text_printf(t, "%s%s", i ? ", " : "", expr_namer_name(&namer, map->in[i], map->in[i]->name));
  text_add(t, ": (");
  bool one = map->nout == 1 && !map->separators;
  for (int i = 0; i <= map->nout; i++) {
    bool separated = map->separators >> i & 1;
    if (i && (separated || i < map->nout)) text_add(t, ", ");
    if (separated) text_printf(t, "\"%s\"%s", AXIS_SEPARATOR, i < map->nout ? ", " : "");
    if (i < map->nout) expr_print(t, &namer, PRINT_SCRIPT, map->out[i]);
  }
  text_add(t, one ? ",)" : ")");
}

/* Lists and dictionaries of annotations as Python writes them. */
static void print_value(Text *t, const Expr *e)
{
  Namer namer = {.arena = t->arena};
  bool dict = e->kind == E_CALL && e->u.intrin == IN_DICT;
  if (!dict && (e->kind != E_CALL || e->u.intrin != IN_MAKE_SHAPE)) {
    expr_print(t, &namer, PRINT_SCRIPT, e);
    return;
  }
  text_char(t, dict ? '{' : '[');
  for (int i = 0; i < e->nargs; i++) {
    if (i) text_add(t, dict && i % 2 ? ": " : ", ");
    print_value(t, e->arg[i]);
  }
  text_char(t, dict ? '}' : ']');
}

static void print_arg(Text *t, const char *type, const SchedArg *a)
{
  switch (a->kind) {
  case SA_NONE: text_add(t, "None"); break;
  case SA_INT:
    if (!strcmp(type, "bool")) text_add(t, a->u.i ? "True" : "False");
    else text_printf(t, "%" PRId64, a->u.i);
    break;
  case SA_FLOAT: {
    const char *number = text_double(t->arena, a->u.f);
    text_printf(t, "%s%s", number, strpbrk(number, ".en") ? "" : ".0");
    break;
  }
  case SA_STR: text_quote(t, a->u.s); break;
  case SA_EXPR: print_value(t, a->u.e); break;
  case SA_BLOCK: text_printf(t, "b%" PRId64, a->u.i); break;
  case SA_LOOP: text_printf(t, "l%" PRId64, a->u.i); break;
  case SA_INTRV: text_printf(t, "v%" PRId64, a->u.i); break;
  case SA_LIST:
    text_add(t, strcmp(type, "buffer") ? "[" : "(");
    for (int i = 0; i < a->u.list.n; i++) {
      if (i) text_add(t, ", ");
      print_arg(t, "", &a->u.list.v[i]);
    }
    text_add(t, strcmp(type, "buffer") ? "]" : ")");
    break;
  case SA_MAP: print_map(t, a->u.p); break;
  case SA_INTRIN: text_quote(t, ((const TensorIntrin *)a->u.p)->name); break;
  case SA_FUNC: text_quote(t, ((const PrimFunc *)a->u.p)->name); break;
  }
}

static bool is_default(const PrimParam *p, const SchedArg *a)
{
  if (!p->deflt) return false;
  SchedArg d = prim_default(p->deflt);
  return a->kind == d.kind && (d.kind == SA_NONE || a->u.i == d.u.i);
}

static void print_args(Text *t, int n, const PrimParam *param, const SchedArg *args)
{
  bool first = true;
  bool skipped = false;
  for (int i = 0; i < n; i++) {
    if (is_default(&param[i], &args[i])) {
      skipped = true;
      continue;
    }
    if (param[i].star) {
      for (int k = 0; k < args[i].u.list.n; k++, first = false) {
        if (!first) text_add(t, ", ");
        print_arg(t, "", &args[i].u.list.v[k]);
      }
      continue;
    }
    if (!first) text_add(t, ", ");
    if (skipped || param[i].deflt) text_printf(t, "%s=", param[i].name);
    print_arg(t, param[i].type, &args[i]);
    first = false;
  }
}

const char *trace_line(Sched *s, const Prim *prim, const SchedArg *args, SchedArg result)
{
  Text t = text_new(s->m->arena);
  if (result.kind == SA_LIST) {
    for (int i = 0; i < result.u.list.n; i++) {
      if (i) text_add(&t, ", ");
      print_arg(&t, "", &result.u.list.v[i]);
    }
    if (result.u.list.n) text_add(&t, result.u.list.n == 1 ? ", = " : " = ");
  } else if (result.kind != SA_NONE) {
    print_arg(&t, "", &result);
    text_add(&t, " = ");
  }
  PrimParam *param;
  int n = prim_params(scratch(s->ctx), prim, &param);
  text_printf(&t, "sch.%s(", prim->info.name);
  print_args(&t, n, param, args);
  text_add(&t, ")");
  return text_str(&t);
}

const char *sched_trace_text(Arena *arena, const Sched *s)
{
  Text t = text_new(arena);
  for (int i = 0; i < s->trace.n; i++) text_printf(&t, "%s\n", s->trace.v[i]);
  return text_str(&t);
}

/* ---- reading -------------------------------------------------------------------------------- */

typedef struct Reader {
  Sched *s;
  Arena *arena;
  const char *p, *line;
  int number;
  StrMap names;  /* of random variables -> SchedArg* */
  StrMap locals; /* of a lambda -> Var* */
  Map sizes;
  int depth;
} Reader;

_Noreturn static void fail(Reader *r, const char *what)
{
  int rest = (int)strcspn(r->p, "\r\n");
  raise(r->s->ctx, ERR_PARSE, ((Loc){"trace", r->number, (int)(r->p - r->line) + 1}), "%s, at %s%.*s%s", what,
        rest ? "'" : "the end of the line", rest < 20 ? rest : 20, r->p, rest ? "'" : "");
}

static void skip_space(Reader *r)
{
  while (*r->p == ' ' || *r->p == '\t') r->p++;
}

static bool take(Reader *r, const char *token)
{
  skip_space(r);
  size_t n = strlen(token);
  if (strncmp(r->p, token, n)) return false;
  bool word = isalpha((unsigned char)token[n - 1]);
  if (word && (isalnum((unsigned char)r->p[n]) || r->p[n] == '_')) return false;
  r->p += n;
  return true;
}

static void want(Reader *r, const char *token)
{
  if (!take(r, token)) fail(r, arena_printf(r->arena, "'%s' is wanted", token));
}

static const char *take_name(Reader *r)
{
  skip_space(r);
  const char *start = r->p;
  if (isalpha((unsigned char)*r->p) || *r->p == '_')
    while (isalnum((unsigned char)*r->p) || *r->p == '_') r->p++;
  return start == r->p ? NULL : arena_strndup(r->arena, start, (size_t)(r->p - start));
}

static SchedArg read_value(Reader *r);

static const Expr *as_expr(Reader *r, const SchedArg *a)
{
  switch (a->kind) {
  case SA_INT: return expr_i32(r->s->m, a->u.i);
  case SA_INTRV:
  case SA_FLOAT:
  case SA_STR:
  case SA_EXPR: return sched_arg_expr(r->s, a, a->kind == SA_FLOAT ? DT_F32 : DT_I32);
  case SA_NONE:
  case SA_BLOCK:
  case SA_LOOP:
  case SA_LIST:
  case SA_MAP:
  case SA_FUNC:
  case SA_INTRIN: break;
  }
  fail(r, "an expression is wanted");
}

static SchedArg from_expr(const Expr *e) { return (SchedArg){.kind = SA_EXPR, .u.e = e}; }

static char read_escape(Reader *r)
{
  char c = *r->p++;
  if (c == 'x') {
    char hex[3] = {0};
    for (int i = 0; i < 2 && isxdigit((unsigned char)*r->p); i++) hex[i] = *r->p++;
    return (char)strtol(hex, NULL, 16);
  }
  return c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
}

static SchedArg read_string(Reader *r)
{
  char quote = *r->p++;
  Text t = text_new(r->arena);
  while (*r->p && *r->p != '\n' && *r->p != quote) {
    char c = *r->p++;
    text_char(&t, c == '\\' && *r->p ? read_escape(r) : c);
  }
  if (*r->p != quote) fail(r, "a string does not end");
  r->p++;
  return (SchedArg){.kind = SA_STR, .u.s = text_str(&t)};
}

static SchedArg read_number(Reader *r)
{
  char *end_int, *end_float;
  long long i = strtoll(r->p, &end_int, 10);
  double f = strtod(r->p, &end_float);
  bool real = end_float > end_int;
  r->p = real ? end_float : end_int;
  return real ? (SchedArg){.kind = SA_FLOAT, .u.f = f} : (SchedArg){.kind = SA_INT, .u.i = i};
}

/* Values up to the closing token; a single value in round brackets without a
 * comma is just that value. */
static SchedArg read_list(Reader *r, const char *close, bool tuple)
{
  Vec(SchedArg) v = {0};
  bool comma = false;
  while (!take(r, close)) {
    if (v.n && !comma) fail(r, "',' is wanted");
    SchedArg a = read_value(r);
    vec_push(r->arena, &v, a);
    comma = take(r, ",");
  }
  if (tuple && v.n == 1 && !comma) return v.v[0];
  return (SchedArg){.kind = SA_LIST, .u.list = {v.v, v.n}};
}

/* {"key": value, …}, the value of an annotation */
static SchedArg read_dict(Reader *r)
{
  Vec(const Expr *) v = {0};
  bool comma = true;
  while (!take(r, "}")) {
    if (!comma) fail(r, "',' is wanted");
    for (int i = 0; i < 2; i++) {
      SchedArg a = read_value(r);
      if (i == 0 && a.kind != SA_STR) fail(r, "a key is a string");
      vec_push(r->arena, &v, a.kind == SA_LIST ? sched_arg_expr(r->s, &a, DT_I32) : as_expr(r, &a));
      if (i == 0) want(r, ":");
    }
    comma = take(r, ",");
  }
  return from_expr(expr_call(r->s->m, DT_NONE, IN_DICT, v.n, v.v));
}

static SchedArg read_lambda(Reader *r)
{
  StrMap outer = r->locals;
  r->locals = (StrMap){0};
  IndexMap *map = arena_new_of(r->arena, IndexMap);
  Vec(const Var *) in = {0};
  do {
    const char *name = take_name(r);
    if (!name) fail(r, "a variable's name is wanted");
    const Var *v = var_new(r->s->m, name, DT_I32, VAR_PLAIN);
    strmap_put(r->arena, &r->locals, name, (void *)v);
    vec_push(r->arena, &in, v);
  } while (take(r, ","));
  want(r, ":");
  SchedArg body = read_value(r);
  SchedArg one = body;
  if (body.kind != SA_LIST) body = (SchedArg){.kind = SA_LIST, .u.list = {&one, 1}};
  map->nin = in.n;
  map->in = in.v;
  map->out = arena_array(r->arena, const Expr *, body.u.list.n);
  for (int i = 0; i < body.u.list.n; i++) {
    const SchedArg *a = &body.u.list.v[i];
    if (a->kind == SA_STR && !strcmp(a->u.s, AXIS_SEPARATOR)) map->separators |= (uint32_t)1 << (map->nout & 31);
    else map->out[map->nout++] = as_expr(r, a);
  }
  r->locals = outer;
  return (SchedArg){.kind = SA_MAP, .u.p = map};
}

/* T.name(…): a dtype, an operator that has no sign, or an intrinsic. */
static SchedArg read_function(Reader *r)
{
  Module *m = r->s->m;
  const char *name = take_name(r);
  if (!name) fail(r, "a function's name is wanted");
  want(r, "(");
  SchedArg args = read_list(r, ")", false);
  int n = args.u.list.n;
  const Expr **e = arena_array(r->arena, const Expr *, n);
  for (int i = 0; i < n; i++) e[i] = as_expr(r, &args.u.list.v[i]);
  DType dtype;
  if (dtype_parse(name, &dtype) && n == 1) {
    if (e[0]->kind == E_STR) return from_expr(expr_float(m, dtype, strtod(e[0]->u.str, NULL)));
    if (e[0]->kind == E_INT) return from_expr(expr_const(m, dtype, (double)e[0]->u.i));
    if (args.u.list.v[0].kind == SA_FLOAT) return from_expr(expr_float(m, dtype, args.u.list.v[0].u.f));
    return from_expr(expr_cast(m, dtype, e[0]));
  }
  static const struct {
    const char *name;
    ExprKind kind;
  } binary[] = {{"min", E_MIN},      {"max", E_MAX},           {"truncdiv", E_DIV},
                {"truncmod", E_MOD}, {"floordiv", E_FLOORDIV}, {"floormod", E_FLOORMOD}};
  for (size_t i = 0; i < sizeof binary / sizeof *binary; i++)
    if (!strcmp(name, binary[i].name) && n == 2) return from_expr(expr_binary(m, binary[i].kind, e[0], e[1]));
  if (!strcmp(name, "Select") && n == 3) return from_expr(expr_select(m, e[0], e[1], e[2]));
  if (!strcmp(name, "Cast") && n == 2 && e[0]->kind == E_STR && dtype_parse(e[0]->u.str, &dtype))
    return from_expr(expr_cast(m, dtype, e[1]));
  Intrin intrin;
  if (intrin_find(name, &intrin)) return from_expr(expr_call(m, DT_NONE, intrin, n, e));
  fail(r, arena_printf(r->arena, "a trace knows no function 'T.%s' of %d arguments", name, n));
}

/* b3, l4, v5: a random variable that the schedule has already. */
static bool own_variable(Reader *r, const char *name, SchedArg *out)
{
  static const struct {
    char letter;
    RvKind kind;
    int arg;
  } kinds[] = {{'b', RV_BLOCK, SA_BLOCK}, {'l', RV_LOOP, SA_LOOP}, {'v', RV_INT, SA_INTRV}};
  char *end;
  long id = strtol(name + 1, &end, 10);
  if (!isdigit((unsigned char)name[1]) || *end || id < 0 || id >= r->s->rv.n) return false;
  for (int i = 0; i < 3; i++)
    if (name[0] == kinds[i].letter && r->s->rv.v[id].kind == kinds[i].kind) {
      *out = (SchedArg){.kind = kinds[i].arg, .u.i = id};
      return true;
    }
  return false;
}

static SchedArg read_primary(Reader *r)
{
  skip_space(r);
  if (++r->depth > 200) fail(r, "nested too deeply");
  SchedArg out;
  const char *name;
  if (*r->p == '"' || *r->p == '\'') out = read_string(r);
  else if (isdigit((unsigned char)*r->p)) out = read_number(r);
  else if (take(r, "[")) out = read_list(r, "]", false);
  else if (take(r, "(")) out = read_list(r, ")", true);
  else if (take(r, "{")) out = read_dict(r);
  else if (take(r, "lambda")) out = read_lambda(r);
  else if (take(r, "T.")) out = read_function(r);
  else if (take(r, "None")) out = sched_arg_none;
  else if (take(r, "True")) out = (SchedArg){.kind = SA_INT, .u.i = 1};
  else if (take(r, "False")) out = (SchedArg){.kind = SA_INT, .u.i = 0};
  else if ((name = take_name(r))) {
    const Var *v = strmap_get(&r->locals, name);
    const SchedArg *rv = strmap_get(&r->names, name);
    SchedArg own;
    if (!v && !rv && own_variable(r, name, &own)) rv = &own;
    if (!v && !rv) v = size_named(&r->sizes, name);
    if (!v && !rv) fail(r, arena_printf(r->arena, "'%s' is not defined", name));
    out = v ? from_expr(var_expr(v)) : *rv;
  } else fail(r, "a value is wanted");
  r->depth--;
  return out;
}

static SchedArg read_unary(Reader *r)
{
  if (!take(r, "-")) return read_primary(r);
  SchedArg a = read_unary(r);
  if (a.kind == SA_INT) a.u.i = -a.u.i;
  else if (a.kind == SA_FLOAT) a.u.f = -a.u.f;
  else {
    const Expr *e = as_expr(r, &a);
    a = from_expr(expr_sub(r->s->m, expr_const(r->s->m, e->dtype, 0), e));
  }
  return a;
}

/* One level of binary operators, longest signs first. */
typedef struct Level {
  struct {
    const char *sign;
    ExprKind kind;
  } op[6];
} Level;
/* clang-format off */
static const Level levels[] = {
    {{{"or", E_OR}}},
    {{{"and", E_AND}}},
    {{{"<=", E_LE}, {">=", E_GE}, {"==", E_EQ}, {"!=", E_NE}, {"<", E_LT}, {">", E_GT}}},
    {{{"+", E_ADD}, {"-", E_SUB}}},
    {{{"//", E_FLOORDIV}, {"*", E_MUL}, {"%", E_FLOORMOD}, {"/", E_DIV}}},
};
/* clang-format on */
enum { NLEVELS = sizeof levels / sizeof *levels };

static SchedArg read_level(Reader *r, int level)
{
  if (level == NLEVELS) return read_unary(r);
  if (level == 2 && take(r, "not")) {
    SchedArg a = read_level(r, level);
    return from_expr(expr_not(r->s->m, as_expr(r, &a)));
  }
  SchedArg a = read_level(r, level + 1);
  for (;;) {
    int i = 0;
    while (i < 6 && levels[level].op[i].sign && !take(r, levels[level].op[i].sign)) i++;
    if (i == 6 || !levels[level].op[i].sign) return a;
    SchedArg b = read_level(r, level + 1);
    a = from_expr(expr_binary(r->s->m, levels[level].op[i].kind, as_expr(r, &a), as_expr(r, &b)));
  }
}

static SchedArg read_value(Reader *r) { return read_level(r, 0); }

/* name = value?  Leaves the reader where it was when it is no keyword. */
static const char *take_keyword(Reader *r)
{
  const char *start = r->p;
  const char *name = take_name(r);
  if (name && take(r, "=") && *r->p != '=') return name;
  r->p = start;
  return NULL;
}

static void read_call_args(Reader *r, const Prim *prim, int np, const PrimParam *param, SchedArg *args)
{
  Vec(SchedArg) star = {0};
  int at = 0;
  for (int i = 0; i < np; i++) args[i] = sched_arg_none;
  while (!take(r, ")")) {
    const char *keyword = take_keyword(r);
    SchedArg a = read_value(r);
    if (keyword) {
      int i = 0;
      while (i < np && strcmp(param[i].name, keyword)) i++;
      if (i == np) fail(r, arena_printf(r->arena, "%s has no argument '%s'", prim->info.name, keyword));
      args[i] = a;
    } else if (at < np && param[at].star) vec_push(r->arena, &star, a);
    else if (at < np) args[at++] = a;
    else fail(r, arena_printf(r->arena, "%s takes %d arguments", prim->info.name, np));
    if (!take(r, ",") && *r->p != ')') fail(r, "',' or ')' is wanted");
  }
  for (int i = 0; i < np; i++)
    if (param[i].star) args[i] = (SchedArg){.kind = SA_LIST, .u.list = {star.v, star.n}};
}

static int read_targets(Reader *r, const char ***out)
{
  Vec(const char *) v = {0};
  const char *start = r->p;
  for (const char *name; (name = take_name(r));) {
    vec_push(r->arena, &v, name);
    if (!take(r, ",")) break;
  }
  if (!take(r, "=")) {
    r->p = start;
    v.n = 0;
  }
  *out = v.v;
  return v.n;
}

static void define(Reader *r, const char *name, SchedArg value)
{
  strmap_put(r->arena, &r->names, name, arena_copy(r->arena, &value, sizeof value));
}

static void read_line(Reader *r)
{
  const char **target;
  int ntarget = read_targets(r, &target);
  want(r, "sch.");
  const char *name = take_name(r);
  if (!name) fail(r, "the name of a primitive is wanted");
  const Prim *prim = prim_find(name);
  if (!prim) sched_call(r->s, name, 0, NULL); /* says so, and what is near */
  want(r, "(");
  PrimParam *param;
  int np = prim_params(r->arena, prim, &param);
  SchedArg *args = arena_array(r->arena, SchedArg, np);
  read_call_args(r, prim, np, param, args);
  skip_space(r);
  if (*r->p && *r->p != '\n' && *r->p != '\r' && *r->p != '#') fail(r, "the line should end here");
  SchedArg result = sched_call(r->s, prim->info.name, np, args);
  if (result.kind != SA_LIST) {
    if (ntarget > 1)
      fail(r, arena_printf(r->arena, "%s gives one result, the line names %d", prim->info.name, ntarget));
    if (ntarget && result.kind != SA_NONE) define(r, target[0], result);
    return;
  }
  if (ntarget && ntarget != result.u.list.n)
    fail(r, arena_printf(r->arena, "%s gives %d results here, the line names %d", prim->info.name, result.u.list.n,
                         ntarget));
  for (int i = 0; i < ntarget; i++) define(r, target[i], result.u.list.v[i]);
}

static void run_line(Ctx *ctx, void *env)
{
  (void)ctx;
  read_line(env);
}

static void run_replay(Ctx *ctx, void *env)
{
  Reader *r = env;
  for (const char *p = r->line; *p; r->number++) {
    r->line = r->p = p;
    p += strcspn(p, "\n");
    p += *p == '\n';
    skip_space(r);
    if (!*r->p || strchr("#\r\n", *r->p) || str_starts(r->p, "def ") || str_starts(r->p, "from ") ||
        str_starts(r->p, "import "))
      continue;
    r->sizes = function_sizes(r->s);
    ErrKind kind = protect(ctx, run_line, r);
    if (kind == ERR_NONE) continue;
    if (kind == ERR_PARSE || error_passes_on(kind)) error_reraise(ctx);
    raise(ctx, kind, ((Loc){"trace", r->number, 1}), "trace, line %d: %s", r->number, error_message(ctx));
  }
}

void sched_replay(Sched *s, const char *text)
{
  Scope scope = scope_begin(s->ctx);
  Reader r = {.s = s, .arena = s->m->arena, .line = text, .number = 1};
  sched_all_or_nothing(s, run_replay, &r);
  scope_end(s->ctx, scope);
}

static void end_fitting(void *arg) { ((Sched *)arg)->fits = false; }

void sched_replay_fitted(Sched *s, const char *text)
{
  Scope scope = scope_begin(s->ctx);
  s->fits = true;
  defer(s->ctx, end_fitting, s);
  sched_replay(s, text);
  scope_end(s->ctx, scope);
}
