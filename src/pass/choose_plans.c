/* choose_plans.c: which plan each call of a graph gets, all weighed together.
 *
 * In: the nodes of a function, in order.  Out: the plan of each call that has a choice.
 *
 * Values that lie alike are a class: what operators hand on element by element, pools, concatenations.  A class lies
 * plain or in blocks of some number of channels.  A call has for each way in which its data and its result may lie the
 * time of its best plan; where a class lies otherwise, what it reads or writes is changed, which takes the time of a
 * copy.  What nobody can change (inputs of the function, operators that know no blocks) lies plain.  The sum of all
 * that is made least: classes are changed one at a time for as long as that helps, from several beginnings.
 *
 * Weights in another form take memory, which has a price: an eighth of what all weights take is worth a hundredth of a
 * run (MEMORY), set where a loaded ResNet-50 has no more than other runtimes need and ResNet-18 keeps its speed (from
 * 0.06 to 0.09 on a Neoverse-V1). */
#include "pass/groups.h"
#include "pass/passes.h"

enum { MAX_BLOCKS = 8 };

typedef struct Site {
  const Node *call;
  int n;
  Plan *option;
  int in, out;              /* classes of its data and its result */
  double in_copy, out_copy; /* seconds to change how they lie */
} Site;

typedef struct Class {
  int parent;      /* itself: it stands for the class */
  double fixed;    /* seconds to change what must lie plain, where the class does not */
  int64_t divisor; /* of all numbers of channels; 0: none is known yet, 1: it has to lie plain */
  int nblocks;
  int64_t block[MAX_BLOCKS]; /* that its calls may want; 0 among them */
  int64_t now;
  Vec(int) sites;
} Class;

typedef struct Choosing {
  Module *m;
  Arena *arena;
  PassContext *pc;
  DevicePlan *devices;  /* of a model for several targets */
  const Target *target; /* the first */
  const ImplConfig *config;
  int n;
  const Node *const *node;
  Map index; /* node -> its number + 1 */
  Class *cls;
  Vec(Site) site;
  double price; /* seconds for a byte of weights */
} Choosing;

static int find_class(Choosing *c, int i)
{
  while (c->cls[i].parent != i) i = c->cls[i].parent = c->cls[c->cls[i].parent].parent;
  return i;
}

static int number_of(const Choosing *c, const Node *n) { return (int)(intptr_t)map_get(&c->index, n) - 1; }

static bool is_image(const Type *t) { return t && t->kind == TY_TENSOR && t->ndim >= 3 && t->ndim <= 5; }

/* Does the value come in the layout of what it is made of? */
static bool carries(const Node *n)
{
  if (n->kind == N_TUPLE || n->kind == N_GET) return true;
  return n->kind == N_CALL && n->u.call.op->layout;
}

static double copy_seconds(const Choosing *c, const Type *t)
{
  return impl_relayout_seconds(c->target, impl_likely_elements(t) * dtype_bytes(t->dtype));
}

static int64_t channels_of(const Type *t)
{
  return is_image(t) && t->shape[1]->kind == E_INT && t->shape[1]->u.i > 0 ? t->shape[1]->u.i : 1;
}

static void join(Choosing *c, int a, int b)
{
  a = find_class(c, a), b = find_class(c, b);
  if (a != b) c->cls[b].parent = a;
}

static void make_classes(Choosing *c)
{
  for (int i = 0; i < c->n; i++) c->cls[i].parent = i;
  for (int i = 0; i < c->n; i++) {
    const Node *n = c->node[i];
    bool site = n->kind == N_CALL && map_has(&c->index, n) && c->cls[i].now;
    if (site || !carries(n)) continue;
    for (int a = 0; a < n->nargs; a++) {
      int k = number_of(c, n->arg[a]);
      bool alike = n->arg[a]->kind != N_CONST && (is_image(n->arg[a]->type) || n->arg[a]->kind == N_TUPLE);
      if (k >= 0 && alike) join(c, i, k);
    }
  }
}

/* What must lie plain, and what divides the channels. */
static void weigh_classes(Choosing *c)
{
  for (int i = 0; i < c->n; i++) {
    const Node *n = c->node[i];
    Class *own = &c->cls[find_class(c, i)];
    bool site = c->cls[i].now;
    if (is_image(n->type))
      own->divisor = own->divisor ? int_gcd(own->divisor, channels_of(n->type)) : channels_of(n->type);
    else if (n->type && n->type->kind == TY_TENSOR && n->kind != N_CONST) own->divisor = 1;
    if (!site && !carries(n) && is_image(n->type) && n->kind != N_CONST) own->fixed += copy_seconds(c, n->type);
    if (carries(n) && !site) continue;
    for (int a = site ? 1 : 0; a < n->nargs; a++) {
      int k = number_of(c, n->arg[a]);
      if (k < 0 || !is_image(n->arg[a]->type) || n->arg[a]->kind == N_CONST) continue;
      c->cls[find_class(c, k)].fixed += copy_seconds(c, n->arg[a]->type);
    }
  }
}

static void may_lie(Class *cls, int64_t block)
{
  for (int i = 0; i < cls->nblocks; i++)
    if (cls->block[i] == block) return;
  if (block && (!cls->divisor || cls->divisor % block)) return;
  if (cls->nblocks < MAX_BLOCKS) cls->block[cls->nblocks++] = block;
}

static void add_site(Choosing *c, int i, const Plan *option, int n)
{
  const Node *call = c->node[i];
  int k = number_of(c, call->arg[0]);
  Site s = {.call = call, .n = n, .option = arena_copy(c->arena, option, (size_t)n * sizeof *option)};
  s.in = k >= 0 ? find_class(c, k) : -1;
  s.out = find_class(c, i);
  if (is_image(call->arg[0]->type)) s.in_copy = copy_seconds(c, call->arg[0]->type);
  if (is_image(call->type)) s.out_copy = copy_seconds(c, call->type);
  vec_push(c->arena, &c->site, s);
}

/* ---- the choice -------------------------------------------------------------------------------------- */

static int64_t lies(const Choosing *c, int cls) { return cls < 0 ? 0 : c->cls[cls].now; }

/* The least that the call takes where its classes lie as they do; which option that is in *best. */
static double site_seconds(const Choosing *c, const Site *s, int *best)
{
  double least = 0;
  int64_t in = lies(c, s->in);
  int64_t out = lies(c, s->out);
  for (int i = 0; i < s->n; i++) {
    const Plan *p = &s->option[i];
    double seconds = p->seconds + c->price * p->bytes;
    if (p->data_block != in) seconds += s->in_copy;
    if (p->out_block != out) seconds += s->out_copy;
    if (i && seconds >= least) continue;
    least = seconds;
    if (best) *best = i;
  }
  return least;
}

static double class_seconds(const Choosing *c, const Class *cls)
{
  double seconds = cls->now ? cls->fixed : 0;
  for (int i = 0; i < cls->sites.n; i++) seconds += site_seconds(c, &c->site.v[cls->sites.v[i]], NULL);
  return seconds;
}

/* Changes classes one at a time for as long as that helps; the sum of all. */
static double settle(Choosing *c)
{
  enum { ROUNDS = 32 };
  bool changed = true;
  for (int round = 0; changed && round < ROUNDS; round++) {
    changed = false;
    for (int i = 0; i < c->n; i++) {
      Class *cls = &c->cls[i];
      if (cls->parent != i || cls->nblocks < 2) continue;
      int64_t best = cls->now;
      double least = class_seconds(c, cls);
      for (int k = 0; k < cls->nblocks; k++) {
        cls->now = cls->block[k];
        double seconds = class_seconds(c, cls);
        if (seconds >= least) continue;
        least = seconds;
        best = cls->now;
        changed = true;
      }
      cls->now = best;
    }
  }
  double all = 0;
  for (int i = 0; i < c->n; i++)
    if (c->cls[i].parent == i && c->cls[i].now) all += c->cls[i].fixed;
  for (int i = 0; i < c->site.n; i++) all += site_seconds(c, &c->site.v[i], NULL);
  return all;
}

/* Every class in blocks of so many channels that may be, the others plain. */
static void begin_with(Choosing *c, int64_t block)
{
  for (int i = 0; i < c->n; i++) {
    Class *cls = &c->cls[i];
    cls->now = 0;
    for (int k = 0; k < cls->nblocks; k++)
      if (cls->block[k] == block) cls->now = block;
  }
}

static void choose(Choosing *c)
{
  enum { BEGINNINGS = 6 };
  int64_t lanes = target_lanes(c->target, 32);
  const int64_t begin[BEGINNINGS] = {0, lanes < 8 ? 8 : lanes, lanes, 2 * lanes, 4 * lanes, 12};
  int64_t *best = arena_array(c->arena, int64_t, c->n + 1);
  double least = 0;
  for (int b = 0; b < BEGINNINGS; b++) {
    begin_with(c, begin[b]);
    double seconds = settle(c);
    if (b && seconds >= least) continue;
    least = seconds;
    for (int i = 0; i < c->n; i++) best[i] = c->cls[i].now;
  }
  for (int i = 0; i < c->n; i++) c->cls[i].now = best[i];
}

/* What a byte of weights may cost: by the fastest plans, whatever their memory. */
static void set_price(Choosing *c, const Map *options)
{
  static const double MEMORY = 0.08;
  static const double LITTLE = 16e6; /* bytes of which nobody takes notice */
  double seconds = 0;
  double bytes = 0;
  for (int i = 0; i < c->n; i++) {
    const Node *n = c->node[i];
    if (n->kind == N_CONST) bytes += type_known_elements(n->type) * dtype_bytes(n->type->dtype);
    const Site *s = map_get(options, n);
    if (!s) continue;
    const Plan *best = &s->option[0];
    for (int k = 1; k < s->n; k++)
      if (s->option[k].seconds < best->seconds) best = &s->option[k];
    seconds += best->seconds;
    if (best->bytes > 0) bytes += best->bytes - type_known_elements(n->arg[1]->type) * dtype_bytes(n->type->dtype);
  }
  c->price = bytes > LITTLE ? MEMORY * seconds / bytes : 0;
}

/* Options of every call that has something to choose. */
static void list_options(Choosing *c, double price, Map *options)
{
  for (int i = 0; i < c->n; i++) {
    const Node *n = c->node[i];
    if (n->kind != N_CALL || !n->type || n->type->kind != TY_TENSOR || n->u.call.plan) continue;
    ImplCall call = {c->m, c->arena, pass_target_of(c->pc, c->devices, n), c->config, n};
    if (target_is_gpu(call.target)) continue;
    Site s = {.call = n};
    s.n = impl_options(&call, price, &s.option);
    bool open = false;
    for (int k = 0; k < s.n; k++) open |= s.option[k].impl && s.option[k].impl->plan->n > 0;
    if (open) map_put(c->arena, options, n, arena_copy(c->arena, &s, sizeof s));
  }
}

void pass_choose_plans(PassContext *pc, Module *m, DevicePlan *devices, int n, const Node *const *node, Arena *arena,
                       Map *out)
{
  Choosing c = {.m = m, .arena = arena, .pc = pc, .devices = devices, .config = &pc->impl, .n = n, .node = node};
  c.target = pass_target(pc);
  Map options = {0};
  c.cls = arena_array(arena, Class, n + 1);
  for (int i = 0; i < n; i++) map_put(arena, &c.index, node[i], (void *)(intptr_t)(i + 1));
  list_options(&c, 0, &options);
  set_price(&c, &options);
  if (c.price > 0) list_options(&c, c.price, &options);
  for (int i = 0; i < n; i++) c.cls[i].now = map_has(&options, node[i]); /* a site, for now */
  make_classes(&c);
  weigh_classes(&c);
  for (int i = 0; i < n; i++) {
    const Site *s = map_get(&options, node[i]);
    if (s) add_site(&c, i, s->option, s->n);
  }
  for (int i = 0; i < n; i++) {
    c.cls[i].now = 0;
    may_lie(&c.cls[i], 0);
  }
  for (int i = 0; i < c.site.n; i++) {
    const Site *s = &c.site.v[i];
    for (int k = 0; k < s->n; k++) {
      if (s->in >= 0) may_lie(&c.cls[s->in], s->option[k].data_block);
      may_lie(&c.cls[s->out], s->option[k].out_block);
    }
    if (s->in >= 0) vec_push(arena, &c.cls[s->in].sites, i);
    if (s->out != s->in) vec_push(arena, &c.cls[s->out].sites, i);
  }
  choose(&c);
  for (int i = 0; i < c.site.n; i++) {
    int best = 0;
    site_seconds(&c, &c.site.v[i], &best);
    Plan *p = &c.site.v[i].option[best];
    ImplCall call = {m, arena, pass_target_of(pc, devices, c.site.v[i].call), c.config, c.site.v[i].call};
    if (p->impl) {
      *p = impl_tuned(&call, p);
      plan_log(&call, p);
    }
    map_put(arena, out, c.site.v[i].call, (void *)(uintptr_t)p);
  }
}
