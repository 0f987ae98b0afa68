/* attrs.c: attributes of operators, worked from their field tables.
 *
 * Comes in: a table of fields and a struct laid out by it.  Goes out: defaults,
 * changes by name, text both ways, equality, hash.  A default is text in the form
 * that Relay prints, read by the same parser as a user's. */
#include "graph/state.h"

#include <errno.h>
#include <stdlib.h>

static void *slot(const AttrField *f, void *attrs) { return (char *)attrs + f->offset; }
static const void *const_slot(const AttrField *f, const void *attrs) { return (const char *)attrs + f->offset; }

const AttrField *attrs_field(const AttrsDef *def, const char *name)
{
  for (int i = 0; def && i < def->n; i++)
    if (!strcmp(def->field[i].name, name)) return &def->field[i];
  return NULL;
}

static const AttrField *need(Module *m, const AttrsDef *def, const char *name)
{
  const AttrField *f = attrs_field(def, name);
  if (!f) {
    const char *names[64] = {NULL};
    int n = def ? def->n < 64 ? def->n : 64 : 0;
    for (int i = 0; i < n; i++) names[i] = def->field[i].name;
    const char *suggestion = str_suggest(scratch(m->ctx), name, names, n);
    raise(m->ctx, ERR_ARGUMENT, NOWHERE, "%s has no attribute '%s'%s",
          def ? def->name : "an operator without attributes", name, suggestion);
  }
  return f;
}

_Noreturn static void wrong_kind(Module *m, const AttrField *f, const char *given)
{
  static const char *const kinds[] = {"a bool",
                                      "an integer",
                                      "a number",
                                      "a string",
                                      "a dtype",
                                      "a list of integers",
                                      "a list of numbers",
                                      "a list of strings",
                                      "a list of dimensions"};
  raise(m->ctx, ERR_TYPE, NOWHERE, "attribute '%s' is %s, not %s", f->name, kinds[f->kind], given);
}

void attrs_set_int(Module *m, const AttrsDef *def, void *attrs, const char *name, int64_t v)
{
  const AttrField *f = need(m, def, name);
  void *p = slot(f, attrs);
  if (f->kind == AT_BOOL) *(bool *)p = v != 0;
  else if (f->kind == AT_INT) *(int64_t *)p = v;
  else if (f->kind == AT_F64) *(double *)p = (double)v;
  else if (f->kind == AT_INTS) attrs_set_ints(m, def, attrs, name, 1, &v);
  else if (f->kind == AT_DIMS)
    attrs_set_dims(m, def, attrs, name, 1,
                   (const Expr *[]){expr_int(m, v >= INT32_MIN && v <= INT32_MAX ? DT_I32 : DT_I64, v)});
  else wrong_kind(m, f, "an integer");
}

void attrs_set_f64(Module *m, const AttrsDef *def, void *attrs, const char *name, double v)
{
  const AttrField *f = need(m, def, name);
  if (f->kind == AT_F64) *(double *)slot(f, attrs) = v;
  else wrong_kind(m, f, "a number");
}

static const char *unquote(Module *m, const char *text)
{
  size_t n = strlen(text);
  bool quoted = n >= 2 && (text[0] == '"' || text[0] == '\'') && text[n - 1] == text[0];
  return quoted ? arena_strndup(m->arena, text + 1, n - 2) : arena_strdup(m->arena, text);
}

/* What None stands for: the default; NULL where that is None, or where the string must be given. */
static const char *default_str(Module *m, const AttrField *f)
{
  return f->def && strcmp(f->def, "None") ? unquote(m, f->def) : NULL;
}

void attrs_set_str(Module *m, const AttrsDef *def, void *attrs, const char *name, const char *v)
{
  const AttrField *f = need(m, def, name);
  DType t = DT_NONE;
  if (f->kind == AT_STR) *(const char **)slot(f, attrs) = v ? arena_strdup(m->arena, v) : default_str(m, f);
  else if (f->kind == AT_DTYPE && (!v || !*v || dtype_parse(v, &t))) *(DType *)slot(f, attrs) = t;
  else wrong_kind(m, f, v ? arena_printf(scratch(m->ctx), "'%s'", v) : "None");
}

void attrs_set_dtype(Module *m, const AttrsDef *def, void *attrs, const char *name, DType v)
{
  const AttrField *f = need(m, def, name);
  if (f->kind != AT_DTYPE) wrong_kind(m, f, "a dtype");
  *(DType *)slot(f, attrs) = v;
}

void attrs_set_ints(Module *m, const AttrsDef *def, void *attrs, const char *name, int n, const int64_t *v)
{
  const AttrField *f = need(m, def, name);
  if (f->kind == AT_INTS) {
    *(AttrInts *)slot(f, attrs) = (AttrInts){n, arena_copy(m->arena, v, (size_t)n * sizeof *v), true};
  } else if (f->kind == AT_DIMS) {
    const Expr **dims = arena_array(m->arena, const Expr *, n);
    for (int i = 0; i < n; i++) dims[i] = expr_int(m, v[i] >= INT32_MIN && v[i] <= INT32_MAX ? DT_I32 : DT_I64, v[i]);
    *(AttrDims *)slot(f, attrs) = (AttrDims){n, dims, true};
  } else if (f->kind == AT_F64S) {
    double *d = arena_array(m->arena, double, n);
    for (int i = 0; i < n; i++) d[i] = (double)v[i];
    *(AttrF64s *)slot(f, attrs) = (AttrF64s){n, d, true};
  } else {
    wrong_kind(m, f, "a list of integers");
  }
}

void attrs_set_f64s(Module *m, const AttrsDef *def, void *attrs, const char *name, int n, const double *v)
{
  const AttrField *f = need(m, def, name);
  if (f->kind != AT_F64S) wrong_kind(m, f, "a list of numbers");
  *(AttrF64s *)slot(f, attrs) = (AttrF64s){n, arena_copy(m->arena, v, (size_t)n * sizeof *v), true};
}

void attrs_set_strs(Module *m, const AttrsDef *def, void *attrs, const char *name, int n, const char *const *v)
{
  const AttrField *f = need(m, def, name);
  if (f->kind != AT_STRS) wrong_kind(m, f, "a list of strings");
  const char **list = arena_array(m->arena, const char *, n);
  for (int i = 0; i < n; i++) list[i] = arena_strdup(m->arena, v[i]);
  *(AttrStrs *)slot(f, attrs) = (AttrStrs){n, list, true};
}

void attrs_set_dims(Module *m, const AttrsDef *def, void *attrs, const char *name, int n, const Expr *const *v)
{
  const AttrField *f = need(m, def, name);
  if (f->kind != AT_DIMS) wrong_kind(m, f, "a list of dimensions");
  *(AttrDims *)slot(f, attrs) = (AttrDims){n, arena_copy(m->arena, v, (size_t)n * sizeof *v), true};
}

/* ---- text ---------------------------------------------------------------------------------- */

/* list := '[' (item (',' item)*)? ']', brackets or parentheses; gives the items' texts. */
static int split_list(Module *m, const AttrField *f, const char *text, char ***out)
{
  size_t n = strlen(text);
  Vec(char *) items = {0};
  if (n < 2 || !strchr("[(", text[0]) || !strchr("])", text[n - 1]))
    wrong_kind(m, f, arena_printf(scratch(m->ctx), "'%s'", text));
  for (const char *p = text + 1; p < text + n - 1;) {
    p += strspn(p, " ");
    size_t len = 0;
    for (char quote = 0; p + len < text + n - 1 && (quote || p[len] != ','); len++)
      if (p[len] == '"' || p[len] == '\'') quote = quote == p[len] ? 0 : quote ? quote : p[len];
    size_t used = len;
    while (used && p[used - 1] == ' ') used--;
    if (used) vec_push(scratch(m->ctx), &items, arena_strndup(scratch(m->ctx), p, used));
    p += len + 1;
  }
  *out = items.v;
  return items.n;
}

static int64_t parse_int(Module *m, const AttrField *f, const char *text)
{
  if (!strcmp(text, "True") || !strcmp(text, "False")) return text[0] == 'T';
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, 10);
  if (*end || end == text || errno) wrong_kind(m, f, arena_printf(scratch(m->ctx), "'%s'", text));
  return v;
}

static double parse_f64(Module *m, const AttrField *f, const char *text)
{
  char *end;
  double v = strtod(text, &end);
  if (end == text || (*end && strcmp(end, "f"))) wrong_kind(m, f, arena_printf(scratch(m->ctx), "'%s'", text));
  return v;
}

static void set_list_text(Module *m, const AttrsDef *def, void *attrs, const AttrField *f, const char *text)
{
  char **item;
  int n = split_list(m, f, text, &item);
  if (f->kind == AT_STRS) {
    const char **v = arena_array(scratch(m->ctx), const char *, n);
    for (int i = 0; i < n; i++) v[i] = unquote(m, item[i]);
    attrs_set_strs(m, def, attrs, f->name, n, v);
  } else if (f->kind == AT_F64S) {
    double *v = arena_array(scratch(m->ctx), double, n);
    for (int i = 0; i < n; i++) v[i] = parse_f64(m, f, item[i]);
    attrs_set_f64s(m, def, attrs, f->name, n, v);
  } else {
    int64_t *v = arena_array(scratch(m->ctx), int64_t, n);
    for (int i = 0; i < n; i++) v[i] = parse_int(m, f, item[i]);
    attrs_set_ints(m, def, attrs, f->name, n, v);
  }
}

void attrs_set_text(Module *m, const AttrsDef *def, void *attrs, const char *name, const char *text)
{
  const AttrField *f = need(m, def, name);
  if (!strcmp(text, "None")) {
    static const size_t sizes[] = {sizeof(bool),     sizeof(int64_t),  sizeof(double),   sizeof(char *),  sizeof(DType),
                                   sizeof(AttrInts), sizeof(AttrF64s), sizeof(AttrStrs), sizeof(AttrDims)};
    if (f->kind < AT_STR) wrong_kind(m, f, "None");
    if (f->kind == AT_STR) {
      attrs_set_str(m, def, attrs, name, NULL);
      return;
    }
    memset(slot(f, attrs), 0, sizes[f->kind]);
    if (f->kind == AT_DTYPE) *(DType *)slot(f, attrs) = DT_NONE;
    return;
  }
  switch (f->kind) {
  case AT_BOOL:
  case AT_INT: attrs_set_int(m, def, attrs, name, parse_int(m, f, text)); return;
  case AT_F64: attrs_set_f64(m, def, attrs, name, parse_f64(m, f, text)); return;
  case AT_STR:
  case AT_DTYPE: attrs_set_str(m, def, attrs, name, unquote(m, text)); return;
  case AT_INTS:
  case AT_F64S:
  case AT_STRS:
  case AT_DIMS: set_list_text(m, def, attrs, f, text); return;
  }
}

void *attrs_new(Module *m, const AttrsDef *def)
{
  if (!def) return NULL;
  void *attrs = arena_alloc(m->arena, def->size);
  for (int i = 0; i < def->n; i++) {
    if (def->field[i].def) attrs_set_text(m, def, attrs, def->field[i].name, def->field[i].def);
    else if (def->field[i].kind == AT_DTYPE) *(DType *)slot(&def->field[i], attrs) = DT_NONE;
  }
  return attrs;
}

void *attrs_copy(Module *m, const AttrsDef *def, const void *attrs)
{
  return def ? arena_copy(m->arena, attrs, def->size) : NULL;
}

const void *attrs_with_strings(Module *m, const AttrsDef *def, const void *attrs, const char **missing)
{
  void *own = NULL;
  *missing = NULL;
  for (int i = 0; def && i < def->n; i++) {
    const AttrField *f = &def->field[i];
    if (f->kind != AT_STR || *(const char *const *)const_slot(f, attrs)) continue;
    const char *value = default_str(m, f);
    if (!value && !f->def) *missing = f->name;
    if (!value) continue;
    if (!own) attrs = own = attrs_copy(m, def, attrs);
    *(const char **)slot(f, own) = value;
  }
  return attrs;
}

void *attrs_import(Importer *im, const AttrsDef *def, const void *old)
{
  if (!def) return NULL;
  Arena *arena = im->dst->arena;
  void *attrs = arena_copy(arena, old, def->size);
  for (int i = 0; i < def->n; i++) {
    void *p = slot(&def->field[i], attrs);
    switch (def->field[i].kind) {
    case AT_BOOL:
    case AT_INT:
    case AT_F64:
    case AT_DTYPE: break;
    case AT_STR:
      if (*(const char **)p) *(const char **)p = arena_strdup(arena, *(const char **)p);
      break;
    case AT_INTS:
      ((AttrInts *)p)->v = arena_copy(arena, ((AttrInts *)p)->v, (size_t)((AttrInts *)p)->n * sizeof(int64_t));
      break;
    case AT_F64S:
      ((AttrF64s *)p)->v = arena_copy(arena, ((AttrF64s *)p)->v, (size_t)((AttrF64s *)p)->n * sizeof(double));
      break;
    case AT_STRS: {
      AttrStrs *list = p;
      const char **v = arena_array(arena, const char *, list->n);
      for (int k = 0; k < list->n; k++) v[k] = arena_strdup(arena, list->v[k]);
      list->v = v;
      break;
    }
    case AT_DIMS: {
      AttrDims *list = p;
      const Expr **v = arena_array(arena, const Expr *, list->n);
      for (int k = 0; k < list->n; k++) v[k] = expr_import(im, list->v[k]);
      list->v = v;
      break;
    }
    }
  }
  return attrs;
}

/* ---- comparing and printing -------------------------------------------------------------------- */

static void print_value(Text *out, Namer *names, const AttrField *f, const void *attrs)
{
  const void *p = const_slot(f, attrs);
  switch (f->kind) {
  case AT_BOOL: text_add(out, *(const bool *)p ? "True" : "False"); return;
  case AT_INT: text_printf(out, "%" PRId64, *(const int64_t *)p); return;
  case AT_F64: text_add(out, text_double(out->arena, *(const double *)p)); return;
  case AT_STR:
    if (*(const char *const *)p) text_quote(out, *(const char *const *)p);
    else text_add(out, "None");
    return;
  case AT_DTYPE:
    if (((const DType *)p)->code == DT_VOID) text_add(out, "None");
    else text_quote(out, dtype_name(out->arena, *(const DType *)p));
    return;
  case AT_INTS:
  case AT_F64S:
  case AT_STRS:
  case AT_DIMS: break;
  }
  const AttrInts *list = p; /* the lists share their layout */
  if (!list->given) {
    text_add(out, "None");
    return;
  }
  text_char(out, '[');
  for (int i = 0; i < list->n; i++) {
    if (i) text_add(out, ", ");
    if (f->kind == AT_INTS) text_printf(out, "%" PRId64, list->v[i]);
    else if (f->kind == AT_F64S) text_add(out, text_double(out->arena, ((const AttrF64s *)p)->v[i]));
    else if (f->kind == AT_STRS) text_quote(out, ((const AttrStrs *)p)->v[i]);
    else expr_print(out, names, PRINT_COMPACT, ((const AttrDims *)p)->v[i]);
  }
  text_char(out, ']');
}

/* Two texts of one value: quotes, spaces and the kind of bracket do not matter. */
static bool same_value_text(const char *a, const char *b)
{
  for (;; a++, b++) {
    a += strspn(a, " \"'");
    b += strspn(b, " \"'");
    char x = *a == '(' ? '[' : *a == ')' ? ']' : *a;
    char y = *b == '(' ? '[' : *b == ')' ? ']' : *b;
    if (x != y) return false;
    if (!x) return true;
  }
}

static bool is_default(Arena *arena, Namer *names, const AttrField *f, const void *attrs)
{
  if (!f->def) return false;
  const void *p = const_slot(f, attrs);
  if (f->kind == AT_F64) {
    double def = strtod(f->def, NULL);
    return !memcmp(&def, p, sizeof def);
  }
  if (f->kind == AT_STR && !*(const char *const *)p) return !strcmp(f->def, "None");
  if (f->kind == AT_STR && !strcmp(f->def, "None")) return false;
  if (f->kind == AT_DTYPE && ((const DType *)p)->code == DT_VOID)
    return !strcmp(f->def, "None") || same_value_text(f->def, "");
  Text t = text_new(arena);
  print_value(&t, names, f, attrs);
  return same_value_text(f->def, text_str(&t));
}

void attrs_print_named(Text *out, Namer *names, const AttrsDef *def, const void *attrs)
{
  for (int i = 0; def && i < def->n; i++) {
    if (is_default(out->arena, names, &def->field[i], attrs)) continue;
    text_printf(out, ", %s=", def->field[i].name);
    print_value(out, names, &def->field[i], attrs);
  }
}

void attrs_print(Text *out, const AttrsDef *def, const void *attrs)
{
  Namer names = {.arena = out->arena};
  attrs_print_named(out, &names, def, attrs);
}

static bool list_equal(const AttrField *f, const void *a, const void *b)
{
  const AttrInts *x = a;
  const AttrInts *y = b;
  if (x->n != y->n || x->given != y->given) return false;
  if (f->kind != AT_STRS) return x->n == 0 || !memcmp(x->v, y->v, (size_t)x->n * sizeof *x->v);
  for (int i = 0; i < x->n; i++)
    if (strcmp(((const AttrStrs *)a)->v[i], ((const AttrStrs *)b)->v[i])) return false;
  return true;
}

bool attrs_equal(const AttrsDef *def, const void *a, const void *b)
{
  for (int i = 0; def && i < def->n; i++) {
    const AttrField *f = &def->field[i];
    const void *p = const_slot(f, a);
    const void *q = const_slot(f, b);
    bool same = false;
    switch (f->kind) {
    case AT_BOOL: same = *(const bool *)p == *(const bool *)q; break;
    case AT_INT:
    case AT_F64: same = !memcmp(p, q, 8); break;
    case AT_STR: {
      const char *s = *(const char *const *)p;
      const char *t = *(const char *const *)q;
      same = s == t || (s && t && !strcmp(s, t));
      break;
    }
    case AT_DTYPE: same = dtype_eq(*(const DType *)p, *(const DType *)q); break;
    case AT_INTS:
    case AT_F64S:
    case AT_STRS:
    case AT_DIMS: same = list_equal(f, p, q); break;
    }
    if (!same) return false;
  }
  return true;
}

uint64_t attrs_hash(const AttrsDef *def, const void *attrs)
{
  uint64_t h = 17;
  for (int i = 0; def && i < def->n; i++) {
    const AttrField *f = &def->field[i];
    const void *p = const_slot(f, attrs);
    switch (f->kind) {
    case AT_BOOL: h = hash_mix(h, *(const bool *)p); break;
    case AT_INT:
    case AT_F64: h = hash_bytes(p, 8, h); break;
    case AT_STR:
      h = *(const char *const *)p ? hash_bytes(*(const char *const *)p, strlen(*(const char *const *)p), h)
                                  : hash_mix(h, 1);
      break;
    case AT_DTYPE: h = hash_mix(h, ((const DType *)p)->code * 256u + ((const DType *)p)->bits); break;
    case AT_INTS:
    case AT_F64S: h = hash_bytes(((const AttrInts *)p)->v, (size_t)((const AttrInts *)p)->n * 8, h); break;
    case AT_STRS:
    case AT_DIMS: h = hash_mix(h, (uint64_t)((const AttrInts *)p)->n); break;
    }
  }
  return h;
}
