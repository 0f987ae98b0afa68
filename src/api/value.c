/* value.c: from LatheValues to things.
 *
 * In: the caller's values, checked once against the function's signature.  Out:
 * pointers into modules, literals, scratch arrays.
 *
 * Grammar of a signature:
 *   signature = [param {"," param}] "->" type
 *   param     = name ":" type
 *   type      = one {"|" one} ["?"]          "?": none is allowed too
 *   one       = "list[" type "]"             any number of items of one type
 *             | "[" type {"," type} "]"      as many items as there are types
 *             | word                         any bool int float str address function,
 *                                            a kind of object, or a name of type_names
 * "expr" takes literals, variables and axes too, "expression" the last two; "var" an axis; "float" an int;
 * "int" a bool.  "address" and "function" are ints that are not 0, of memory and of code:
 * nothing can check what lies there.  Trailing parameters that may be none may be left out. */
#include "api/api.h"

static const char *const kind_names[] = {
#define X(id, name) name,
  LATHE_OBJECT_KINDS(X)
#undef X
};
#define NKINDS ((int)(sizeof kind_names / sizeof *kind_names))

/* ---- the signature -------------------------------------------------------------- */

/* What several functions take, and what contains itself. */
static const struct {
  const char *name, *type;
} type_names[] = {
  {"annotation", "[str, expr|str?]"},
  {"setting", "bool|int|float|str|expr|list[bool|int|float|str|expr]?"}, /* of an operator */
  {"option", "bool|int|float|str|list[option]?"},                        /* of a pass, of the configuration */
  {"argument", "[bool|int|float, str]|[address, str, list[int], list[int]?]"},
  {"parameter", "tensor|var|[tensor, buffer]"},
  {"value", "[str, address?, str, list[int]]|[str, list[value]]"},
  {"script", "bool|int|float|str|expr|list[script]?"},
  {"pattern", "[str]|[str, node|list[pattern]]|[str, type, int, list[pattern]]"},
  {"size", "int|[int, int]?"},      /* of an input: none stays open, two are a range that it is likely to be in */
  {"row", "[str, list[int], any]"}, /* of a dataflow pattern */
};

const char *api_type_named(const char *name, size_t n)
{
  for (size_t i = 0; i < sizeof type_names / sizeof *type_names; i++)
    if (strlen(type_names[i].name) == n && !memcmp(type_names[i].name, name, n)) return type_names[i].type;
  return NULL;
}

static const char *skip_blank(const char *p)
{
  while (*p == ' ') p++;
  return p;
}

static const char *skip_word(const char *p)
{
  while ((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '_') p++;
  return p;
}

static bool word_is(const char *p, const char *end, const char *word)
{
  return (size_t)(end - p) == strlen(word) && memcmp(p, word, (size_t)(end - p)) == 0;
}

static bool object_fits(const char *p, const char *end, const LatheValue *v)
{
  int kind = v->kind;
  if (kind < 0 || kind >= NKINDS || !v->u.p) return false;
  if (word_is(p, end, "expr") || word_is(p, end, "expression"))
    return kind == LATHE_EXPR || kind == LATHE_VAR || kind == LATHE_ITERVAR;
  if (word_is(p, end, "var")) return kind == LATHE_VAR || kind == LATHE_ITERVAR;
  return word_is(p, end, kind_names[kind]);
}

static bool type_fits(const char **p, const LatheValue *v);

static bool word_fits(const char *p, const char *end, const LatheValue *v)
{
  if (word_is(p, end, "any")) return true;
  const char *named = api_type_named(p, (size_t)(end - p));
  if (named) return type_fits(&named, v);
  switch ((LatheTag)v->tag) {
  case LATHE_NONE: return word_is(p, end, "none");
  case LATHE_BOOL: return word_is(p, end, "bool") || word_is(p, end, "int") || word_is(p, end, "expr");
  case LATHE_INT:
    if (word_is(p, end, "address") || word_is(p, end, "function")) return v->u.i != 0;
    return word_is(p, end, "int") || word_is(p, end, "float") || word_is(p, end, "expr");
  case LATHE_FLOAT: return word_is(p, end, "float") || word_is(p, end, "expr");
  case LATHE_STR: return word_is(p, end, "str");
  case LATHE_OBJECT: return object_fits(p, end, v);
  case LATHE_LIST: return false;
  }
  return false;
}

/* The comma, blank or bracket behind a type. */
static const char *skip_type(const char *p)
{
  for (int open = 0; *p; p++) {
    if (open == 0 && (*p == ',' || *p == ' ' || *p == ']')) break;
    open += (*p == '[') - (*p == ']');
  }
  return p;
}

/* "list[" type "]" at *p, which moves past it. */
static bool list_fits(const char **p, const LatheValue *v)
{
  const char *item = *p + strlen("list[");
  bool all = v->tag == LATHE_LIST;
  *p = skip_type(item) + 1; /* the bracket */
  for (int64_t i = 0; all && i < v->n; i++) {
    const char *again = item;
    all = type_fits(&again, &v->u.list[i]);
  }
  return all;
}

/* "[" type {"," type} "]" at *p, which moves past it. */
static bool row_fits(const char **p, const LatheValue *v)
{
  bool all = v->tag == LATHE_LIST;
  int64_t i = 0;
  do {
    *p = skip_blank(*p + 1); /* the bracket, a comma */
    all = all && i < v->n;
    if (all) all = type_fits(p, &v->u.list[i++]);
    else *p = skip_type(*p);
  } while (**p == ',');
  ++*p; /* the bracket */
  return all && v->n == i;
}

/* Does v fit the type at *p?  Moves *p past the type either way. */
static bool type_fits(const char **p, const LatheValue *v)
{
  bool fits = false;
  for (;;) {
    const char *start = *p;
    if (str_starts(start, "list[")) fits |= list_fits(p, v);
    else if (*start == '[') fits |= row_fits(p, v);
    else {
      *p = skip_word(start);
      fits |= word_fits(start, *p, v);
    }
    if (**p != '|') break;
    ++*p;
  }
  if (**p == '?') {
    ++*p;
    fits |= v->tag == LATHE_NONE;
  }
  return fits;
}

/* What is wrong with a value itself, whatever is wanted: NULL, or words for it. */
static const char *value_fault(const LatheContext *c, const LatheValue *v, int depth)
{
  enum { DEEPEST = 500 };
  switch ((LatheTag)v->tag) {
  case LATHE_NONE:
  case LATHE_BOOL:
  case LATHE_INT:
  case LATHE_FLOAT: return NULL;
  case LATHE_STR: return v->n < 0 || (v->n && !v->u.s) ? "a str without bytes" : NULL;
  case LATHE_OBJECT:
    if (!api_handle_alive(c, v->u.p)) return "an object that is not there (released, or of another context)";
    return ((const Handle *)v->u.p)->kind != v->kind ? "an object of another kind than it says" : NULL;
  case LATHE_LIST:
    if (v->n < 0 || (v->n && !v->u.list)) return "a list without items";
    if (v->n > INT32_MAX) return "a list that is too long";
    if (depth == DEEPEST) return "lists inside lists too deep";
    for (int64_t i = 0; i < v->n; i++) {
      const char *fault = value_fault(c, &v->u.list[i], depth + 1);
      if (fault) return fault;
    }
    return NULL;
  }
  return "a value of unknown tag";
}

static const char *describe(Ctx *ctx, const LatheValue *v)
{
  Arena *a = scratch(ctx);
  switch ((LatheTag)v->tag) {
  case LATHE_NONE: return "none";
  case LATHE_BOOL: return v->u.i ? "the bool True" : "the bool False";
  case LATHE_INT: return arena_printf(a, "the int %" PRId64, v->u.i);
  case LATHE_FLOAT: return arena_printf(a, "the float %s", text_double(a, v->u.f));
  case LATHE_STR: return arena_printf(a, "the str \"%.*s\"", (int)(v->n < 60 ? v->n : 60), v->u.s);
  case LATHE_OBJECT:
    if (v->kind >= 0 && v->kind < NKINDS)
      return arena_printf(a, "%s %s", strchr("aeiou", kind_names[v->kind][0]) ? "an" : "a", kind_names[v->kind]);
    return "an object of unknown kind";
  case LATHE_LIST:
    return arena_printf(a, "a list of %" PRId64 "%s%s", v->n, v->n ? ", the first of them " : "",
                        v->n ? describe(ctx, v->u.list) : "");
  }
  return "a value of unknown tag";
}

static int count_params(const char *p)
{
  int n = 0;
  for (p = skip_blank(p); *p && *p != '-'; p++)
    if (*p == ':') n++;
  return n;
}

void api_check_value(Call *c, const LatheValue *v, const char *type, const char *what)
{
  const char *fault = value_fault(c->context, v, 0);
  const char *p = type;
  if (fault) raise(c->ctx, ERR_TYPE, NOWHERE, "%s is %s", what, fault);
  if (!type_fits(&p, v)) raise(c->ctx, ERR_TYPE, NOWHERE, "%s is %s, wanted %s", what, describe(c->ctx, v), type);
}

void api_check_args(Call *c)
{
  const char *name = c->function->name;
  int params = count_params(c->function->signature);
  if (params > API_MAX_ARGS) BUG(c->ctx, "%s has %d parameters", name, params);
  if (c->given > params || c->given < 0 || (c->given && !c->args))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s takes %d arguments, %d were given", name, params, c->args ? c->given : 0);
  const char *p = skip_blank(c->function->signature);
  for (int i = 0; i < params; i++) {
    if (i < c->given) c->arg[i] = c->args[i];
    const char *param = p;
    const char *end = skip_word(p);
    const char *fault = value_fault(c->context, &c->arg[i], 0);
    if (fault)
      raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s: argument '%.*s' is %s", name, (int)(end - param), param, fault);
    p = skip_blank(end + 1); /* the colon */
    const char *type = p;
    if (!type_fits(&p, &c->arg[i])) {
      if (i >= c->given)
        raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s: argument '%.*s' (%.*s) is missing", name, (int)(end - param), param,
              (int)(p - type), type);
      raise(c->ctx, ERR_TYPE, NOWHERE, "%s: argument '%.*s' is %s, wanted %.*s", name, (int)(end - param), param,
            describe(c->ctx, &c->arg[i]), (int)(p - type), type);
    }
    if (*p == ',') p = skip_blank(p + 1);
  }
}

/* ---- reading arguments ------------------------------------------------------------ */

bool api_arg_given(Call *c, int i) { return c->arg[i].tag != LATHE_NONE; }
bool api_arg_bool(Call *c, int i) { return c->arg[i].tag != LATHE_NONE && c->arg[i].u.i != 0; }
int64_t api_arg_int(Call *c, int i) { return c->arg[i].tag == LATHE_NONE ? 0 : c->arg[i].u.i; }

int api_arg_int32(Call *c, int i, int64_t lo, int64_t hi)
{
  int64_t v = api_arg_int(c, i);
  if (v < lo || v > hi)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s: %" PRId64 " is not between %" PRId64 " and %" PRId64, c->function->name,
          v, lo, hi);
  return (int)v;
}

double api_arg_float(Call *c, int i)
{
  const LatheValue *v = &c->arg[i];
  return v->tag == LATHE_FLOAT ? v->u.f : v->tag == LATHE_NONE ? 0.0 : (double)v->u.i;
}

const char *api_value_text(Call *c, const LatheValue *v)
{
  if (v->tag != LATHE_STR) return NULL;
  if (v->n && memchr(v->u.s, 0, (size_t)v->n))
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s: a str holds a zero byte", c->function->name);
  return arena_strndup(scratch(c->ctx), v->u.s, (size_t)v->n);
}

const char *api_arg_str(Call *c, int i) { return api_value_text(c, &c->arg[i]); }

DType api_value_dtype(Call *c, const LatheValue *v)
{
  const char *s = api_value_text(c, v);
  DType t;
  if (!s || !dtype_parse(s, &t))
    raise(c->ctx, ERR_TYPE, NOWHERE,
          "unknown dtype '%s'; known are bool, int8 … int64, uint8 … uint64, float16, float32, "
          "float64, bfloat16, float8_e4m3fn, float8_e5m2, float8_e8m0fnu, float4_e2m1fn, int2, uint2, int4, uint4, "
          "handle, and vectors "
          "such as float32x4",
          s ? s : "none");
  return t;
}

DType api_arg_dtype(Call *c, int i) { return api_value_dtype(c, &c->arg[i]); }

bool api_value_is(const LatheValue *v, LatheKind kind) { return v->tag == LATHE_OBJECT && v->kind == (int32_t)kind; }
const void *api_value_ptr(const LatheValue *v) { return v->tag == LATHE_OBJECT ? ((const Handle *)v->u.p)->p : NULL; }
const void *api_arg_ptr(Call *c, int i) { return api_value_ptr(&c->arg[i]); }
Handle *api_arg_handle(Call *c, int i) { return c->arg[i].tag == LATHE_OBJECT ? c->arg[i].u.p : NULL; }
Module *api_arg_world(Call *c) { return ((const World *)api_arg_ptr(c, 0))->m; }

int api_arg_list(Call *c, int i, const LatheValue **out)
{
  *out = c->arg[i].u.list;
  return c->arg[i].tag == LATHE_LIST ? (int)c->arg[i].n : 0;
}

void api_arg_annots(Call *c, Module *m, int i, Annots *annots)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  for (int k = 0; k < n; k++) {
    const Expr *value = api_value_expr(c, m, &v[k].u.list[1]);
    if (value) annots_set(m->arena, annots, api_value_text(c, &v[k].u.list[0]), value);
  }
}

static Importer *world_importer(World *w, Module *from)
{
  for (int i = 0; i < w->imports.n; i++)
    if (w->imports.v[i].from == from) return w->imports.v[i].importer;
  Importer *im = arena_new_of(w->m->arena, Importer);
  *im = (Importer){.dst = w->m, .arena = w->m->arena};
  vec_push(w->m->arena, &w->imports, (WorldImport){from, im, NULL});
  module_retain(from);
  return im;
}

Importer *api_importer(Call *c, Module *m, Module *from)
{
  Handle *first = api_arg_handle(c, 0);
  if (!first || first->kind != LATHE_WORLD || ((World *)first->p)->m != m) {
    if (c->importer.dst != m) c->importer = (Importer){.dst = m, .arena = scratch(c->ctx)};
    return &c->importer;
  }
  return world_importer((World *)first->p, from);
}

GraphImporter *api_world_graphs(Ctx *ctx, World *w, Module *from)
{
  Importer *im = world_importer(w, from);
  for (int i = 0; i < w->imports.n; i++) {
    WorldImport *one = &w->imports.v[i];
    if (one->importer != im) continue;
    if (!one->graph) {
      one->graph = graph_importer_new(w->m, from, im);
      graph_importer_replaces_data(one->graph);
    }
    return one->graph;
  }
  BUG(ctx, "a world without its importer");
}

GraphImporter *api_graph_importer(Call *c, Module *from)
{
  return api_world_graphs(c->ctx, (World *)api_arg_ptr(c, 0), from);
}

DType api_literal_dtype(const LatheValue *v)
{
  if (v->tag == LATHE_BOOL) return DT_BOOL;
  if (v->tag == LATHE_FLOAT) return DT_F32;
  return v->u.i == (int32_t)v->u.i ? DT_I32 : DT_I64;
}

const Expr *api_value_expr(Call *c, Module *m, const LatheValue *v)
{
  switch ((LatheTag)v->tag) {
  case LATHE_NONE: return NULL;
  case LATHE_BOOL: return expr_bool(m, v->u.i != 0);
  case LATHE_INT: return expr_int(m, api_literal_dtype(v), v->u.i);
  case LATHE_FLOAT: return expr_float(m, DT_F32, v->u.f);
  case LATHE_STR: return expr_str(m, api_value_text(c, v));
  case LATHE_OBJECT: break;
  case LATHE_LIST: raise(c->ctx, ERR_TYPE, NOWHERE, "%s: a list where one value is wanted", c->function->name);
  }
  const Handle *h = v->u.p;
  const Expr *e = h->kind == LATHE_VAR       ? var_expr(h->p)
                  : h->kind == LATHE_ITERVAR ? var_expr(((const IterVar *)h->p)->var)
                                             : h->p;
  return h->m == m ? e : expr_import(api_importer(c, m, h->m), e);
}

const Expr *api_arg_expr(Call *c, Module *m, int i) { return api_value_expr(c, m, &c->arg[i]); }

int api_arg_exprs(Call *c, Module *m, int i, const Expr ***out)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  *out = n ? arena_array(scratch(c->ctx), const Expr *, n) : NULL;
  for (int k = 0; k < n; k++) (*out)[k] = api_value_expr(c, m, &v[k]);
  return n;
}

const Var *api_value_var(Call *c, Module *m, const LatheValue *v)
{
  if (v->tag == LATHE_NONE) return NULL;
  const Handle *h = v->u.p;
  const Var *var = h->kind == LATHE_ITERVAR ? ((const IterVar *)h->p)->var : h->p;
  return h->m == m ? var : var_import(api_importer(c, m, h->m), var);
}

const Var *api_arg_var(Call *c, Module *m, int i) { return api_value_var(c, m, &c->arg[i]); }

int api_arg_vars(Call *c, Module *m, int i, const Var ***out)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  *out = n ? arena_array(scratch(c->ctx), const Var *, n) : NULL;
  for (int k = 0; k < n; k++) (*out)[k] = api_value_var(c, m, &v[k]);
  return n;
}

const Buffer *api_value_buffer(Call *c, Module *m, const LatheValue *v)
{
  if (v->tag == LATHE_NONE) return NULL;
  const Handle *h = v->u.p;
  return h->m == m ? h->p : buffer_import(api_importer(c, m, h->m), h->p);
}

static void check_module(Call *c, Module *m, const Handle *h)
{
  if (m && h->m != m)
    raise(c->ctx, ERR_ARGUMENT, NOWHERE, "%s: a %s that belongs to another world", c->function->name,
          kind_names[h->kind]);
}

int api_arg_ptrs(Call *c, Module *m, int i, const void ***out)
{
  const LatheValue *v;
  int n = api_arg_list(c, i, &v);
  *out = n ? arena_array(scratch(c->ctx), const void *, n) : NULL;
  for (int k = 0; k < n; k++) {
    check_module(c, m, v[k].u.p);
    (*out)[k] = api_value_ptr(&v[k]);
  }
  return n;
}

const IterVar *api_arg_itervar(Call *c, Module *m, int i)
{
  if (!api_arg_given(c, i)) return NULL;
  check_module(c, m, api_arg_handle(c, i));
  return api_arg_ptr(c, i);
}
