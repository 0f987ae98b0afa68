/* likely.c: what sizes that are known only at run time are taken to be, where a choice depends on them.
 *
 * Code that serves every size is chosen by how fast it is for a likely one.  A size is an expression of the model's own
 * variables, (h - 1) // 2 + 1 behind a convolution of stride 2, so that with one value for the variables all sizes of
 * a network go together: 224 of an image are 7 in a ResNet's last layers. */
#include "impl/internal.h"

static bool is_binary(const Expr *e) { return e->nargs == 2 && e->kind >= E_ADD && e->kind <= E_MAX; }

/* What is neither arithmetic nor a number stands for a variable. */
static int64_t value_of(const Expr *e, int64_t variable)
{
  Value v;
  if (e->kind == E_INT) return e->u.i;
  if (e->kind == E_CAST) return value_of(e->arg[0], variable);
  if (!is_binary(e)) return variable;
  Value a = value_int(DT_I64, value_of(e->arg[0], variable));
  Value b = value_int(DT_I64, value_of(e->arg[1], variable));
  return expr_eval_binary(e->kind, a, b, &v) ? v.i : variable;
}

int64_t likely_size(const Expr *e, int dims)
{
  static const int64_t variable[] = {128, 16000, 224, 64}; /* words of a text; a signal, an image, a volume */
  int64_t v = value_of(e, variable[dims]);
  return v > 0 ? v : 1;
}
