/* Places of blocks: nothing that is needed at the same time shares bytes, and nothing is above what brute force
 * finds. */
#include "driver/place.h"
#include "driver/test_driver.h"

static uint64_t state;
static int below(int n)
{
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)((state >> 33) % (uint64_t)n);
}

enum { TIMES = 12, MOST = 40 };

static int make_blocks(Arena *a, PlaceBlock *block, int n, bool parts)
{
  for (int i = 0; i < n; i++) {
    int begin = below(TIMES);
    int end = begin + below(TIMES - begin);
    int count = parts && below(3) == 0 ? 2 : 1;
    Segment *s = arena_array(a, Segment, 2);
    int64_t at = 0;
    for (int k = 0; k < count; k++) {
      s[k] = (Segment){k ? begin + below(end - begin + 1) : begin, end, at, 16 * (1 + below(20))};
      at += s[k].bytes;
    }
    block[i] = (PlaceBlock){.number = i, .nsegment = count, .segment = s, .begin = begin, .end = end, .bytes = at};
  }
  return n;
}

static void assert_apart(const PlaceBlock *x, const PlaceBlock *y)
{
  for (int i = 0; x->pool == y->pool && x->pool >= 0 && i < x->nsegment; i++)
    for (int k = 0; k < y->nsegment; k++) {
      const Segment *a = &x->segment[i];
      const Segment *b = &y->segment[k];
      if (a->end < b->begin || b->end < a->begin) continue;
      int64_t p = x->place + a->offset;
      int64_t q = y->place + b->offset;
      assert_true(p + a->bytes <= q || q + b->bytes <= p);
    }
}

static void assert_placed(const PlaceBlock *block, int n, int npools, const PlacePool *pool, const PlaceReport *r)
{
  int64_t lost = 0;
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < i; k++) assert_apart(&block[i], &block[k]);
    if (block[i].pool < 0) {
      lost += block[i].bytes;
      continue;
    }
    assert_true(block[i].pool < npools && block[i].place >= 0);
    assert_true(block[i].place + block[i].bytes <= r->pool[block[i].pool]);
    assert_true(r->pool[block[i].pool] <= pool[block[i].pool].size);
  }
  assert_int_equal(lost, r->overflow);
}

static const PlacePool open_size = {.size = INT64_MAX};

static void test_efforts(Ctx *ctx)
{
  static const PlaceEffort efforts[] = {PLACE_QUICK, PLACE_BY_SIZE, PLACE_BY_CONFLICTS, PLACE_CLIMB, PLACE_THOROUGH};
  for (int round = 0; round < 40; round++) {
    Scope scope = scope_begin(ctx);
    PlaceBlock block[MOST];
    int n = make_blocks(scratch(ctx), block, 1 + below(round % 2 ? MOST - 1 : 9), round % 3 == 0);
    int64_t by_size = 0;
    for (size_t k = 0; k < sizeof efforts / sizeof *efforts; k++) {
      PlaceReport r;
      place_blocks(ctx, n, block, TIMES, 1, &open_size, efforts[k], &r);
      assert_placed(block, n, 1, &open_size, &r);
      assert_true(r.bytes >= r.bound);
      if (efforts[k] == PLACE_BY_SIZE) by_size = r.bytes;
      if (efforts[k] == PLACE_THOROUGH || efforts[k] == PLACE_CLIMB) assert_true(r.bytes <= by_size);
    }
    scope_end(ctx, scope);
  }
}

/* The least bytes of any placing, by trying every multiple of 16 for every block. */
static bool fits_below(PlaceBlock *block, int n, int at, int64_t bytes)
{
  if (at == n) return true;
  for (block[at].place = 0; block[at].place + block[at].bytes <= bytes; block[at].place += 16) {
    bool apart = true;
    for (int k = 0; k < at; k++)
      apart = apart && (block[k].end < block[at].begin || block[at].end < block[k].begin ||
                        block[k].place + block[k].bytes <= block[at].place ||
                        block[at].place + block[at].bytes <= block[k].place);
    if (apart && fits_below(block, n, at + 1, bytes)) return true;
  }
  return false;
}

static void test_exact_search_is_exact(Ctx *ctx)
{
  for (int round = 0; round < 120; round++) {
    Scope scope = scope_begin(ctx);
    PlaceBlock block[MOST];
    PlaceReport r;
    int n = make_blocks(scratch(ctx), block, 5 + below(3), false);
    for (int i = 0; i < n; i++) block[i].bytes = block[i].segment->bytes = 16 * (1 + below(4));
    place_blocks(ctx, n, block, TIMES, 1, &open_size, PLACE_THOROUGH, &r);
    assert_true(r.optimal);
    assert_placed(block, n, 1, &open_size, &r);
    assert_false(fits_below(block, n, 0, r.bytes - 16));
    scope_end(ctx, scope);
  }
}

/* Blocks of which 7 times 16 bytes are needed at a time, and which do not fit into those. */
static void test_a_bound_that_cannot_be_reached(Ctx *ctx)
{
  static const int rows[][3] = {{5, 6, 1}, {0, 0, 2}, {0, 3, 3}, {2, 5, 1}, {6, 8, 3},
                                {0, 1, 2}, {3, 6, 3}, {8, 8, 2}, {7, 8, 2}};
  enum { N = sizeof rows / sizeof *rows };
  PlaceBlock block[N];
  Segment s[N];
  PlaceReport r;
  for (int i = 0; i < N; i++) {
    s[i] = (Segment){rows[i][0], rows[i][1], 0, 16 * rows[i][2]};
    block[i] = (PlaceBlock){
      .number = i, .nsegment = 1, .segment = &s[i], .begin = rows[i][0], .end = rows[i][1], .bytes = 16 * rows[i][2]};
  }
  place_blocks(ctx, N, block, TIMES, 1, &open_size, PLACE_THOROUGH, &r);
  assert_int_equal(r.bound, 7 * 16);
  assert_int_equal(r.bytes, 8 * 16);
  assert_true(r.optimal);
  assert_placed(block, N, 1, &open_size, &r);
  assert_false(fits_below(block, N, 0, r.bound));
}

static void test_pools(Ctx *ctx)
{
  static const PlacePool roomy[] = {{.size = 320}, {.size = 100000}};
  static const PlacePool tight[] = {{.size = 160}, {.size = 96}};
  for (int round = 0; round < 30; round++) {
    Scope scope = scope_begin(ctx);
    PlaceBlock block[MOST];
    PlaceReport r;
    int n = make_blocks(scratch(ctx), block, 1 + below(20), false);
    place_blocks(ctx, n, block, TIMES, 2, roomy, PLACE_THOROUGH, &r);
    assert_int_equal(r.overflow, 0);
    assert_placed(block, n, 2, roomy, &r);
    place_blocks(ctx, n, block, TIMES, 2, tight, PLACE_THOROUGH, &r);
    assert_placed(block, n, 2, tight, &r);
    if (r.bound > 256) assert_true(r.overflow > 0);
    scope_end(ctx, scope);
  }
}

/* Blocks that are needed at the same time: what goes into the fast pool is a choice of some of them, all of which are
 * tried here.  The fast pool is the second one. */
static void test_speeds(Ctx *ctx)
{
  enum { N = 7, ROOM = 256 };
  static const PlacePool pool[] = {{100000, 1, 2}, {ROOM, 0.25, 0.5}};
  for (int round = 0; round < 20; round++) {
    Scope scope = scope_begin(ctx);
    Segment s[N];
    PlaceBlock block[N];
    PlaceReport r;
    double best = -1;
    for (int i = 0; i < N; i++) {
      s[i] = (Segment){0, 3, 0, 16 * (1 + below(8))};
      block[i] = (PlaceBlock){.number = i, .nsegment = 1, .segment = &s[i], .end = 3, .bytes = s[i].bytes};
      block[i].read = 16 * below(100);
      block[i].written = 16 * below(10);
    }
    for (int set = 0; set < 1 << N; set++) {
      int64_t bytes = 0;
      double cycles = 0;
      for (int i = 0; i < N; i++) {
        const PlacePool *in = &pool[set >> i & 1];
        if (set >> i & 1) bytes += block[i].bytes;
        cycles += block[i].read * in->read + block[i].written * in->write;
      }
      if (bytes <= ROOM && (best < 0 || cycles < best)) best = cycles;
    }
    place_blocks(ctx, N, block, TIMES, 2, pool, PLACE_THOROUGH, &r);
    assert_placed(block, N, 2, pool, &r);
    assert_true(r.cycles <= best);
    scope_end(ctx, scope);
  }
}

/* Three blocks of which each overlaps the next: two at a time fit side by side. */
static void test_a_chain_takes_two(Ctx *ctx)
{
  Segment s[3];
  PlaceBlock block[3];
  PlaceReport r;
  for (int i = 0; i < 3; i++) {
    s[i] = (Segment){i, i + 1, 0, 64};
    block[i] = (PlaceBlock){.number = i, .nsegment = 1, .segment = &s[i], .begin = i, .end = i + 1, .bytes = 64};
  }
  place_blocks(ctx, 3, block, 5, 1, &open_size, PLACE_THOROUGH, &r);
  assert_int_equal(r.bytes, 128);
  assert_int_equal(r.bound, 128);
  assert_int_equal(r.bound_at, 1);
  assert_true(r.optimal);
}

static void with_context(void **unused, void (*body)(Ctx *))
{
  (void)unused;
  Ctx *ctx = ctx_new();
  Scope scope = scope_begin(ctx);
  state = 7;
  body(ctx);
  scope_end(ctx, scope);
  ctx_free(ctx);
}

static void efforts(void **s) { with_context(s, test_efforts); }
static void exact(void **s) { with_context(s, test_exact_search_is_exact); }
static void unreachable(void **s) { with_context(s, test_a_bound_that_cannot_be_reached); }
static void pools(void **s) { with_context(s, test_pools); }
static void speeds(void **s) { with_context(s, test_speeds); }
static void chain(void **s) { with_context(s, test_a_chain_takes_two); }

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(efforts), cmocka_unit_test(exact),  cmocka_unit_test(unreachable),
    cmocka_unit_test(pools),   cmocka_unit_test(speeds), cmocka_unit_test(chain),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
