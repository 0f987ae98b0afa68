/* kit_report.c: what a file uses, and what of it has no converter, before anything is converted. */
#include <stdlib.h>

#include "frontend/kit.h"

const char *kit_survey_use(Survey *s, const char *op)
{
  Import *im = s->im;
  ImportCount *count = strmap_get(&s->count, op);
  if (!count) {
    count = arena_new_of(im->arena, ImportCount);
    count->op = arena_strdup(im->m->arena, op);
    strmap_put(im->arena, &s->count, op, count);
    vec_push(im->arena, &s->ops, count);
  }
  count->n++;
  return count->op;
}

void kit_survey_problem(Survey *s, const char *op, const char *node, const char *why)
{
  Arena *a = s->im->m->arena;
  vec_push(a, &s->problems, (ImportProblem){op, arena_strdup(a, node), why});
}

static int by_use(const void *x, const void *y)
{
  const ImportCount *a = x;
  const ImportCount *b = y;
  return a->n != b->n ? (a->n < b->n) - (a->n > b->n) : strcmp(a->op, b->op);
}

static void raise_problems(Import *im, const Survey *s)
{
  if (s->problems.n == 1) {
    const ImportProblem *p = &s->problems.v[0];
    raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "%s: operator '%s' (node '%s') is %s; '%s' lists what is supported",
          im->format, p->op, p->node, p->why, im->listing);
  }
  Text t = text_new(im->arena);
  text_printf(&t, "%s: %d nodes have operators that are not supported; '%s' lists what is:", im->format, s->problems.n,
              im->listing);
  for (int i = 0; i < s->problems.n && i < 64; i++)
    text_printf(&t, "\n  %s (node '%s'): %s", s->problems.v[i].op, s->problems.v[i].node, s->problems.v[i].why);
  if (s->problems.n > 64) text_printf(&t, "\n  and %d more", s->problems.n - 64);
  raise(im->ctx, ERR_UNSUPPORTED, NOWHERE, "%s", text_str(&t));
}

void kit_survey_end(Survey *s)
{
  Import *im = s->im;
  if (im->report) {
    ImportReport *r = im->report;
    r->nops = s->ops.n;
    r->ops = arena_array(im->m->arena, ImportCount, s->ops.n + 1);
    for (int i = 0; i < s->ops.n; i++) r->ops[i] = *s->ops.v[i];
    qsort(r->ops, (size_t)s->ops.n, sizeof *r->ops, by_use);
    r->nproblems = s->problems.n;
    r->problems = s->problems.v;
  }
  if (s->problems.n) raise_problems(im, s);
}
