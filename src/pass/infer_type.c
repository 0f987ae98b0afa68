/* infer_type.c: InferType: every node gets its type; what does not fit raises. */
#include "pass/passes.h"

const Node *pass_infer_type(PassContext *pc, Module *m, const Node *f, const char *name, void *env)
{
  (void)pc, (void)name, (void)env;
  return graph_infer(m, f);
}
