/* dots.c: tensor intrinsics that every schedule knows: dot products of words of bytes.
 *
 *   dot_16x4_uint8_int8:  C[i] += sum over k < 4 of int32(A[k]) * int32(B[i, k]), i < 16
 *
 * What is emitted is T.dot over vectors of lanes, which lowering makes the target's instruction of where it has one.
 * One is made when a trace first names it. */
#include "schedule/engine.h"

#include <stdlib.h>

enum { WORD = 4, MOST_LANES = 64 };

const char *sched_dot_name(Arena *a, int lanes, DType data, DType weight)
{
  return arena_printf(a, "dot_%dx%d_%s_%s", lanes, WORD, dtype_name(a, data), dtype_name(a, weight));
}

static const char head[] = "@T.prim_func\n"
                           "def dot(a: T.handle, b: T.handle, c: T.handle):\n"
                           "    A = T.match_buffer(a, (4,), \"%s\", offset_factor=1)\n"
                           "    B = T.match_buffer(b, (%d, 4), \"%s\", offset_factor=1)\n"
                           "    C = T.match_buffer(c, (%d,), \"int32\", offset_factor=1)\n"
                           "    with T.block(\"root\"):\n"
                           "        T.reads(C[0:%d], A[0:4], B[0:%d, 0:4])\n"
                           "        T.writes(C[0:%d])\n"
                           "%s";
static const char what[] = "        for i, k in T.grid(%d, 4):\n"
                           "            with T.block(\"update\"):\n"
                           "                vi, vk = T.axis.remap(\"SR\", [i, k])\n"
                           "                C[vi] = C[vi] + T.cast(A[vk], \"int32\") * T.cast(B[vi, vk], \"int32\")\n";
static const char how[] =
    "        for i in T.vectorized(%d):\n"
    "            C[i] = C[i] + T.dot(A[0], A[1], A[2], A[3], B[i, 0], B[i, 1], B[i, 2], B[i, 3])\n";

static const PrimFunc *parse_form(Sched *s, int n, const char *a, const char *b, const char *body)
{
  Arena *tmp = scratch(s->ctx);
  const char *text = arena_printf(tmp, head, a, n, b, n, n, n, n, body);
  return func_parse(s->m, text, "dot", 1, 0, NULL);
}

static const char *byte_type(const char *name, size_t n)
{
  static const char *const types[] = {"int8", "uint8"};
  for (int i = 0; i < 2; i++)
    if (strlen(types[i]) == n && !strncmp(types[i], name, n)) return types[i];
  return NULL;
}

const TensorIntrin *sched_dot_find(Sched *s, const char *name)
{
  static const char start[] = "dot_";
  static const char group[] = "x4_";
  if (strncmp(name, start, sizeof start - 1)) return NULL;
  char *p;
  long lanes = strtol(name + sizeof start - 1, &p, 10);
  if (lanes < 1 || lanes > MOST_LANES || strncmp(p, group, sizeof group - 1)) return NULL;
  p += sizeof group - 1;
  size_t n = strcspn(p, "_");
  const char *a = byte_type(p, n);
  const char *b = p[n] ? byte_type(p + n + 1, strlen(p + n + 1)) : NULL;
  if (!a || !b) return NULL;
  Scope scope = scope_begin(s->ctx);
  TensorIntrin *t = arena_new_of(s->m->arena, TensorIntrin);
  t->name = arena_strdup(s->m->arena, name);
  t->desc = parse_form(s, (int)lanes, a, b, arena_printf(scratch(s->ctx), what, (int)lanes));
  t->impl = parse_form(s, (int)lanes, a, b, arena_printf(scratch(s->ctx), how, (int)lanes));
  scope_end(s->ctx, scope);
  return t;
}
