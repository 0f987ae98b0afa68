/* plan.c: plans as values: lists of them, their text, and names for what they are plans of. */
#include <stdlib.h>

#include "impl/internal.h"

#include <math.h>

void plan_add(PlanList *list, const void *fields, double seconds, double bytes)
{
  const AttrsDef *def = list->impl->plan;
  Arena *arena = list->of->arena;
  const void *copy = def->size ? arena_copy(arena, fields, def->size) : NULL;
  vec_push(arena, &list->v, (Plan){list->impl, copy, seconds, bytes, list->alters, list->data_block, list->out_block});
}

/* A product of float16 whose sums may be float16.  Others serve it no better than plain loops: they would widen each
 * element where it is multiplied. */
static bool sums_half(const ImplCall *c)
{
  const Node *n = c->call;
  return c->config->fast_math == FAST_FP16 && n->nargs > 1 && n->type->kind == TY_TENSOR &&
         dtype_eq(n->type->dtype, DT_F16);
}

/* Those of list->impl. */
static void impl_own_plans(const ImplCall *c, PlanList *list)
{
  const Impl *it = list->impl;
  if (it->half != sums_half(c)) return;
  if (it->plans) it->plans(c, list);
  else if (it->fits(c->target, c->call)) plan_add(list, NULL, it->cost(c->target, c->call), 0);
}

static void list_plans(const ImplCall *c, PlanList *list)
{
  *list = (PlanList){.of = c};
  for (int i = 0; i < impl_count(); i++) {
    const Impl *it = impl_at(i);
    if (strcmp(it->op, c->call->u.call.op->name)) continue;
    list->impl = it;
    list->alters = false;
    list->data_block = list->out_block = 0;
    impl_own_plans(c, list);
  }
}

static double least_seconds(const PlanList *list)
{
  double least = INFINITY;
  for (int i = 0; i < list->v.n; i++) least = fmin(least, list->v.v[i].seconds);
  return least;
}

/* Sizes that are known only at run time may be any.  What a plan takes is weighed at some parts of the likely sizes as
 * well: how many times as long as the best plan there, the root of the mean of squares, of which the likely sizes are
 * half.  So a plan that is the best for large maps and falls off a cliff at small ones is not taken. */
static void weigh_sizes(const ImplCall *c, PlanList *list)
{
  static const int parts[] = {3, 10, 32};
  enum { PARTS = sizeof parts / sizeof *parts };
  double whole = likely_flops(c->m, c->call);
  if (!likely_is_open(c->call) || !strstr(c->call->u.call.op->name, "conv") || whole <= 0) return;
  double *sum = arena_array(c->arena, double, list->v.n);
  double least = least_seconds(list);
  double each = log(least / whole); /* of the best plans, what an operation takes */
  int n = 0;
  for (int k = 0; k < PARTS; k++) {
    ImplCall part = *c;
    PlanList less;
    part.call = likely_part(c->m, c->call, parts[k]);
    double flops = likely_flops(c->m, part.call);
    list_plans(&part, &less);
    if (less.v.n != list->v.n || flops <= 0) continue;
    double best = least_seconds(&less);
    for (int i = 0; i < list->v.n; i++) sum[i] += less.v.v[i].seconds / best * (less.v.v[i].seconds / best);
    each += log(best / flops);
    n++;
  }
  if (!n) return;
  for (int i = 0; i < list->v.n; i++) {
    Plan *p = &list->v.v[i];
    double times = p->seconds / least;
    p->seconds = whole * exp(each / (n + 1)) * sqrt((times * times + sum[i] / n) / 2);
  }
}

void impl_plans(const ImplCall *c, PlanList *list)
{
  list_plans(c, list);
  weigh_sizes(c, list);
}

void plan_all(const ImplCall *c, PlanList *list)
{
  impl_plans(c, list);
  for (int i = 0; i < list->v.n; i++)
    if (!list->v.v[i].alters) return;
  generic_plans(c, list);
}

static double score(const Plan *p, double price) { return p->seconds + price * p->bytes; }

void plan_check_lines(Ctx *ctx, const char *lines)
{
  for (int number = 1; *lines; number++) {
    size_t n = strcspn(lines, "#\n");
    size_t word = strcspn(lines, " #\n");
    bool blank = strspn(lines, " ") >= n;
    bool plan = word < n && (strcspn(lines, "{") < n || strcspn(lines, "g") < n);
    if (!blank && !plan)
      raise(ctx, ERR_ARGUMENT, NOWHERE,
            "line %d of the plans is no workload and plan, as 'lathe inspect --plans' shows them: '%.*s'", number,
            n < 80 ? (int)n : 80, lines);
    lines += strcspn(lines, "\n");
    lines += *lines != 0;
  }
}

/* What somebody has written for this call; NULL: nothing. */
static const char *given_plan(const ImplCall *c)
{
  const char *at = c->config->plans;
  if (!at) return NULL;
  const char *name = plan_workload(c->m->ctx, c->arena, c->target, c->call);
  size_t n = strlen(name);
  for (; *at; at += strspn(at, "\n")) {
    size_t line = strcspn(at, "\n");
    size_t said = strcspn(at, "#\n"); /* the rest is for people */
    while (said > 0 && at[said - 1] == ' ') said--;
    if (!strncmp(at, name, n) && at[n] == ' ' && said > n + 1) return arena_strndup(c->arena, at + n + 1, said - n - 1);
    at += line;
  }
  return NULL;
}

Plan impl_choose(const ImplCall *c)
{
  PlanList list;
  Plan best = {0};
  const char *given = given_plan(c);
  if (given) return plan_parse(c, given);
  plan_all(c, &list);
  Plan *measured;
  int n = plan_tuned(c, &list, &measured);
  best.seconds = INFINITY;
  for (int i = 0; i < n; i++)
    if (!measured[i].alters && measured[i].seconds < best.seconds) best = measured[i];
  if (isfinite(best.seconds)) return best;
  for (int i = 0; i < list.v.n; i++)
    if (!list.v.v[i].alters && list.v.v[i].seconds < best.seconds) best = list.v.v[i];
  return impl_tuned(c, &best);
}

int impl_options(const ImplCall *c, double price, Plan **out)
{
  const char *given = given_plan(c);
  PlanList list = {.of = c};
  if (given) {
    *out = arena_new_of(c->arena, Plan);
    **out = plan_parse(c, given);
    return 1;
  }
  impl_plans(c, &list);
  int n = plan_tuned(c, &list, out);
  /* a weight that is not known yet is brought into its form in every run */
  const Type *weight = c->call->nargs > 1 ? c->call->arg[1]->type : NULL;
  double packed = 0;
  if (weight && weight->kind == TY_TENSOR && !alter_is_constant(c->m->ctx, c->call->arg[1]))
    packed = impl_relayout_seconds(c->target, type_known_elements(weight) * dtype_bytes(weight->dtype));
  for (int i = 0; i < n; i++)
    if ((*out)[i].alters) (*out)[i].seconds += packed;
  if (n) return n;
  for (int i = 0; i < list.v.n; i++)
    if (list.v.v[i].alters) list.v.v[i].seconds += packed;
  Vec(Plan) best = {0};
  bool as_it_lies = false;
  for (int i = 0; i < list.v.n; i++) {
    const Plan *p = &list.v.v[i];
    int k = 0;
    while (k < best.n && (best.v[k].data_block != p->data_block || best.v[k].out_block != p->out_block)) k++;
    if (k == best.n) vec_push(c->arena, &best, *p);
    else if (score(p, price) < score(&best.v[k], price)) best.v[k] = *p;
    as_it_lies |= !p->data_block && !p->out_block;
  }
  static const double UNTUNED = 0.1; /* share of the peak */
  if (!as_it_lies)
    vec_push(
        c->arena, &best,
        (Plan){.fields = &generic_plain,
               .seconds = likely_flops(c->m, c->call) / (UNTUNED * cost_flops(c->target, c->call->type->dtype.bits))});
  *out = best.v;
  return best.n;
}

const char *plan_line(const ImplCall *c, const Plan *p)
{
  return arena_printf(c->m->arena, "%s %s", plan_workload(c->m->ctx, c->arena, c->target, c->call),
                      plan_text(c->arena, p));
}

void impl_alter(const ImplCall *c, const Plan *p, AlteredCall *out)
{
  *out = (AlteredCall){0};
  p->impl->alter(c, p->fields, out);
  out->plan = plan_line(c, p);
}

/* ---- text ---------------------------------------------------------------------------------- */

/* Fields of plans are whole numbers and truths. */
static int64_t field_value(const AttrField *f, const void *fields)
{
  const void *at = (const char *)fields + f->offset;
  return f->kind == AT_BOOL ? *(const bool *)at : *(const int64_t *)at;
}

static const char GENERIC[] = "generic";

static const AttrsDef *fields_of(const Impl *impl) { return impl ? impl->plan : &GenericPlan_table; }
static const char *name_of(const Impl *impl) { return impl ? impl->name : GENERIC; }
const char *plan_name(const Plan *p) { return name_of(p->impl); }

const char *plan_text(Arena *arena, const Plan *p)
{
  Text out = text_new(arena);
  text_add(&out, name_of(p->impl));
  const AttrsDef *def = fields_of(p->impl);
  text_char(&out, '{');
  for (int i = 0; i < def->n; i++) {
    const AttrField *f = &def->field[i];
    int64_t v = field_value(f, p->fields);
    text_printf(&out, "%s%s=", i ? ", " : "", f->name);
    if (f->kind == AT_BOOL) text_add(&out, v ? "True" : "False");
    else text_printf(&out, "%" PRId64, v);
  }
  text_char(&out, '}');
  return text_str(&out);
}

_Noreturn static void raise_plan(const ImplCall *c, const char *text, const char *why)
{
  raise(c->m->ctx, ERR_ARGUMENT, NOWHERE, "plan '%s' for %s: %s", text, c->call->u.call.op->name, why);
}

/* The record that stands between the braces. */
static const void *parse_fields(const ImplCall *c, const Impl *impl, const char *text, const char *p)
{
  Module *m = c->m;
  const AttrsDef *def = fields_of(impl);
  char *record = arena_alloc(c->arena, def->size + 1);
  uint64_t given = 0;
  while (*(p += strspn(p, " ,")) != '}') {
    size_t n = strcspn(p, "=,}");
    if (p[n] != '=') raise_plan(c, text, "fields are written name=value, in braces");
    const char *name = arena_strndup(c->arena, p, n);
    p += n + 1;
    n = strcspn(p, ",}");
    const AttrField *f = attrs_field(def, name);
    if (!f) raise_plan(c, text, arena_printf(c->arena, "%s has no field '%s'", name_of(impl), name));
    if (!p[n]) raise_plan(c, text, "'}' is missing");
    attrs_set_text(m, def, record, name, arena_strndup(c->arena, p, n));
    given |= 1ULL << (f - def->field);
    p += n;
  }
  if (p[1]) raise_plan(c, text, "there is something behind '}'");
  for (int i = 0; i < def->n; i++)
    if (!(given >> i & 1)) raise_plan(c, text, arena_printf(c->arena, "field '%s' is missing", def->field[i].name));
  return record;
}

/* Which field has a value that none of the plans has which agree in the fields before it, and what it may be. */
_Noreturn static void raise_illegal(const ImplCall *c, const char *text, const PlanList *list, const Impl *impl,
                                    const void *fields)
{
  Arena *arena = c->arena;
  const AttrsDef *def = fields_of(impl);
  bool *agrees = arena_array(arena, bool, list->v.n + 1);
  int left = 0;
  for (int i = 0; i < list->v.n; i++) left += agrees[i] = list->v.v[i].impl == impl;
  if (!left) raise_plan(c, text, arena_printf(arena, "%s does not serve this call on this target", name_of(impl)));
  for (int f = 0; f < def->n; f++) {
    int64_t wanted = field_value(&def->field[f], fields);
    bool found = false;
    for (int i = 0; i < list->v.n; i++)
      found |= agrees[i] && field_value(&def->field[f], list->v.v[i].fields) == wanted;
    Text may = text_new(arena);
    for (int i = 0; i < list->v.n && !found; i++) {
      if (!agrees[i]) continue;
      int64_t v = field_value(&def->field[f], list->v.v[i].fields);
      bool said = false;
      for (int j = 0; j < i; j++) said |= agrees[j] && field_value(&def->field[f], list->v.v[j].fields) == v;
      if (!said) text_printf(&may, "%s%" PRId64, may.n ? ", " : "", v);
    }
    if (!found)
      raise_plan(c, text,
                 arena_printf(arena, "%s=%" PRId64 " is not possible here; with the fields before it, it may be %s",
                              def->field[f].name, wanted, text_str(&may)));
    for (int i = 0; i < list->v.n; i++)
      agrees[i] = agrees[i] && field_value(&def->field[f], list->v.v[i].fields) == wanted;
  }
  raise_plan(c, text, "these values are not possible together here");
}

static bool same_fields(const AttrsDef *def, const void *a, const void *b)
{
  for (int i = 0; i < def->n; i++)
    if (field_value(&def->field[i], a) != field_value(&def->field[i], b)) return false;
  return true;
}

Plan plan_parse(const ImplCall *c, const char *text)
{
  const char *workload = text;
  for (size_t i = strcspn(text, "{"); i > 0; i--) /* behind the last space before the braces */
    if (workload[i - 1] == ' ') {
      text = workload + i;
      break;
    }
  if (!strcmp(text, GENERIC)) return (Plan){.fields = &generic_plain, .seconds = generic_seconds(c, &generic_plain)};
  size_t n = strcspn(text, "{");
  const char *op = c->call->u.call.op->name;
  const char *name = arena_strndup(c->arena, text, n);
  bool generic = !strcmp(name, GENERIC);
  const Impl *impl = impl_find(name, op);
  if ((!impl && !generic) || text[n] != '{') raise_plan(c, text, "no implementation of this operator has that name");
  const void *fields = parse_fields(c, impl, text, text + n + 1);
  PlanList list = {.of = c, .impl = impl};
  if (generic) generic_plans(c, &list);
  else impl_own_plans(c, &list);
  for (int i = 0; i < list.v.n; i++)
    if (same_fields(fields_of(impl), list.v.v[i].fields, fields)) return list.v.v[i];
  raise_illegal(c, text, &list, impl, fields);
}

/* ---- workloads -------------------------------------------------------------------------------- */

const char *plan_workload(Ctx *ctx, Arena *arena, const Target *t, const Node *call)
{
  const OpDef *op = call->u.call.op;
  Text s = text_new(arena);
  text_add(&s, op->name);
  if (op->attrs) attrs_print(&s, op->attrs, call->u.call.attrs);
  for (int i = 0; i < call->nargs; i++)
    text_printf(&s, "; %s%s", type_text(arena, call->arg[i]->type),
                alter_is_constant(ctx, call->arg[i]) ? " constant" : "");
  text_printf(&s, "; %s %" PRIx64 " %d bits %d registers %" PRId64 " %" PRId64 " %d", target_arch_name(t->arch),
              t->features, t->vector_bits, t->vector_registers, t->l1_bytes, t->l2_bytes, t->num_cores);
  return arena_printf(arena, "%s-%016" PRIx64, op->name, hash_bytes(text_str(&s), s.n, 0));
}

/* ---- what was chosen from what -------------------------------------------------------------------- */

static int by_seconds(const void *a, const void *b)
{
  double x = ((const Plan *)a)->seconds;
  double y = ((const Plan *)b)->seconds;
  return x < y ? -1 : x > y;
}

static bool same_plan(const Plan *a, const Plan *b)
{
  return a->impl == b->impl && same_fields(fields_of(a->impl), a->fields, b->fields);
}

void plan_log(const ImplCall *c, const Plan *taken)
{
  Text *out = c->config->log;
  if (!out) return;
  PlanList list;
  plan_all(c, &list);
  if (list.v.n) qsort(list.v.v, (size_t)list.v.n, sizeof *list.v.v, by_seconds);
  text_printf(out, "%s %s\n", plan_workload(c->m->ctx, c->arena, c->target, c->call),
              c->call->name ? c->call->name : c->call->u.call.op->name);
  bool listed = false;
  for (int i = 0; i < list.v.n; i++) listed |= same_plan(&list.v.v[i], taken);
  if (!listed) text_printf(out, "* %.3f %s\n", 1e6 * taken->seconds, plan_text(c->arena, taken));
  for (int i = 0; i < list.v.n; i++)
    text_printf(out, "%c %.3f %s\n", same_plan(&list.v.v[i], taken) ? '*' : ' ', 1e6 * list.v.v[i].seconds,
                plan_text(c->arena, &list.v.v[i]));
}
