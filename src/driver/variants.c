/* variants.c: one model compiled for several CPUs of one architecture.
 *
 * In: a module, a target and the CPUs.  Out: a Compiled for the least demanding one, which holds the others, the most
 * demanding first.  Each is what its CPU alone would have got, with a program and kernels of its own; constants of the
 * same bytes lie in the file once. */
#include <sys/stat.h>

#include "driver/compiled.h"

/* ---- which CPUs ------------------------------------------------------------------------------ */

typedef struct Variant {
  const char *name;
  const Target *target;
} Variant;

/* How much a target asks of the CPU: one that has everything that another has, and more, asks for more. */
static int demands(const Target *t)
{
  int n = 0;
  for (int f = 0; f < CPU_NFEATURES; f++) n += target_has(t, (CpuFeature)f);
  for (const char *p = t->attrs; *p; p++) n += *p == '+';
  return n;
}

static Variant *read_variants(Ctx *ctx, const Target *base, int n, const char *const *name)
{
  if (n > MAX_VARIANTS)
    raise(ctx, ERR_ARGUMENT, NOWHERE, "%d variants in one file; there is room for %d", n, MAX_VARIANTS);
  Variant *v = arena_array(scratch(ctx), Variant, n);
  for (int i = 0; i < n; i++) {
    Variant one = {name[i], target_variant(ctx, base, name[i])};
    for (int k = 0; k < i; k++) {
      const Target *other = v[k].target;
      if (other->arch != one.target->arch)
        raise(ctx, ERR_UNSUPPORTED, NOWHERE, "variants '%s' and '%s' are for different machines (%s and %s)", v[k].name,
              one.name, target_arch_name(other->arch), target_arch_name(one.target->arch));
      if (other->features == one.target->features && !strcmp(other->attrs, one.target->attrs))
        raise(ctx, ERR_ARGUMENT, NOWHERE,
              "variants '%s' and '%s' ask the same features of the CPU: nothing could choose between them", v[k].name,
              one.name);
    }
    int at = i;
    for (; at > 0 && demands(v[at - 1].target) < demands(one.target); at--) v[at] = v[at - 1];
    v[at] = one;
  }
  return v;
}

/* ---- compiling them ---------------------------------------------------------------------------- */

/* The variants take equal parts of one scale. */
typedef struct Share {
  const CompileOptions *o;
  int at, of;
} Share;

static void tell_share(void *env, const char *stage, int done, int total)
{
  const Share *s = env;
  s->o->progress(s->o->progress_env, stage, s->at * total + done, s->of * total);
}

static const char *dump_folder(Ctx *ctx, const char *folder, const char *variant)
{
  if (!folder) return NULL;
  mkdir(folder, 0777); /* where that fails, making the one inside says so */
  return arena_printf(scratch(ctx), "%s/%s", folder, variant);
}

/* Constants of all programs in one space; those of equal bytes have one place. */
typedef struct Placed {
  const ConstData *data;
  uint64_t offset;
  struct Placed *next; /* of the same hash */
} Placed;

static void share_weights(Ctx *ctx, int n, Program **program)
{
  Scope scope = scope_begin(ctx);
  Map places = {0};
  uint64_t bytes = 0;
  for (int k = 0; k < n; k++)
    for (int i = 0; i < program[k]->constant.n; i++) {
      ProgConst *c = &program[k]->constant.v[i];
      if (c->prepared) continue;
      const void *key = (const void *)(uintptr_t)(hash_bytes(c->data->data, c->data->bytes, 1) | 1);
      Placed *first = map_get(&places, key);
      Placed *p = first;
      while (p && (p->data->bytes != c->data->bytes || memcmp(p->data->data, c->data->data, p->data->bytes)))
        p = p->next;
      if (!p) {
        p = arena_new_of(scratch(ctx), Placed);
        *p = (Placed){c->data, bytes, first};
        map_put(scratch(ctx), &places, key, p);
        bytes = (bytes + c->data->bytes + MODEL_ALIGN - 1) / MODEL_ALIGN * MODEL_ALIGN;
      }
      c->offset = p->offset;
    }
  for (int k = 0; k < n; k++) program[k]->weights_bytes = bytes;
  scope_end(ctx, scope);
}

static void release_all(void *arg)
{
  Compiled **c = arg;
  for (int i = 0; i < MAX_VARIANTS; i++)
    if (c[i]) compiled_release(c[i]);
}

static void refuse(Ctx *ctx, bool yes, const char *what)
{
  if (yes)
    raise(ctx, ERR_UNSUPPORTED, NOWHERE,
          "%s has no variants: they are for models of one CPU target that the runtime loads", what);
}

Compiled *driver_compile_variants(Ctx *ctx, Module *m, const CompileOptions *o, int n, const char *const *name)
{
  Scope scope = scope_begin(ctx);
  refuse(ctx, o->aot != NULL, "a program ahead of time");
  refuse(ctx, o->ntargets > 1, "a model for several targets");
  const Target *base = o->ntargets ? o->targets[0] : o->target;
  if (!base) base = o->passes && o->passes->target ? o->passes->target : target_host(ctx);
  const Variant *v = read_variants(ctx, base, n, name);
  Compiled **c = arena_array(scratch(ctx), Compiled *, MAX_VARIANTS);
  Program **program = arena_array(scratch(ctx), Program *, n);
  defer(ctx, release_all, c);
  for (int i = 0; i < n; i++) { /* the one that serves all is the file's own, and the first to place its constants */
    const Variant *one = &v[(i + n - 1) % n];
    CompileOptions own = *o;
    Share share = {o, i, n};
    own.ntargets = 0;
    own.target = one->target;
    own.dump_dir = dump_folder(ctx, o->dump_dir, one->name);
    own.progress = o->progress ? tell_share : NULL;
    own.progress_env = &share;
    c[i] = driver_compile(ctx, m, &own);
    program[i] = &c[i]->program;
    refuse(ctx, program[i]->module.n > 1 || program[i]->image.n, "a model with functions of external compilers");
  }
  share_weights(ctx, n, program);
  for (int i = 0; i < n; i++) {
    if (c[i]->program.prepare >= 0) program_digest(&c[i]->program);
    c[i]->bytes = program_bytes(&c[i]->program, c[i]->arena, &c[i]->nbytes);
  }
  Compiled *all = compiled_retain(c[0]);
  all->variant = arena_array(all->arena, Compiled *, n);
  for (int i = 1; i < n; i++) all->variant[all->nvariants++] = compiled_retain(c[i]);
  scope_end(ctx, scope);
  return all;
}
