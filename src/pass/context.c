/* context.c: PassContext: which passes run, and how.
 *
 * Config keys are rows of one table; a key that no row has is refused with the nearest
 * one.  Rows marked `idle` are accepted for the sake of programs that set them, and
 * leave a note that they change nothing yet; rows with a `refused` sentence are known
 * and cannot be served. */
#include "pass/passes.h"
#include "pass/tools.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct ConfigKey {
  PassOption option;
  bool idle;
  const char *refused;
} ConfigKey;

static const ConfigKey keys[] = {
  {{PO_INT, "relay.FuseOps.max_depth", "256", "most operators in one fused group"}, false, NULL},
  {{PO_BOOL, "relay.FuseOps.link_params", "false", "constants stay inside the fused functions"}, false, NULL},
  {{PO_BOOL, "relay.ToMixedPrecision.keep_orig_output_dtype", "false", "outputs are cast back to the dtype they had"},
   false,
   NULL},
  {{PO_INT, "relay.PatchRows.layers", "1", "convolutions and pools from the input on that are computed in bands"},
   false,
   NULL},
  {{PO_INT, "relay.PatchRows.patches", "0", "bands of rows that the first layers are computed in; 0: none"},
   false,
   NULL},
  {{PO_BOOL, "lathe.impl.no_winograd", "false", "convolutions by direct algorithms only"}, false, NULL},
  {{PO_STR, "lathe.plans", "", "plans given by hand: lines of a workload's name and its plan"}, false, NULL},
  {{PO_STR, "lathe.tuned", "", "plans that were measured, as a database has them; what does not fit is passed over"},
   false,
   NULL},
  {{PO_STR, "lathe.tuned.database", "", "a file that 'lathe tune' made: what it has for the model is used"},
   false,
   NULL},
  {{PO_BOOL, "lathe.plans.log", "false", "keep what was chosen from what, for 'lathe inspect --plans'"}, false, NULL},
  {{PO_STR, "lathe.fast_math", "none",
    "reduced precision: none, bf16 (products of bfloat16, sums in float32) or fp16 (float16 arithmetic)"},
   false,
   NULL},
  {{PO_INT, "relay.FoldConstant.max_bytes", "1073741824", "constants that would become larger stay computed"},
   false,
   NULL},
  {{PO_BOOL, "relay.FoldConstant.fold_qnn", "true", "fold quantized operators too"}, true, NULL},
  {{PO_INT, "relay.fallback_device_type", "1", "device type, as DLPack counts, of nodes that nothing places"},
   false,
   NULL},
  {{PO_BOOL, "relay.backend.use_auto_scheduler", "false", "schedules found by search"}, true, NULL},
  {{PO_BOOL, "relay.backend.use_meta_schedule", "false", "schedules found by search"}, true, NULL},
  {{PO_BOOL, "relay.backend.use_meta_schedule_dispatch", "false", "schedules from the database first"}, true, NULL},
  {{PO_STR, "relay.backend.tir_converter", "default", "how operators become tir"}, true, NULL},
  {{PO_BOOL, "relay.remove_standalone_reshapes.enable", "true", "lone reshapes cost nothing"}, true, NULL},
  {{PO_BOOL, "relay.frontend.fill_span", "false", "keep the names of the source model's nodes"}, true, NULL},
  {{PO_BOOL, "tir.disable_vectorize", "false", "vector loops become plain ones"}, false, NULL},
  {{PO_INT, "tir.UnrollLoop.auto_max_step", "0", "loops of at most so many steps are unrolled"}, true, NULL},
  {{PO_BOOL, "tir.disable_assert", "false", "leave assertions out"}, true, NULL},
  {{PO_BOOL, "tir.disable_storage_rewrite", "false", "allocate each buffer by itself"}, true, NULL},
  {{PO_BOOL, "tir.noalias", "true", "arguments of kernels do not overlap"}, true, NULL},
  {{PO_BOOL, "tir.is_entry_func", "false", "mark the entry function"}, true, NULL},
  {{PO_BOOL, "tir.instrument_bound_checkers", "false", "check every access"}, true, NULL},
  {{PO_BOOL, "tir.detect_global_barrier", "true", "find barriers over a grid"}, true, NULL},
  {{PO_BOOL, "tir.merge_static_smem", "false", "one shared allocation per kernel"}, true, NULL},
  {{PO_BOOL, "tir.usmp.enable", "false", "plan memory over the whole program"}, true, NULL},
  {{PO_STR, "tir.add_lower_pass", "", "own passes while lowering"},
   false,
   "passes cannot be added to the lowering of kernels; schedule the function and annotate it instead"},
  {{PO_STR, "relay.backend.disable_compile_engine_cache", "", "no cache of compiled functions"}, true, NULL},
};
enum { NKEYS = sizeof keys / sizeof *keys };

int pass_config_count(void) { return NKEYS; }
const PassOption *pass_config_at(int i) { return i >= 0 && i < NKEYS ? &keys[i].option : NULL; }

PassContext *pass_context_new(Ctx *ctx)
{
  Arena *arena = arena_new(ctx);
  PassContext *pc = arena_new_of(arena, PassContext);
  pc->ctx = ctx;
  pc->arena = arena;
  pc->opt_level = 2;
  return pc;
}

void pass_context_free(PassContext *pc)
{
  if (pc) arena_free(pc->arena);
}

/* ---- config ---------------------------------------------------------------------------- */

static const ConfigKey *find_key(Ctx *ctx, const char *key)
{
  const char *names[NKEYS];
  for (int i = 0; i < NKEYS; i++) {
    if (!strcmp(keys[i].option.name, key)) return &keys[i];
    names[i] = keys[i].option.name;
  }
  const char *near = str_nearest(key, names, NKEYS);
  raise(ctx, ERR_ARGUMENT, NOWHERE, "there is no config key '%s'%s%s%s'lathe opt --list' shows all", key,
        near ? "; did you mean '" : "; ", near ? near : "", near ? "'? " : "");
}

static bool parse_bool(const char *s, bool *out)
{
  static const char *const yes[] = {"true", "True", "1"};
  static const char *const no[] = {"false", "False", "0"};
  for (int i = 0; i < 3; i++) {
    if (!strcmp(s, yes[i])) return *out = true, true;
    if (!strcmp(s, no[i])) return *out = false, true;
  }
  return false;
}

static bool value_fits(const PassOption *o, const char *s)
{
  bool b;
  char *end;
  switch (o->kind) {
  case PO_BOOL: return parse_bool(s, &b);
  case PO_INT: return strtoll(s, &end, 10), *s && !*end;
  case PO_FLOAT: return strtod(s, &end), *s && !*end;
  case PO_STR:
  case PO_STRS: return true;
  }
  return false;
}

static const char *kind_name(const PassOption *o)
{
  switch (o->kind) {
  case PO_BOOL: return "true or false";
  case PO_INT: return "an integer";
  case PO_FLOAT: return "a number";
  case PO_STR: return "a text";
  case PO_STRS: return "a list of texts";
  }
  return "";
}

static FastMath fast_math_of(Ctx *ctx, const char *value)
{
  static const char *const names[] = {[FAST_NONE] = "none", [FAST_BF16] = "bf16", [FAST_FP16] = "fp16"};
  for (int i = FAST_NONE; i <= FAST_FP16; i++)
    if (!strcmp(value, names[i])) return (FastMath)i;
  raise(ctx, ERR_ARGUMENT, NOWHERE, "config 'lathe.fast_math' takes none, bf16 or fp16, not '%s'", value);
}

void pass_config_set(PassContext *pc, const char *key, const char *value)
{
  const ConfigKey *k = find_key(pc->ctx, key);
  if (k->refused) raise(pc->ctx, ERR_UNSUPPORTED, NOWHERE, "config '%s': %s", key, k->refused);
  if (!value_fits(&k->option, value))
    raise(pc->ctx, ERR_ARGUMENT, NOWHERE, "config '%s' takes %s, not '%s'", key, kind_name(&k->option), value);
  if (!strcmp(key, "lathe.fast_math")) pc->impl.fast_math = fast_math_of(pc->ctx, value);
  strmap_put(pc->arena, &pc->config, key, arena_strdup(pc->arena, value));
  if (k->idle)
    vec_push(pc->arena, &pc->notes, arena_printf(pc->arena, "config '%s' is accepted and changes nothing yet", key));
  if (!strcmp(key, "lathe.plans")) plan_check_lines(pc->ctx, pc->impl.plans = pass_config_str(pc, key));
  if (!strcmp(key, "lathe.tuned")) pc->impl.tuned = pass_config_str(pc, key);
  if (!strcmp(key, "lathe.impl.no_winograd")) pc->impl.no_winograd = pass_config_int(pc, key);
}

const char *pass_config_str(PassContext *pc, const char *key)
{
  const ConfigKey *k = find_key(pc->ctx, key);
  const char *v = strmap_get(&pc->config, key);
  return v ? v : k->option.def;
}

static int64_t text_int(const char *s)
{
  bool b;
  return parse_bool(s, &b) && strlen(s) > 1 ? b : strtoll(s, NULL, 10);
}

int64_t pass_config_int(PassContext *pc, const char *key) { return text_int(pass_config_str(pc, key)); }

/* ---- options of one pass ---------------------------------------------------------------- */

const char *pass_option(const void *env, const PassOption *table, int i)
{
  const char *const *v = env;
  return v ? v[i] : table[i].def;
}

int64_t pass_option_int(const void *env, const PassOption *table, int i)
{
  return text_int(pass_option(env, table, i));
}

void pass_option_check(Ctx *ctx, const char *pass, const PassOption *o, const char *value)
{
  if (!value_fits(o, value))
    raise(ctx, ERR_ARGUMENT, NOWHERE, "%s: option '%s' takes %s, not '%s'", pass, o->name, kind_name(o), value);
}

const Target *pass_target(PassContext *pc)
{
  if (!pc->target && !pc->host) pc->host = target_host(pc->ctx);
  return pc->target ? pc->target : pc->host;
}

/* ---- instruments -------------------------------------------------------------------------------- */

typedef struct Timing {
  PassContext *pc;
  double start[64];
  int depth;
  Vec(const char *) name;
  Vec(int) level;
  Vec(double) seconds;
  int open[64];
} Timing;

static void time_before(void *env, Module *m, const Pass *p)
{
  Timing *t = env;
  (void)m;
  if (t->depth >= 64)
    raise(t->pc->ctx, ERR_UNSUPPORTED, NOWHERE, "passes are nested more than 64 deep at '%s'", p->name);
  t->open[t->depth] = t->name.n;
  vec_push(t->pc->arena, &t->name, arena_strdup(t->pc->arena, p->name));
  vec_push(t->pc->arena, &t->level, t->depth);
  vec_push(t->pc->arena, &t->seconds, 0.0);
  t->start[t->depth++] = clock_seconds();
}

static void time_after(void *env, Module *m, const Pass *p)
{
  Timing *t = env;
  (void)m, (void)p;
  t->depth--;
  t->seconds.v[t->open[t->depth]] = clock_seconds() - t->start[t->depth];
}

void pass_time(PassContext *pc)
{
  if (pc->timing) return;
  Timing *t = arena_new_of(pc->arena, Timing);
  t->pc = pc;
  pc->timing = t;
  vec_push(pc->arena, &pc->instruments,
           (PassInstrument){.name = "timing", .env = t, .before = time_before, .after = time_after});
}

const char *pass_time_text(PassContext *pc, Arena *arena)
{
  Text out = text_new(arena);
  Timing *t = pc->timing;
  for (int i = 0; t && i < t->name.n; i++) {
    text_indent(&out, 2 * t->level.v[i]);
    text_printf(&out, "%-*s %9.3f ms\n", 36 - 2 * t->level.v[i], t->name.v[i], 1e3 * t->seconds.v[i]);
  }
  return text_str(&out);
}
