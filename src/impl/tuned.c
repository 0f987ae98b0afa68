/* tuned.c: plans that were measured, from config->tuned.
 *
 * Lines that somebody else's machine or version may have written, so what is not one of the call's plans here is passed
 * over.  Three forms:
 *   WORKLOAD PLAN            the plan of all calls of that name
 *   WORKLOAD PLAN SECONDS    one of several to choose from, with its measured time; the others are not asked
 *   WORKLOAD PLAN => PLAN    the second where the first would be taken; both lie alike */
#include <stdlib.h>

#include "impl/internal.h"

typedef struct TunedLine {
  const char *plan, *instead; /* NULL: none */
  double seconds;             /* 0: not said */
} TunedLine;

/* The next line for the workload, from *at on; false: there is no more. */
static bool next_line(Arena *arena, const char *workload, const char **at, TunedLine *out)
{
  size_t k = strlen(workload);
  while (**at) {
    const char *line = *at;
    size_t n = strcspn(line, "\n");
    *at += n + (line[n] != 0);
    if (n < k + 2 || strncmp(line, workload, k) || line[k] != ' ') continue;
    char *plan = arena_strndup(arena, line + k + 1, n - k - 1);
    *out = (TunedLine){.plan = plan};
    char *arrow = strstr(plan, " => ");
    if (arrow) {
      *arrow = 0;
      out->instead = arrow + 4;
      return true;
    }
    char *end = strchr(plan, '}');
    if (!end) end = plan + strcspn(plan, " ") - 1;
    if (end[1] == ' ') out->seconds = strtod(end + 2, NULL);
    end[1] = 0;
    return true;
  }
  return false;
}

static const Plan *plan_of_text(const ImplCall *c, const PlanList *list, const char *text)
{
  size_t n = strcspn(text, "{");
  for (int i = 0; i < list->v.n; i++) {
    const Plan *p = &list->v.v[i];
    const char *name = plan_name(p);
    if (!strncmp(name, text, n) && !name[n] && !strcmp(plan_text(c->arena, p), text)) return p;
  }
  return NULL;
}

int plan_tuned(const ImplCall *c, const PlanList *list, Plan **out)
{
  const char *at = c->config->tuned;
  Vec(Plan) found = {0};
  TunedLine line;
  if (!at) return 0;
  const char *workload = plan_workload(c->m->ctx, c->arena, c->target, c->call);
  while (next_line(c->arena, workload, &at, &line)) {
    const Plan *p = line.instead ? NULL : plan_of_text(c, list, line.plan);
    if (!p) continue;
    vec_push(c->arena, &found, *p);
    if (line.seconds > 0) found.v[found.n - 1].seconds = line.seconds;
  }
  *out = found.v;
  return found.n;
}

Plan impl_tuned(const ImplCall *c, const Plan *taken)
{
  const char *at = c->config->tuned;
  TunedLine line;
  if (!at) return *taken;
  const char *workload = plan_workload(c->m->ctx, c->arena, c->target, c->call);
  const char *text = plan_text(c->arena, taken);
  while (next_line(c->arena, workload, &at, &line)) {
    if (!line.instead || strcmp(line.plan, text)) continue;
    PlanList list;
    plan_all(c, &list);
    const Plan *p = plan_of_text(c, &list, line.instead);
    bool alike =
        p && p->alters == taken->alters && p->data_block == taken->data_block && p->out_block == taken->out_block;
    if (alike) return *p;
  }
  return *taken;
}
