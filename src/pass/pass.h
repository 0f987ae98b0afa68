/* pass.h: graph → graph.
 *
 * A pass reads old functions and emits new ones; nodes are never changed.  Passes
 * are rows of passes.def: name, level, what it works on, a line of doc, the function.  A
 * PassContext says which run and how; pipeline.c holds the default order.
 *
 * A pass works on a Module in place: it replaces the module's functions by new ones
 * (the old nodes stay valid).  Who wants the old module kept copies it first
 * (graph_copy_module).  A pass that raises leaves the module as it was. */
#ifndef LATHE_PASS_H
#define LATHE_PASS_H

#include "build/build.h"
#include "impl/impl.h"

typedef struct Pass Pass;
typedef struct PassContext PassContext;
typedef enum { PASS_MODULE, PASS_FUNCTION, PASS_SEQUENTIAL } PassScope;

/* An option of a pass's constructor, FuseOps(fuse_opt_level=2), or a key of the context's config. */
typedef struct PassOption {
  enum { PO_BOOL, PO_INT, PO_FLOAT, PO_STR, PO_STRS /* a, b, c */ } kind;
  const char *name;
  const char *def; /* default as text */
  const char *doc;
} PassOption;

struct Pass {
  const char *name; /* "FuseOps" */
  const char *doc;
  PassScope scope;
  int opt_level;
  int nrequired;
  const char *const *required;
  /* One of these by scope.  env: a user's own; of a built-in pass NULL or the texts of
   * its options in order (pass_make). */
  const Node *(*function)(PassContext *, Module *, const Node *func, const char *name, void *env);
  void (*module)(PassContext *, Module *, void *env);
  int npasses;
  const Pass *const *passes;
  int noptions;
  const PassOption *options;
  void *env;
};

/* ---- context.c, manager.c ------------------------------------------------------------------------- */

typedef struct PassInstrument {
  const char *name;
  void *env;
  bool (*should_run)(void *env, Module *, const Pass *); /* NULL: yes */
  void (*before)(void *env, Module *, const Pass *);
  void (*after)(void *env, Module *, const Pass *);
} PassInstrument;

/* A pass of the user's own in the default pipeline, behind the first pass of a name. */
typedef struct AddedPass {
  const Pass *pass;
  const char *after;
} AddedPass;

typedef Vec(const Target *) Targets;

/* What external compilers take (composite.c).  May this node, the call of an operator or the last of a match, go
 * there? */
typedef bool (*PassPredicate)(void *env, Module *, const Node *);
/* A pattern of a table, in the order in which they are tried: MergeComposite.  check NULL: every match counts. */
typedef struct CompositeRow {
  const char *name; /* "dnnl.conv2d_relu" */
  const struct DfPat *pattern;
  PassPredicate check;
  void *env;
} CompositeRow;
/* An operator that a compiler takes where the predicate agrees: AnnotateTarget. */
typedef struct OffloadRow {
  const char *compiler, *op;
  PassPredicate takes;
  void *env;
} OffloadRow;

struct PassContext {
  Ctx *ctx;
  Arena *arena;
  int opt_level;        /* 2 unless set */
  const Target *target; /* may be NULL: then passes that need one use the host */
  const Target *host;   /* of pass_target, once it was asked for without one */
  /* Of a model for several: all of them, as they were given; `target` is then what unplaced nodes take. */
  Targets targets;
  ImplConfig impl;
  int nentries;               /* functions that are called from outside, of this compilation … */
  const char *const *entries; /* … none: @main */
  bool lift_weights;          /* weights stay as they are: LiftWeights */
  Vec(const char *) required, disabled;
  StrMap config; /* key -> text of the value */
  Vec(PassInstrument) instruments;
  Vec(AddedPass) added;
  Vec(CompositeRow) composites;
  Vec(OffloadRow) offloads;
  Vec(const char *) notes; /* sentences for the user: "config 'x' changes nothing yet" */
  void *timing;            /* of pass_time */
};
PassContext *pass_context_new(Ctx *);
void pass_context_free(PassContext *);
/* Raises for an unknown key (with the nearest) and for a value of the wrong type. */
void pass_config_set(PassContext *, const char *key, const char *value);
int64_t pass_config_int(PassContext *, const char *key); /* bool too; the default when not set */
const char *pass_config_str(PassContext *, const char *key);
int pass_config_count(void); /* known keys, for listings */
const PassOption *pass_config_at(int);
void pass_disable(PassContext *, const char *name); /* raises for an unknown pass */
void pass_require(PassContext *, const char *name);
/* Does it run inside a sequential?  Disabled: no; required: yes; else by its level. */
bool pass_enabled(const PassContext *, const Pass *);
/* The context's target, or the host. */
const Target *pass_target(PassContext *);
/* A built-in instrument: seconds per pass. */
void pass_time(PassContext *);
const char *pass_time_text(PassContext *, Arena *);

/* ---- manager.c, context.c -------------------------------------------------------------------------- */

const Pass *pass_find(const char *name);       /* built-in ones; NULL if absent */
const Pass *pass_get(Ctx *, const char *name); /* raises with the nearest name */
int pass_count(void);
const Pass *pass_at(int);
/* The built-in pass with its options set: {"fuse_opt_level", "2"}, … */
const Pass *pass_make(Arena *, Ctx *, const char *name, int n, const char *const (*options)[2]);
const Pass *pass_sequential(Arena *, const char *name, int opt_level, int n, const Pass *const *);
/* Runs it unless the context's level, disabled passes or an instrument say no (inside a
 * sequential; a pass run by itself always runs). */
void pass_run(PassContext *, const Pass *, Module *);
/* Makes the name of a user's pass known, so that it can be disabled and required. */
void pass_declare(Ctx *, const char *name);
/* The text of option i of a built-in pass whose env this is. */
const char *pass_option(const void *env, const PassOption *table, int i);
int64_t pass_option_int(const void *env, const PassOption *table, int i); /* bool too */

/* ---- pipeline.c --------------------------------------------------------------------------- */

/* What relay.build does before lowering: the default passes of the context's level, in order. */
void pass_pipeline(PassContext *, Module *);
/* Puts a user's pass (kept, not copied) behind the first pass `after` of the pipeline; raises if that
 * is not in it. */
void pass_add(PassContext *, const Pass *, const char *after);
/* The names in order, those that the context leaves out too. */
const char *const *pass_pipeline_names(int *n);

/* ---- devices.c: where nodes are computed --------------------------------------------------------- */

/* A device that one of the targets serves.  Targets of one device type are its numbers 0, 1, … in their order. */
typedef struct VirtualDevice {
  const Target *target;
  int type, id;
} VirtualDevice;
/* All of them; the first is the host, a CPU: shapes, conditions and what the executor does itself are there. */
typedef struct DeviceList {
  int n;
  const VirtualDevice *v;
  int fallback; /* where nodes are that nothing says anything about */
} DeviceList;
const DeviceList *pass_devices(PassContext *, Arena *);
const char *pass_device_text(Arena *, const DeviceList *, int device); /* "cpu(1)" */

/* Which device each node of the module's functions is on.  After PlanDevices nodes of different devices meet in
 * device_copy alone. */
typedef struct DevicePlan DevicePlan;
DevicePlan *pass_device_plan(Arena *, Module *, const DeviceList *);
/* A number of the list; of a function where its result is.  -1: a function as a value, or a constant, which kernels
 * have on their own device.  A node that the plan did not see is on the host. */
int pass_device_of(DevicePlan *, const Node *);
/* Where a pass looks at one node after the other: NULL when the context has one target … */
DevicePlan *pass_plan_targets(PassContext *, Module *, Arena *);
/* … which is then the target of every node; else that of the node's device. */
const Target *pass_target_of(PassContext *, DevicePlan *, const Node *);

/* ---- patch_rows.c ---------------------------------------------------------------------------------- */

/* A way to compute the first layers of a function in bands of rows: the bytes that are there at the worst moment of
 * them, by the sizes of the tensors between the layers, and the bytes that are computed altogether, some of them
 * twice. */
typedef struct PatchChoice {
  int64_t layers, patches;
  double bytes, work;
} PatchChoice;
/* Those that need the fewest bytes, fewest first; their number.  f has types. */
int pass_patch_choices(Module *, const Node *f, int most, PatchChoice *out);

/* ---- bind.c ---------------------------------------------------------------------------------------- */

/* f with the parameters of these names replaced by the values, which are constants.  Raises for a
 * name that is no parameter, and for a value whose type does not fit. */
const Node *pass_bind_params(Module *, const Node *f, int n, const char *const *name, const Node *const *value);

#endif
