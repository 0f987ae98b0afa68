/* containers.c: growable arrays and hash maps in arenas.
 *
 * Maps keep their entries in insertion order and find them through a table of
 * slots (entry number + 1, 0 for free), so that walking a map is deterministic. */
#include "base/internal.h"

void *vec_grow(Arena *arena, void *old, int *cap, int n, size_t size)
{
  int grown = *cap ? *cap * 2 : 8;
  void *v = arena_alloc_array(arena, (size_t)grown, size);
  if (n) memcpy(v, old, (size_t)n * size);
  *cap = grown;
  return v;
}

uint64_t hash_mix(uint64_t h, uint64_t x)
{
  h ^= x + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdu;
  return h ^ (h >> 32);
}

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
  const unsigned char *b = p;
  uint64_t h = seed ^ (n * 0x9e3779b97f4a7c15u);
  for (; n >= 8; n -= 8, b += 8) {
    uint64_t x;
    memcpy(&x, b, 8);
    h = hash_mix(h, x);
  }
  uint64_t x = 0;
  if (n) memcpy(&x, b, n);
  return hash_mix(h, x);
}

static uint32_t *find_slot(const Map *map, uint64_t key)
{
  uint32_t mask = map->nslot - 1;
  uint32_t i = (uint32_t)hash_mix(0, key) & mask;
  while (map->slot[i] && map->key[map->slot[i] - 1] != key) i = (i + 1) & mask;
  return &map->slot[i];
}

static void map_rehash(Arena *arena, Map *map)
{
  uint32_t nslot = map->nslot ? map->nslot * 2 : 16;
  map->slot = arena_array(arena, uint32_t, nslot);
  map->nslot = nslot; /* after the allocation: it may fail */
  for (int i = 0; i < map->n; i++)
    if (map->key[i]) *find_slot(map, map->key[i]) = (uint32_t)i + 1;
}

static int map_find(const Map *map, const void *key)
{
  if (!map->nslot) return -1;
  uint32_t slot = *find_slot(map, (uint64_t)(uintptr_t)key);
  return slot ? (int)slot - 1 : -1;
}

void *map_get(const Map *map, const void *key)
{
  int i = map_find(map, key);
  return i < 0 ? NULL : map->val[i];
}

bool map_has(const Map *map, const void *key) { return map_find(map, key) >= 0; }

void map_put(Arena *arena, Map *map, const void *key, void *val)
{
  int i = map_find(map, key);
  if (i >= 0) {
    map->val[i] = val;
    return;
  }
  if ((uint32_t)(map->n + 1) * 2 > map->nslot) map_rehash(arena, map);
  if (map->n == map->cap) {
    int cap = map->cap;
    int vcap = map->cap;
    map->key = vec_grow(arena, map->key, &cap, map->n, sizeof *map->key);
    map->val = vec_grow(arena, map->val, &vcap, map->n, sizeof *map->val);
    map->cap = cap;
  }
  map->key[map->n] = (uint64_t)(uintptr_t)key;
  map->val[map->n++] = val;
  *find_slot(map, (uint64_t)(uintptr_t)key) = (uint32_t)map->n;
}

/* The slot stays taken (its key becomes 0), so that probing goes on past it. */
void map_del(Map *map, const void *key)
{
  int i = map_find(map, key);
  if (i < 0) return;
  map->key[i] = 0;
  map->val[i] = NULL;
}

static uint32_t *str_slot(const StrMap *map, const char *key)
{
  uint32_t mask = map->nslot - 1;
  uint32_t i = (uint32_t)hash_bytes(key, strlen(key), 1) & mask;
  while (map->slot[i] && strcmp(map->key[map->slot[i] - 1], key)) i = (i + 1) & mask;
  return &map->slot[i];
}

void *strmap_get(const StrMap *map, const char *key)
{
  if (!map->nslot) return NULL;
  uint32_t slot = *str_slot(map, key);
  return slot ? map->val[slot - 1] : NULL;
}

void strmap_put(Arena *arena, StrMap *map, const char *key, void *val)
{
  if ((uint32_t)(map->n + 1) * 2 > map->nslot) {
    uint32_t nslot = map->nslot ? map->nslot * 2 : 16;
    map->slot = arena_array(arena, uint32_t, nslot);
    map->nslot = nslot;
    for (int i = 0; i < map->n; i++) *str_slot(map, map->key[i]) = (uint32_t)i + 1;
  }
  uint32_t *slot = str_slot(map, key);
  if (*slot) {
    map->val[*slot - 1] = val;
    return;
  }
  if (map->n == map->cap) {
    int cap = map->cap;
    int vcap = map->cap;
    map->key = vec_grow(arena, map->key, &cap, map->n, sizeof *map->key);
    map->val = vec_grow(arena, map->val, &vcap, map->n, sizeof *map->val);
    map->cap = cap;
  }
  map->key[map->n] = arena_strdup(arena, key);
  map->val[map->n++] = val;
  *str_slot(map, key) = (uint32_t)map->n;
}

uint64_t ctx_string(Ctx *ctx, const char *s, size_t n)
{
  const void *key = (void *)(uintptr_t)(hash_bytes(s, n, 7) | 1);
  int first = (int)(intptr_t)map_get(&ctx->string_by_hash, key);
  for (int i = first; i; i = ctx->strings.v[i - 1].next)
    if (ctx->strings.v[i - 1].n == n && (!n || !memcmp(ctx->strings.v[i - 1].s, s, n))) return (uint64_t)(i - 1);
  Numbered made = {.s = arena_strndup(&ctx->permanent, n ? s : "", n), .n = n, .next = first};
  vec_push(&ctx->permanent, &ctx->strings, made);
  map_put(&ctx->permanent, &ctx->string_by_hash, key, (void *)(intptr_t)ctx->strings.n);
  return (uint64_t)(ctx->strings.n - 1);
}

const char *ctx_string_at(Ctx *ctx, uint64_t number, size_t *n)
{
  if (number >= (uint64_t)ctx->strings.n) return NULL;
  *n = ctx->strings.v[number].n;
  return ctx->strings.v[number].s;
}
