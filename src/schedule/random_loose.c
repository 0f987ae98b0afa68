/* random_loose.c: random loop programs whose iteration kinds promise what they like.
 *
 * Each nest is one block over a few loops.  Kinds, bindings, predicates, inits and indices
 * are drawn without regard for each other: variables that stand in no index, reductions
 * that stand in one, loops that no variable is bound to or that a block uses itself, elements of a neighbour.  The
 * program means what its loops do in order; a primitive either keeps that or refuses.
 * All buffers are 8 x 8 of int32, whose sums and products do not depend on their order. */
#include "schedule/engine.h"

enum { SIDE = 8, MAX_LOOPS = 3 };

typedef struct Loose {
  Text text;
  uint64_t *seed;
  int nest, block; /* numbers for names */
  int nloop, nvar;
  int extent[MAX_LOOPS]; /* of the loops */
  int range[MAX_LOOPS];  /* of the block's variables */
  bool reduces;
  bool spatial[MAX_LOOPS];
  bool for_init; /* indices over spatial variables alone */
  bool by_loops; /* blocks use loops around them themselves */
} Loose;

static int pick(Loose *g, int lo, int hi) { return lo + (int)(sched_rng_next(g->seed) % (uint64_t)(hi - lo + 1)); }
static bool chance(Loose *g, int percent) { return pick(g, 1, 100) <= percent; }

/* An index below SIDE over the block's variables. */
static void add_index(Loose *g)
{
  if (g->by_loops && !g->for_init && chance(g, 40)) {
    text_printf(&g->text, "i%d_%d", g->nest, pick(g, 0, g->nloop - 1));
    return;
  }
  if (!g->nvar || chance(g, 8)) {
    text_printf(&g->text, "%d", pick(g, 0, SIDE - 1));
    return;
  }
  int k = pick(g, 0, g->nvar - 1);
  int n = g->range[k];
  int other = pick(g, 0, g->nvar - 1);
  if (g->for_init && !(g->spatial[k] && g->spatial[other])) {
    text_printf(&g->text, "%d", pick(g, 0, SIDE - 1));
    return;
  }
  switch (pick(g, 0, 11)) {
  case 0: text_printf(&g->text, "%d - v%d_%d", n - 1, g->block, k); return;
  case 1: text_printf(&g->text, "v%d_%d // 2", g->block, k); return;
  case 2: text_printf(&g->text, "v%d_%d %% 2", g->block, k); return;
  case 3:
    if (n < SIDE) text_printf(&g->text, "v%d_%d + %d", g->block, k, pick(g, 0, SIDE - n));
    else text_printf(&g->text, "v%d_%d", g->block, k);
    return;
  case 4:
    if (n * 2 <= SIDE) text_printf(&g->text, "v%d_%d * 2 + %d", g->block, k, pick(g, 0, 1));
    else text_printf(&g->text, "v%d_%d", g->block, k);
    return;
  case 5:
    if (n + g->range[other] - 1 <= SIDE) text_printf(&g->text, "v%d_%d + v%d_%d", g->block, k, g->block, other);
    else text_printf(&g->text, "v%d_%d", g->block, k);
    return;
  default: text_printf(&g->text, "v%d_%d", g->block, k); return;
  }
}

static void add_access(Loose *g, const char *buffer)
{
  text_printf(&g->text, "%s[", buffer);
  add_index(g);
  text_add(&g->text, ", ");
  add_index(g);
  text_add(&g->text, "]");
}

static const char *any_buffer(Loose *g)
{
  static const char *const names[] = {"A", "X", "P", "Q"};
  return names[pick(g, 0, 3)];
}

static const char *any_target(Loose *g)
{
  static const char *const names[] = {"X", "P", "Q", "X"};
  return names[pick(g, 0, 3)];
}

static void add_value(Loose *g)
{
  add_access(g, any_buffer(g));
  if (chance(g, 40)) {
    text_add(&g->text, chance(g, 50) ? " + " : " * ");
    add_access(g, any_buffer(g));
  }
  if (chance(g, 20)) text_printf(&g->text, " + %d", pick(g, 1, 5));
}

static void indent(Loose *g, int depth)
{
  for (int i = 0; i < depth; i++) text_add(&g->text, "    ");
}

/* target = value, or an update of target by it. */
static void add_store(Loose *g, const char *target, const char *at, bool update)
{
  static const char *const forms[] = {"%s[%s] + (", "%s[%s] + (", "T.max(%s[%s], ", "%s[%s] * 2 + (", "%s[%s] - ("};
  text_printf(&g->text, "%s[%s] = ", target, at);
  if (update) text_printf(&g->text, forms[pick(g, 0, 4)], target, at);
  add_value(g);
  text_add(&g->text, update ? ")\n" : "\n");
}

static const char *an_index(Loose *g)
{
  Loose part = *g;
  part.text = text_new(g->text.arena);
  add_index(&part);
  text_add(&part.text, ", ");
  add_index(&part);
  return text_str(&part.text);
}

static void add_vars(Loose *g, int depth)
{
  int used = 0;
  g->nvar = 0;
  g->reduces = false;
  while (used < g->nloop) {
    if (chance(g, 10)) { /* a loop that nothing is bound to */
      used++;
      continue;
    }
    int roll = pick(g, 1, 100);
    const char *kind = roll <= 60 ? "spatial" : roll <= 95 ? "reduce" : "opaque";
    bool two = used + 1 < g->nloop && g->extent[used] * g->extent[used + 1] <= SIDE && chance(g, 20);
    g->range[g->nvar] = two ? g->extent[used] * g->extent[used + 1] : g->extent[used];
    indent(g, depth);
    text_printf(&g->text, "v%d_%d = T.axis.%s(%d, ", g->block, g->nvar, kind, g->range[g->nvar]);
    if (two) text_printf(&g->text, "i%d_%d * %d + i%d_%d)\n", g->nest, used, g->extent[used + 1], g->nest, used + 1);
    else text_printf(&g->text, "i%d_%d)\n", g->nest, used);
    g->spatial[g->nvar] = roll <= 60;
    g->reduces |= roll > 60 && roll <= 95;
    g->nvar++;
    used += two ? 2 : 1;
  }
}

static void add_block(Loose *g, int depth)
{
  indent(g, depth);
  text_printf(&g->text, "with T.block(\"b%d\"):\n", g->block);
  add_vars(g, depth + 1);
  if (chance(g, 10)) {
    indent(g, depth + 1);
    text_printf(&g->text, "T.where(i%d_0 < %d)\n", g->nest, pick(g, 1, g->extent[0]));
  } else if (chance(g, 5)) {
    indent(g, depth + 1);
    text_printf(&g->text, "T.where(%s[i%d_0, 1] > 0)\n", any_buffer(g), g->nest);
  }
  const char *target = any_target(g);
  bool update = chance(g, 50);
  bool init = g->for_init = update && g->reduces && chance(g, 60);
  const char *at = an_index(g);
  g->for_init = false;
  if (init) {
    indent(g, depth + 1);
    text_add(&g->text, "with T.init():\n");
    indent(g, depth + 2);
    text_printf(&g->text, "%s[%s] = %d\n", target, at, pick(g, 0, 2));
  }
  indent(g, depth + 1);
  add_store(g, target, at, update);
  if (chance(g, 12)) {
    indent(g, depth + 1);
    add_store(g, any_target(g), an_index(g), chance(g, 30));
  }
  g->block++;
}

static void add_nest(Loose *g)
{
  int depth = 1;
  g->nloop = pick(g, 1, MAX_LOOPS);
  for (int i = 0; i < g->nloop; i++) {
    g->extent[i] = pick(g, 2, i ? 4 : SIDE);
    indent(g, depth++);
    text_printf(&g->text, "for i%d_%d in range(%d):\n", g->nest, i, g->extent[i]);
  }
  for (int n = chance(g, 75) ? 1 : 2; n; n--) add_block(g, depth);
  g->nest++;
}

/* The buffers between input and output hold numbers before anything reads them. */
static void add_fill(Loose *g, const char *buffer)
{
  text_printf(&g->text,
              "    for f%s_0, f%s_1 in T.grid(8, 8):\n"
              "        with T.block(\"fill_%s\"):\n"
              "            w%s_0, w%s_1 = T.axis.remap(\"SS\", [f%s_0, f%s_1])\n"
              "            %s[w%s_0, w%s_1] = A[w%s_0, w%s_1] * 3 + w%s_1\n",
              buffer, buffer, buffer, buffer, buffer, buffer, buffer, buffer, buffer, buffer, buffer, buffer, buffer);
}

PrimFunc *random_loose_func(Module *m, uint64_t *seed)
{
  Loose g = {.text = text_new(m->arena), .seed = seed};
  text_add(&g.text, "@T.prim_func\n"
                    "def main(A: T.Buffer((8, 8), \"int32\"), X: T.Buffer((8, 8), \"int32\")):\n"
                    "    P = T.alloc_buffer((8, 8), \"int32\")\n"
                    "    Q = T.alloc_buffer((8, 8), \"int32\")\n");
  g.by_loops = chance(&g, 8);
  add_fill(&g, "P");
  add_fill(&g, "Q");
  for (int n = pick(&g, 1, 3); n; n--) add_nest(&g);
  return func_parse(m, text_str(&g.text), "random", 1, 0, NULL);
}
