/* passes.h: the functions behind passes.def and their tables of options.  Private to this folder. */
#ifndef LATHE_PASS_PASSES_H
#define LATHE_PASS_PASSES_H

#include "pass/pass.h"

#define FUNCTION_PASS(fn, id, level, opts, text) \
  const Node *fn(PassContext *, Module *, const Node *, const char *, void *env);
#define MODULE_PASS(fn, id, level, opts, text) void fn(PassContext *, Module *, void *env);
#include "pass/passes.def"
#undef FUNCTION_PASS
#undef MODULE_PASS

enum {
  no_options_count = 0,
  pass_dead_code_options_count = 1,
  pass_convert_layout_options_count = 1,
  pass_fuse_ops_options_count = 1,
  pass_combine_options_count = 1,
  pass_patch_rows_options_count = 2,
  pass_mixed_precision_options_count = 2,
  pass_remove_unused_options_count = 1,
  pass_fake_quantization_options_count = 2,
  pass_plan_devices_options_count = 1,
  pass_annotate_target_options_count = 2,
  pass_partition_options_count = 2
};
extern const PassOption pass_dead_code_options[], pass_convert_layout_options[], pass_fuse_ops_options[],
    pass_combine_options[], pass_patch_rows_options[], pass_mixed_precision_options[], pass_remove_unused_options[],
    pass_fake_quantization_options[], pass_plan_devices_options[], pass_annotate_target_options[],
    pass_partition_options[];

/* mixed_precision.c: to float16 where that is faster; outputs keep their dtypes. */
const Node *pass_mixed_precision_fast(PassContext *, Module *, const Node *f);

/* choose_plans.c: the plans of the calls among the nodes that have a choice, node -> const Plan *. */
void pass_choose_plans(PassContext *, Module *, DevicePlan *, int n, const Node *const *node, Arena *, Map *out);

/* context.c */
void pass_option_check(Ctx *, const char *pass, const PassOption *, const char *value);

#endif
