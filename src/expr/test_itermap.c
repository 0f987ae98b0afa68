/* test_itermap.c: verdicts on iterator maps, their pieces, and inverses. */
#include "expr/test_parse.h"

enum { MAX_INDEX = 4 };

typedef struct Map2 {
  World w;
  const IterVar *loop[8];
  const Expr *index[MAX_INDEX], *predicate;
  int n, nloop;
} Map2;

/* Every variable of the domain but sizes is a loop. */
static Map2 map_new(const char *domain, const char *indices, const char *predicate)
{
  Map2 p = {.w = world_new(domain)};
  for (int i = 0; i < p.w.order.n; i++) {
    const Var *v = p.w.order.v[i];
    const VarInfo *info = analyzer_var(p.w.a, v);
    if (v->kind == VAR_SIZE || !info) continue;
    const Expr *extent =
        expr_simplify(p.w.a, expr_add(p.w.m, expr_sub(p.w.m, info->last, info->min), expr_i32(p.w.m, 1)));
    p.loop[p.nloop++] = itervar_new(p.w.m, v, info->min, extent, ITER_SPATIAL, NULL);
  }
  p.w.at = indices;
  do p.index[p.n++] = parse_or(&p.w);
  while (accept(&p.w, ","));
  if (*predicate) p.predicate = parse_text(&p.w, predicate);
  return p;
}

static bool detect(Map2 *p, IterMapCheck check, IterSum *out, const char **why)
{
  return itermap_detect(p->w.a, p->n, p->index, p->nloop, p->loop, p->predicate, check, out, why);
}

static const struct {
  const char *domain, *indices, *predicate;
  bool injective, bijective, surjective;
  /* clang-format off */
} verdicts[] = {
    {"i:8 j:4", "i, j", "", true, true, true},
    {"i:8 j:4", "j, i", "", true, true, true},
    {"i:8 j:4", "i*4 + j", "", true, true, true},
    {"i:8 j:4", "j*8 + i", "", true, true, true},
    {"i:8 j:4", "i*5 + j", "", true, false, false},
    {"i:8 j:4", "i*3 + j", "", false, false, false},
    {"i:8 j:4", "i + j", "", false, false, false},
    {"i:8 j:4", "i", "", false, false, true},
    {"i:8", "i, i", "", false, false, false},
    {"i:8", "i//2, i%2", "", true, true, true},
    {"i:8", "i%2", "", false, false, true},
    {"i:8", "i//2", "", false, false, true},
    {"i:8", "i*2", "", true, false, false},
    {"i:8", "7 - i", "", true, true, true},
    {"i:8", "i + 3", "", true, true, true},
    {"i:3..9", "i", "", true, true, true},
    {"i:3..10", "(i - 3)//4, (i - 3)%4", "", true, true, true},
    {"i:10", "i//3, i%3", "", true, false, false},
    {"i:10", "i//3", "", false, false, true},
    {"i:10", "i%3", "", false, false, true},
    {"i:10", "(i + 1)//3, (i + 1)%3", "", true, false, false},
    {"f:24", "f//12, f//4%3, f%4", "", true, true, true},
    {"f:24", "f//12, f%4, f//4%3", "", true, true, true},
    {"f:24", "f//12, f%4", "", false, false, true},
    {"f:24", "f//8, f%12", "", false, false, false},
    {"f:24", "f//12, f%12//4, f%4", "", true, true, true},
    {"io:32 ii:32", "io*32 + ii", "io*32 + ii < 1000", true, true, true},
    {"io:32 ii:32", "io*32 + ii", "", true, true, true},
    {"io:32 ii:32", "(io*32 + ii)//10, (io*32 + ii)%10", "io*32 + ii < 1000", true, true, true},
    {"io:32 ii:32", "(io*32 + ii)//10, (io*32 + ii)%10", "", true, false, false},
    {"io:32 ii:32 j:4", "io*32 + ii, j", "io*32 + ii < 1000 and j < 3", true, true, true},
    {"i:8 j:8", "i, j", "i + j < 9", true, false, false},
    {"io:4 ii:3", "io*3 + ii", "io*3 + ii >= 2 and io*3 + ii < 10", true, true, true},
    {"i:4 j:6", "(i*6 + j)//8, (i*6 + j)%8", "", true, true, true},
    {"i:4 j:6", "(i*6 + j)//8*8 + (i*6 + j)%8", "", true, true, true},
    {"i:1 j:8", "i, j", "", true, true, true},
    {"i:1 j:8", "j", "", true, true, true},
    {"i:8 j:8", "i*j", "", false, false, false},
    {"i:8", "min(i, 4)", "", false, false, false},
    {"n:size i:n j:8", "i*8 + j", "", true, true, true},
    {"n:size i:8 j:n", "i*n + j", "", true, true, true},
    {"n:size i:n", "i//4, i%4", "", true, false, false},
    {"n:size io:((n + 31)//32) ii:32", "io*32 + ii", "io*32 + ii < n", true, true, true},
    {"n:size m:size i:n j:m", "i*m + j", "", true, true, true},
    {"y:14 x:14 ry:3", "y + ry, x", "", false, false, false},
    {"y:14 ry:3", "y*3 + ry", "", true, true, true},
};
/* clang-format on */

static void verdicts_hold(void **state)
{
  (void)state;
  static const char *const names[] = {"injective", "bijective", "surjective"};
  for (size_t k = 0; k < sizeof verdicts / sizeof *verdicts; k++) {
    Map2 p = map_new(verdicts[k].domain, verdicts[k].indices, verdicts[k].predicate);
    bool want[] = {verdicts[k].injective, verdicts[k].bijective, verdicts[k].surjective};
    for (int check = 0; check < 3; check++) {
      const char *why = NULL;
      bool yes = detect(&p, (IterMapCheck)check, NULL, &why);
      if (yes != want[check])
        fail_msg("%s -> %s [%s]: %s%s (%s)", verdicts[k].domain, verdicts[k].indices, verdicts[k].predicate,
                 yes ? "" : "not ", names[check], why ? why : "no reason");
      assert_true(yes || why);
    }
    world_free(&p.w);
  }
}

static void pieces_come_out(void **state)
{
  (void)state;
  Map2 p = map_new("i:4 f:24", "f//12*4 + i + 5, f%12//4, f%4", "");
  IterSum s[3];
  assert_true(detect(&p, ITERMAP_BIJECTIVE, s, NULL));
  assert_int_equal(s[0].n, 2);
  assert_string_equal(world_text(&p.w, s[0].base), "5");
  assert_string_equal(world_text(&p.w, s[0].term[0].source), "i");
  assert_string_equal(world_text(&p.w, s[0].term[1].source), "f");
  assert_string_equal(world_text(&p.w, s[0].term[1].lower), "12");
  assert_string_equal(world_text(&p.w, s[0].term[1].extent), "2");
  assert_string_equal(world_text(&p.w, s[0].term[1].scale), "4");
  assert_string_equal(world_text(&p.w, s[1].term[0].lower), "4");
  assert_string_equal(world_text(&p.w, s[1].term[0].extent), "3");
  world_free(&p.w);
}

static void refusals_say_why(void **state)
{
  (void)state;
  const char *why;
  Map2 p = map_new("i:8 j:4", "i", "");
  assert_false(detect(&p, ITERMAP_BIJECTIVE, NULL, &why));
  assert_string_equal(why, "loop 'j' is not used: its iterations give the same index");
  world_free(&p.w);
  p = map_new("i:8 j:4", "i*3 + j", "");
  assert_false(detect(&p, ITERMAP_INJECTIVE, NULL, &why));
  assert_string_equal(why, "in 'i*3 + j' steps of 3 overlap what is below them");
  world_free(&p.w);
}

static const struct {
  const char *domain, *indices, *inverse;
  /* clang-format off */
} inverses[] = {
    {"i:8 j:4", "i*4 + j", "o0//4, o0%4"},
    {"i:8", "i//2, i%2", "o0*2 + o1"},
    {"i:8 j:4", "j, i", "o1, o0"},
    {"i:8", "7 - i", "7 - o0"},
    {"f:24", "f//12, f//4%3, f%4", "o0*12 + o1*4 + o2"},
    {"i:3..10", "i*2 - 6 - i", "o0 + 6"},
    {"i:4 j:6", "(i*6 + j)//8, (i*6 + j)%8", "(o0*8 + o1)//6, (o0*8 + o1)%6"},
    {"n:size i:8 j:n", "i*n + j", "o0//n, o0%n"},
    {"n:32 c:64 h:28", "n, c//16, h, c%16", "o0, o1*16 + o3, o2"},
};
/* clang-format on */

static void inverses_come_out(void **state)
{
  (void)state;
  for (size_t k = 0; k < sizeof inverses / sizeof *inverses; k++) {
    Map2 p = map_new(inverses[k].domain, inverses[k].indices, "");
    const Var *outputs[MAX_INDEX];
    const Expr *inverse[8];
    const char *why = "";
    for (int i = 0; i < p.n; i++) outputs[i] = var_new(p.w.m, arena_printf(p.w.m->arena, "o%d", i), DT_I32, VAR_PLAIN);
    if (!itermap_inverse(p.w.a, p.n, p.index, p.nloop, p.loop, outputs, inverse, &why))
      fail_msg("%s: %s", inverses[k].indices, why);
    Text t = text_new(p.w.m->arena);
    for (int i = 0; i < p.nloop; i++) text_printf(&t, "%s%s", i ? ", " : "", world_text(&p.w, inverse[i]));
    if (strcmp(text_str(&t), inverses[k].inverse)) fail_msg("%s: got %s", inverses[k].indices, text_str(&t));
    world_free(&p.w);
  }
}

static void bindings_are_put_back(void **state)
{
  (void)state;
  Map2 p = map_new("i:8 j:4", "i*4 + j", "");
  const Var *j = p.loop[1]->var;
  analyzer_bind(p.w.a, j, expr_i32(p.w.m, 0), expr_i32(p.w.m, 2));
  assert_true(detect(&p, ITERMAP_BIJECTIVE, NULL, NULL));
  assert_int_equal(analyzer_bounds(p.w.a, j->expr).max, 1);
  world_free(&p.w);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(verdicts_hold),     cmocka_unit_test(pieces_come_out),       cmocka_unit_test(refusals_say_why),
    cmocka_unit_test(inverses_come_out), cmocka_unit_test(bindings_are_put_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
