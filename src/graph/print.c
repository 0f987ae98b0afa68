/* print.c: graphs as Relay text.
 *
 * Comes in: a node or a module.  Goes out: text that graph_parse reads back as an equal
 * graph.  Every node that is not a name or a constant gets a line `%3 = …;`, so what is
 * shared is written once.  A line stands in the innermost block that encloses all its uses
 * (a branch's node in that branch, a node of both branches before the `if`): lines
 * are definitions, not evaluations, so this changes nothing.
 *
 * Blocks are function bodies, branches and clauses; a let opens a block that lasts to the
 * end of the one it stands in and needs no braces. */
#include "graph/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A block and the nodes that are defined in it, in order. */
typedef struct TextBlock {
  struct TextBlock *parent;
  int depth;
  NodeList nodes;
} TextBlock;

typedef struct Printer {
  Ctx *ctx;
  Text *out;
  Arena *arena;
  Namer sizes; /* names of symbolic dimensions */
  unsigned flags;
  Map name; /* Node* -> "%x" or "%3" */
  StrMap taken;
  int temps;
  Map region;         /* Node* -> TextBlock* where it is defined */
  Map uses;           /* Node* -> how often it is an argument */
  Map inner;          /* Node* -> array of TextBlock*, one per argument (NULL: none) */
  NodeList constants; /* in the order of meta[relay.Constant][i] */
  Map constant;       /* Node* -> index + 1 */
  Map type_params;    /* Var* of the function being printed */
  int nesting;
} Printer;

static void print_lines(Printer *, const TextBlock *, const Node *root, int indent);

/* ---- which block a node stands in ------------------------------------------------------ */

static TextBlock *new_block(Printer *p, TextBlock *parent)
{
  TextBlock *r = arena_new_of(p->arena, TextBlock);
  r->parent = parent;
  r->depth = parent ? parent->depth + 1 : 0;
  return r;
}

static TextBlock *common(TextBlock *a, TextBlock *b)
{
  while (a != b) {
    if (a->depth >= b->depth) a = a->parent;
    else b = b->parent;
  }
  return a;
}

/* Does argument i of n stand in a block of its own? */
static bool opens_block(const Node *n, int i)
{
  switch (n->kind) {
  case N_FUNC: return i == n->nargs - 1;
  case N_LET: return i == 2;
  case N_IF: return i > 0;
  case N_MATCH: return i > 0;
  case N_VAR:
  case N_CONST:
  case N_CALL:
  case N_APPLY:
  case N_TUPLE:
  case N_GET:
  case N_GLOBAL:
  case N_CTOR:
  case N_CALL_TIR:
  case N_OP: return false;
  }
  return false;
}

static bool is_atom(const Node *n)
{
  return n->kind == N_VAR || n->kind == N_CONST || n->kind == N_GLOBAL || n->kind == N_CTOR || n->kind == N_OP;
}

static void place(Printer *p, const Node *n, TextBlock *where)
{
  TextBlock *old = map_get(&p->region, n);
  map_put(p->arena, &p->region, n, old ? common(old, where) : where);
}

/* Is n written where it is used, not on a line of its own?  A let's value that nobody
 * else uses is. */
static bool stands_in_let(Printer *p, const Node *let)
{
  const Node *value = let->arg[1];
  return !is_atom(value) && value->kind != N_LET && (intptr_t)map_get(&p->uses, value) == 1 &&
         map_get(&p->region, value) == map_get(&p->region, let);
}

/* Users come before what they use, so a node's block is final when its turn comes. */
static TextBlock *place_all(Printer *p, const Node *root)
{
  const Node **order;
  int n = graph_post_order(p->arena, root, &order);
  TextBlock *top = new_block(p, NULL);
  place(p, root, top);
  for (int i = n - 1; i >= 0; i--) {
    TextBlock *here = map_get(&p->region, order[i]);
    TextBlock **inner = NULL;
    for (int k = 0; k < order[i]->nargs; k++) {
      bool opens = opens_block(order[i], k);
      if (opens && !inner) {
        inner = arena_array(p->arena, TextBlock *, order[i]->nargs);
        map_put(p->arena, &p->inner, order[i], inner);
      }
      intptr_t uses = (intptr_t)map_get(&p->uses, order[i]->arg[k]);
      map_put(p->arena, &p->uses, order[i]->arg[k], (void *)(uses + 1));
      if (opens) inner[k] = new_block(p, here);
      place(p, order[i]->arg[k], opens ? inner[k] : here);
    }
  }
  Map inline_values = {0};
  for (int i = 0; i < n; i++)
    if (order[i]->kind == N_LET && stands_in_let(p, order[i])) map_put(p->arena, &inline_values, order[i]->arg[1], p);
  for (int i = 0; i < n; i++)
    if (!is_atom(order[i]) && !map_has(&inline_values, order[i]))
      vec_push(p->arena, &((TextBlock *)map_get(&p->region, order[i]))->nodes, order[i]);
  return top;
}

/* ---- names ---------------------------------------------------------------------------------- */

static bool plain_name(const char *s)
{
  if (!name_letter(*s) || (*s >= '0' && *s <= '9')) return false;
  while (name_letter(*s) || (name_joint(*s) && name_letter(s[1]))) s++;
  return !*s;
}

/* sigil and name, quoted where it holds odd characters. */
static const char *sigil_name(Arena *arena, char sigil, const char *name)
{
  if (plain_name(name)) return arena_printf(arena, "%c%s", sigil, name);
  Text t = text_new(arena);
  text_char(&t, sigil);
  text_quote(&t, name);
  return text_str(&t);
}

static const char *var_name(Printer *p, const Node *var)
{
  const char *known = map_get(&p->name, var);
  if (known) return known;
  const char *base = var->name && *var->name ? var->name : "v";
  const char *name = base;
  for (int i = 1; strmap_get(&p->taken, name); i++) name = arena_printf(p->arena, "%s_%d", base, i);
  strmap_put(p->arena, &p->taken, name, p);
  name = sigil_name(p->arena, '%', name);
  map_put(p->arena, &p->name, var, (void *)(uintptr_t)name);
  return name;
}

static void name_vars(Printer *p, const Node *root)
{
  const Node **order;
  int n = graph_post_order(p->arena, root, &order);
  NodeList vars = {0};
  for (int i = 0; i < n; i++)
    for (int k = 0; order[i]->kind == N_MATCH && k < order[i]->u.match.n; k++)
      graph_pattern_vars(p->arena, order[i]->u.match.clause[k], &vars);
  for (int i = 0; i < n; i++)
    if (order[i]->kind == N_VAR) var_name(p, order[i]);
  for (int i = 0; i < vars.n; i++) var_name(p, vars.v[i]);
}

/* ---- constants -------------------------------------------------------------------------------- */

/* Fewest digits that read back as the same value of the dtype. */
static const char *number_text(Arena *arena, Value v)
{
  if (!dtype_is_float(v.dtype))
    return v.dtype.code == DT_UINT ? arena_printf(arena, "%" PRIu64, (uint64_t)v.i)
                                   : arena_printf(arena, "%" PRId64, v.i);
  char text[40];
  for (int digits = 1; digits < 18; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, v.f);
    if (float_round(v.dtype, strtod(text, NULL)) == v.f) break;
  }
  return arena_strdup(arena, text);
}

/* Suffix of a scalar in text; NULL for dtypes that have none. */
static const char *suffix(Arena *arena, DType t)
{
  if (dtype_eq(t, DT_I32)) return "";
  if (dtype_eq(t, DT_F32)) return "f";
  if (t.code == DT_INT || (t.code == DT_UINT && t.bits > 1) || t.code == DT_FLOAT)
    return arena_printf(arena, "%c%d", t.code == DT_INT ? 'i' : t.code == DT_UINT ? 'u' : 'f', t.bits);
  return NULL;
}

static const char *scalar_text(Arena *arena, const ConstData *data)
{
  if (data->ndim || dtype_is_string(data->dtype)) return NULL;
  Value v = value_load(data->dtype, data->data);
  if (dtype_is_bool(v.dtype)) return v.i ? "True" : "False";
  if (dtype_is_float(v.dtype) && !isfinite(v.f)) return NULL;
  const char *end = suffix(arena, v.dtype);
  return end ? arena_printf(arena, "%s%s", number_text(arena, v), end) : NULL;
}

static void print_type_note(Printer *p, const Node *n)
{
  if (!(p->flags & GRAPH_TEXT_TYPES) || !n->type) return;
  text_add(p->out, " /* ty=");
  type_print(p->out, &p->sizes, n->type);
  text_add(p->out, " */");
}

static void print_const(Printer *p, const Node *n)
{
  const char *scalar = scalar_text(p->arena, n->u.data);
  if (scalar) {
    text_add(p->out, scalar);
  } else {
    intptr_t index = (intptr_t)map_get(&p->constant, n);
    if (!index) {
      vec_push(p->arena, &p->constants, n);
      index = p->constants.n;
      map_put(p->arena, &p->constant, n, (void *)index);
    }
    text_printf(p->out, "meta[relay.Constant][%d]", (int)index - 1);
  }
  print_type_note(p, n);
}

#define NUMBERS_INLINE 16 /* elements of a constant written as numbers in the metadata */
#define BYTES_PER_LINE 72

static void print_base64(Text *out, const unsigned char *data, size_t n)
{
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < n; i += 3) {
    if (i % BYTES_PER_LINE == 0) text_add(out, i ? "\"\n    \"" : "\n    \"");
    uint32_t v = (uint32_t)data[i] << 16 | (i + 1 < n ? (uint32_t)data[i + 1] << 8 : 0) | (i + 2 < n ? data[i + 2] : 0);
    char four[4] = {digits[v >> 18], digits[v >> 12 & 63], i + 1 < n ? digits[v >> 6 & 63] : '=',
                    i + 2 < n ? digits[v & 63] : '='};
    text_addn(out, four, 4);
  }
  if (n) text_char(out, '"');
}

static bool all_finite(const ConstData *data, size_t size)
{
  for (size_t at = 0; dtype_is_float(data->dtype) && at < data->bytes; at += size)
    if (!isfinite(value_load(data->dtype, (const char *)data->data + at).f)) return false;
  return true;
}

/* Strings stand as text where they are few and can; else as base64 of u32 length and bytes, one after the other. */
static void print_strings(Printer *p, Ctx *ctx, const ConstData *data)
{
  size_t count = data->bytes / 8;
  size_t n;
  const uint64_t *number = data->data;
  bool plain = count <= NUMBERS_INLINE;
  for (size_t i = 0; i < count && plain; i++) {
    const char *s = ctx_string_at(ctx, number[i], &n);
    plain = strlen(s) == n;
  }
  Text bytes = text_new(p->arena);
  if (plain) text_char(p->out, '[');
  for (size_t i = 0; i < count; i++) {
    const char *s = ctx_string_at(ctx, number[i], &n);
    uint32_t length = (uint32_t)n;
    if (plain && i) text_add(p->out, ", ");
    if (plain) text_quote(p->out, s);
    text_addn(&bytes, (const char *)&length, 4);
    text_addn(&bytes, s, n);
  }
  if (plain) text_char(p->out, ']');
  else print_base64(p->out, (const unsigned char *)bytes.s, bytes.n);
}

static void print_metadata(Printer *p)
{
  if (!p->constants.n) return;
  text_add(p->out, "\n#[metadata]\n");
  for (int i = 0; i < p->constants.n; i++) {
    const ConstData *data = p->constants.v[i]->u.data;
    size_t size = (size_t)dtype_bytes(data->dtype);
    text_printf(p->out, "relay.Constant[%d]: ", i);
    type_print(p->out, &p->sizes, p->constants.v[i]->type);
    text_add(p->out, " = ");
    if (dtype_is_string(data->dtype)) {
      print_strings(p, arena_ctx(p->arena), data);
    } else if (data->bytes <= NUMBERS_INLINE * size && all_finite(data, size)) {
      text_char(p->out, '[');
      for (size_t at = 0; at < data->bytes; at += size)
        text_printf(p->out, "%s%s", at ? ", " : "",
                    number_text(p->arena, value_load(data->dtype, (const char *)data->data + at)));
      text_char(p->out, ']');
    } else {
      print_base64(p->out, data->data, data->bytes);
    }
    text_add(p->out, ";\n");
  }
}

/* ---- expressions --------------------------------------------------------------------------------- */

/* A name, a constant, or the line that defines the node. */
static void print_ref(Printer *p, const Node *n)
{
  switch (n->kind) {
  case N_VAR: text_add(p->out, var_name(p, n)); return;
  case N_CONST: print_const(p, n); return;
  case N_GLOBAL: text_add(p->out, sigil_name(p->arena, '@', n->u.global)); return;
  case N_CTOR: text_add(p->out, n->u.ctor->name); return;
  case N_OP: text_add(p->out, n->u.call.op->name); return;
  case N_CALL:
  case N_APPLY:
  case N_TUPLE:
  case N_GET:
  case N_LET:
  case N_IF:
  case N_FUNC:
  case N_MATCH:
  case N_CALL_TIR: text_add(p->out, map_get(&p->name, n)); return;
  }
}

static void print_refs(Printer *p, int n, const Node *const *arg)
{
  for (int i = 0; i < n; i++) {
    if (i) text_add(p->out, ", ");
    print_ref(p, arg[i]);
  }
}

static void print_node(Printer *, const Node *, int indent);

/* A function of several types keeps its own parameters, which have no name here. */
static bool is_nameable(const Printer *p, const Type *ty)
{
  if (ty->kind == TY_VAR) return map_has(&p->type_params, ty->var);
  bool yes = !ty->ret || is_nameable(p, ty->ret);
  for (int i = 0; yes && i < ty->nfield; i++) yes = is_nameable(p, ty->field[i]);
  return yes;
}

static void print_let_line(Printer *p, const Node *let, int indent)
{
  const Node *var = let->arg[0];
  bool typed = var->type && is_nameable(p, var->type);
  text_indent(p->out, indent);
  text_printf(p->out, "let %s", var_name(p, var));
  if (typed) text_add(p->out, ": ");
  if (typed) type_print(p->out, &p->sizes, var->type);
  text_add(p->out, " = ");
  if (stands_in_let(p, let)) print_node(p, let->arg[1], indent);
  else print_ref(p, let->arg[1]);
  text_add(p->out, ";\n");
}

/* The block that argument arg of n is; a let inside an expression stands in one of its own. */
static void print_block(Printer *p, const Node *n, int arg, int indent)
{
  TextBlock **inner = map_get(&p->inner, n);
  if (++p->nesting > MAX_NESTING)
    raise(p->ctx, ERR_UNSUPPORTED, NOWHERE, "blocks nested more than %d deep have no text", MAX_NESTING);
  text_add(p->out, "{\n");
  if (n->kind == N_LET) print_let_line(p, n, indent + 2);
  print_lines(p, inner[arg], n->arg[arg], indent + 2);
  text_indent(p->out, indent);
  text_char(p->out, '}');
  p->nesting--;
}

static void print_attr_value(Printer *p, const Expr *e)
{
  if (e->kind == E_STR) text_quote(p->out, e->u.str);
  else expr_print(p->out, &p->sizes, PRINT_COMPACT, e);
}

static void type_params(Printer *p, const Type *ty, Map *seen, Text *out)
{
  if (!ty) return;
  if (ty->kind == TY_VAR && !map_has(seen, ty->var)) {
    text_printf(out, "%s%s", seen->n ? ", " : "[", ty->var->name);
    map_put(p->arena, seen, ty->var, p);
  }
  for (int i = 0; i < ty->nfield; i++) type_params(p, ty->field[i], seen, out);
  type_params(p, ty->ret, seen, out);
}

/* [A, B](%x: T, Primitive=1) -> T { … } */
static void print_func_rest(Printer *p, const Node *f, bool outermost, int indent)
{
  Map seen = {0};
  Text params = text_new(p->arena);
  for (int i = 0; outermost && i < fn_nparams(f); i++) type_params(p, f->arg[i]->type, &seen, &params);
  if (seen.n) text_printf(p->out, "%s]", text_str(&params));
  if (outermost) p->type_params = seen;
  text_char(p->out, '(');
  for (int i = 0; i < fn_nparams(f); i++) {
    text_printf(p->out, "%s%s", i ? ", " : "", var_name(p, f->arg[i]));
    if (f->arg[i]->type) text_add(p->out, ": ");
    if (f->arg[i]->type) type_print(p->out, &p->sizes, f->arg[i]->type);
  }
  const Annots *attrs = &f->u.func->attrs;
  for (int i = 0; i < attrs->n; i++) {
    text_printf(p->out, "%s%s=", i || fn_nparams(f) ? ", " : "", attrs->v[i].key);
    print_attr_value(p, attrs->v[i].value);
  }
  text_char(p->out, ')');
  const Type *ret = f->u.func->ret ? f->u.func->ret : f->type ? f->type->ret : NULL;
  if (ret) text_add(p->out, " -> ");
  if (ret) type_print(p->out, &p->sizes, ret);
  text_char(p->out, ' ');
  print_block(p, f, f->nargs - 1, indent);
}

static void print_pattern(Printer *p, const Pattern *pat)
{
  switch (pat->kind) {
  case PAT_WILD: text_char(p->out, '_'); return;
  case PAT_VAR: text_add(p->out, var_name(p, pat->var)); return;
  case PAT_CTOR: text_add(p->out, pat->ctor->name); break;
  case PAT_TUPLE: break;
  }
  if (pat->kind == PAT_CTOR && !pat->n) return;
  text_char(p->out, '(');
  for (int i = 0; i < pat->n; i++) {
    if (i) text_add(p->out, ", ");
    print_pattern(p, pat->sub[i]);
  }
  text_add(p->out, pat->kind == PAT_TUPLE && pat->n == 1 ? ",)" : ")");
}

static void print_match(Printer *p, const Node *n, int indent)
{
  text_add(p->out, "match (");
  print_ref(p, n->arg[0]);
  text_add(p->out, ") {\n");
  for (int i = 0; i < n->u.match.n; i++) {
    text_indent(p->out, indent + 2);
    print_pattern(p, n->u.match.clause[i]);
    text_add(p->out, " => ");
    print_block(p, n, i + 1, indent + 2);
    text_add(p->out, ",\n");
  }
  text_indent(p->out, indent);
  text_char(p->out, '}');
}

static void print_call(Printer *p, const Node *n)
{
  text_printf(p->out, "%s(", n->u.call.op->name);
  print_refs(p, n->nargs, n->arg);
  Text attrs = text_new(p->arena);
  attrs_print_named(&attrs, &p->sizes, n->u.call.op->attrs, n->u.call.attrs);
  if (n->u.call.plan) text_printf(&attrs, ", plan=\"%s\"", n->u.call.plan);
  text_add(p->out, text_str(&attrs) + (n->nargs || !attrs.n ? 0 : 2)); /* ", a=1": no comma to begin with */
  text_char(p->out, ')');
}

/* %x.0; a variable of the very name "x.0" makes that ambiguous. */
static void print_get(Printer *p, const Node *n)
{
  const Node *tuple = n->arg[0];
  bool clash = tuple->kind == N_VAR &&
               strmap_get(&p->taken, arena_printf(p->arena, "%s.%d", var_name(p, tuple) + 1, n->u.index));
  if (clash) text_char(p->out, '(');
  print_ref(p, tuple);
  if (clash) text_char(p->out, ')');
  text_printf(p->out, ".%d", n->u.index);
}

/* The expression itself, arguments by name. */
static void print_node(Printer *p, const Node *n, int indent)
{
  switch (n->kind) {
  case N_VAR:
  case N_CONST:
  case N_GLOBAL:
  case N_CTOR:
  case N_OP: print_ref(p, n); return;
  case N_CALL: print_call(p, n); break;
  case N_APPLY:
    print_ref(p, n->arg[0]);
    text_char(p->out, '(');
    print_refs(p, n->nargs - 1, n->arg + 1);
    text_char(p->out, ')');
    break;
  case N_TUPLE:
    text_char(p->out, '(');
    print_refs(p, n->nargs, n->arg);
    text_add(p->out, n->nargs == 1 ? ",)" : ")");
    break;
  case N_GET: print_get(p, n); break;
  case N_LET: print_block(p, n, 2, indent); break;
  case N_IF:
    text_add(p->out, "if (");
    print_ref(p, n->arg[0]);
    text_add(p->out, ") ");
    print_block(p, n, 1, indent);
    text_add(p->out, " else ");
    print_block(p, n, 2, indent);
    break;
  case N_FUNC:
    text_add(p->out, "fn ");
    print_func_rest(p, n, p->nesting == 0, indent);
    break;
  case N_MATCH: print_match(p, n, indent); break;
  case N_CALL_TIR:
    text_printf(p->out, "call_tir(%s, (", sigil_name(p->arena, '@', n->u.tir.name));
    print_refs(p, n->nargs, n->arg);
    text_add(p->out, n->nargs == 1 ? ",), " : "), ");
    type_print(p->out, &p->sizes, n->type);
    text_char(p->out, ')');
    break;
  }
  print_type_note(p, n);
}

/* Lines for the nodes defined in the block, then its value.  Lets go on in the same
 * block, however many there are. */
static void print_lines(Printer *p, const TextBlock *r, const Node *root, int indent)
{
  for (;;) {
    for (int i = 0; i < r->nodes.n; i++) {
      const Node *n = r->nodes.v[i];
      if (n == root) continue;
      map_put(p->arena, &p->name, n, arena_printf(p->arena, "%%%d", p->temps++));
      text_indent(p->out, indent);
      text_printf(p->out, "%s = ", (const char *)map_get(&p->name, n));
      print_node(p, n, indent);
      text_add(p->out, ";\n");
    }
    bool here = map_get(&p->region, root) == r;
    if (root->kind != N_LET || !here) break;
    print_let_line(p, root, indent);
    r = ((TextBlock **)map_get(&p->inner, root))[2];
    root = root->arg[2];
  }
  text_indent(p->out, indent);
  if (is_atom(root) || map_get(&p->region, root) != r) print_ref(p, root);
  else print_node(p, root, indent);
  text_char(p->out, '\n');
}

/* ---- whole texts -------------------------------------------------------------------------------------- */

/* Forgets what belongs to one function; the metadata goes on through the module. */
static TextBlock *begin_function(Printer *p, const Node *root)
{
  p->name = p->region = p->inner = p->uses = (Map){0};
  p->taken = (StrMap){0};
  p->sizes = (Namer){.arena = p->arena};
  p->temps = 0;
  name_vars(p, root);
  return place_all(p, root);
}

/* free_var %x: T; for what the text speaks of and does not bind; a variable alone is just its name. */
static void print_free_vars(Printer *p, const Node *root)
{
  const Node **vars;
  int n = root->kind == N_VAR ? 0 : graph_free_vars(p->arena, root, &vars);
  for (int i = 0; i < n; i++) {
    text_printf(p->out, "free_var %s%s", var_name(p, vars[i]), vars[i]->type ? ": " : "");
    if (vars[i]->type) type_print(p->out, &p->sizes, vars[i]->type);
    text_add(p->out, ";\n");
  }
}

const char *graph_print_with(Arena *arena, const Node *n, unsigned flags)
{
  Text out = text_new(arena);
  Printer p = {.ctx = arena_ctx(arena), .out = &out, .arena = arena, .flags = flags};
  TextBlock *top = begin_function(&p, n);
  print_free_vars(&p, n);
  print_lines(&p, top, n, 0);
  if (flags & GRAPH_TEXT_METADATA) print_metadata(&p);
  while (out.n && out.s[out.n - 1] == '\n') out.s[--out.n] = 0;
  return text_str(&out);
}

const char *graph_print(Arena *arena, const Node *n) { return graph_print_with(arena, n, GRAPH_TEXT_TYPES); }

static void print_data(Printer *p, const DataDef *d)
{
  text_printf(p->out, "%stype %s", d->nctor ? "" : "extern ", d->name);
  for (int i = 0; i < d->nparam; i++)
    text_printf(p->out, "%s%s%s", i ? ", " : "[", d->param[i]->name, i + 1 == d->nparam ? "]" : "");
  if (!d->nctor) {
    text_add(p->out, "\n\n");
    return;
  }
  text_add(p->out, " {\n");
  for (int i = 0; i < d->nctor; i++) {
    text_printf(p->out, "  %s", d->ctor[i].name);
    for (int k = 0; k < d->ctor[i].n; k++) {
      text_add(p->out, k ? ", " : "(");
      type_print(p->out, &p->sizes, d->ctor[i].field[k]);
    }
    text_add(p->out, d->ctor[i].n ? "),\n" : ",\n");
  }
  text_add(p->out, "}\n\n");
}

const char *graph_print_module_with(Arena *arena, Module *m, unsigned flags)
{
  Text out = text_new(arena);
  Printer p = {.ctx = m->ctx, .out = &out, .arena = arena, .flags = flags, .sizes = {.arena = arena}};
  for (int i = 0; i < graph_data_count(m); i++) print_data(&p, graph_data_at(m, i));
  for (int i = 0; i < m->globals.n; i++) {
    const Global *g = &m->globals.v[i];
    const char *name = sigil_name(arena, '@', g->name);
    if (i) text_char(&out, '\n');
    if (g->kind == GLOBAL_TIR) {
      text_printf(&out, "tir %s = \"\"\"\n%s\"\"\"\n", name, func_print(arena, g->func));
      continue;
    }
    begin_function(&p, g->func);
    text_printf(&out, "def %s", name);
    print_func_rest(&p, g->func, true, 0);
    text_char(&out, '\n');
  }
  if (flags & GRAPH_TEXT_METADATA) print_metadata(&p);
  return text_str(&out);
}

const char *graph_print_module(Arena *arena, Module *m)
{
  return graph_print_module_with(arena, m, GRAPH_TEXT_TYPES | GRAPH_TEXT_METADATA);
}
