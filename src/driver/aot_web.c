/* aot_web.c: a program ahead of time as a module for browsers.
 *
 *   NAME.wasm    kernels, weights, and memory for inputs, outputs and pools; imports functions of Math at most …
 *   NAME.js      an ES module: load() gives an object with run()
 *   NAME.d.ts    its types
 *   index.html   a page that loads it, runs it on random numbers and shows the time
 *
 * The C of aot_c.c is compiled with a second file that has the memory and exports two functions: address(i), of the
 * i-th array (the inputs, then the outputs, of each entry in order), and run(entry).
 *
 * … and, where loops are worth several threads, a memory that the page makes and that workers share, each with an
 * instance, a stack and scratch memory (a slice) of its own:
 *
 *   0      stack | weights | pools, arrays |          stack, slice | stack, slice | …
 *          thread 0                        | pages    thread 1       thread 2
 *
 * A loop's iterations go to whoever asks for some next.  That decides nothing but who computes: an iteration does the
 * same whichever thread has it, so results have the same bits with any number of threads. */
#include "driver/aot.h"
#include "driver/linkable.h"

enum { STACK_BESIDE_ARRAYS = 64 * 1024, PAGE = 65536 }; /* bytes */
enum { MOST_THREADS = 8 };                              /* unless the page asks for more */

typedef struct Web {
  Aot *a;
  Arena *arena;
  const char *stem, *name; /* of the files, and in C */
  int64_t stack, thread;   /* bytes of a thread's stack, and of all that a thread beside the first has */
  int64_t pages;           /* of memory that one thread needs, where it is shared */
} Web;

/* ---- memory and the two functions -------------------------------------------------------------------------- */

static int64_t bytes_of(const ProgPort *port)
{
  int64_t n = dtype_bytes(port->dtype);
  for (int d = 0; d < port->ndim; d++) n *= port->dim[d];
  return n;
}

/* The array of a port in C. */
static const char *array_of(Web *w, const AotPlace *at, const char *kind, int entry, int i)
{
  if (at->kind == AT_POOL) return arena_printf(w->arena, "(pool_%d + %" PRId64 ")", at->index, at->offset);
  return arena_printf(w->arena, "%s_%d_%d", kind, entry, i);
}

static void put_array(Text *t, const char *name, int64_t bytes)
{
  text_printf(t, "static _Alignas(16) unsigned char %s[%" PRId64 "];\n", name, bytes ? bytes : 1);
}

static void put_memory(Web *w, Text *t)
{
  const Aot *a = w->a;
  for (int i = 0; i < a->npools; i++) put_array(t, arena_printf(w->arena, "pool_%d", i), a->pool_bytes[i]);
  for (int k = 0; k < a->p->entry.n; k++) {
    const AotEntry *to = &a->entry[k];
    for (int i = 0; i < to->e->input.n; i++)
      if (to->input[i].kind == AT_INPUT)
        put_array(t, array_of(w, &to->input[i], "in", k, i), bytes_of(&to->e->input.v[i]));
    for (int i = 0; i < to->e->output.n; i++)
      if (to->output[i].kind == AT_OUTPUT)
        put_array(t, array_of(w, &to->output[i], "out", k, i), bytes_of(&to->e->output.v[i]));
  }
}

static void put_call(Web *w, Text *t, int k)
{
  const AotEntry *to = &w->a->entry[k];
  bool arrays = !w->a->options.io_inside;
  const char *comma = "";
  text_printf(t, "  if (entry == %d) %s_run(", k, aot_entry_prefix(w->arena, w->a, w->name, k));
  for (int i = 0; arrays && i < to->e->input.n; i++, comma = ", ")
    text_printf(t, "%s(const void *)%s", comma, array_of(w, &to->input[i], "in", k, i));
  for (int i = 0; arrays && i < to->e->output.n; i++, comma = ", ")
    text_printf(t, "%s(void *)%s", comma, array_of(w, &to->output[i], "out", k, i));
  for (int i = 0; i < w->a->npools; i++, comma = ", ") text_printf(t, "%spool_%d", comma, i);
  text_add(t, ");\n");
}

/* The threads' side of a parallel loop.  A worker sleeps until `started` changes; the thread that calls waits until
 * none is working, and sleeps for that only where it may: a page's own thread may not. */
static const char pool_c[] = /* clang-format off */
    "typedef int32_t (*Body)(int64_t begin, int64_t end, int32_t slot, void *env);\n"
    "static struct { Body body; void *env; int64_t n, step, next; } loop;\n"
    "static int32_t thread_count = 1, sleeps, started, working, has_failed;\n"
    "static char *area;\n"
    "static char sentence[512];\n\n"
    "__attribute__((import_module(\"page\"), import_name(\"fail\"))) void page_fail(void);\n\n"
    "static void take(int32_t slot)\n{\n"
    "  for (;;) {\n"
    "    const int64_t begin = __atomic_fetch_add(&loop.next, loop.step, __ATOMIC_SEQ_CST);\n"
    "    if (begin >= loop.n) return;\n"
    "    const int64_t end = begin + loop.step;\n"
    "    loop.body(begin, end < loop.n ? end : loop.n, slot, loop.env);\n"
    "  }\n}\n\n"
    "/* Until *at is another value; some time awake first, since the next loop is often near. */\n"
    "static void wait_for_change(int32_t *at, int32_t value, bool may_sleep)\n{\n"
    "  for (int i = 0; i < 20000; i++)\n"
    "    if (__atomic_load_n(at, __ATOMIC_SEQ_CST) != value) return;\n"
    "  while (__atomic_load_n(at, __ATOMIC_SEQ_CST) == value)\n"
    "    if (may_sleep) __builtin_wasm_memory_atomic_wait32(at, value, -1);\n"
    "}\n\n"
    "static void done(void)\n{\n"
    "  __atomic_fetch_sub(&working, 1, __ATOMIC_SEQ_CST);\n"
    "  __builtin_wasm_memory_atomic_notify(&working, 1);\n"
    "}\n\n"
    "void lathe_web_parallel(int64_t n, Body body, void *env)\n{\n"
    "  if (thread_count == 1 || n < 2) {\n"
    "    body(0, n, 0, env);\n    return;\n  }\n"
    "  loop.body = body, loop.env = env, loop.n = n, loop.next = 0;\n"
    "  loop.step = n / (4 * thread_count) + 1;\n"
    "  __atomic_store_n(&working, thread_count - 1, __ATOMIC_SEQ_CST);\n"
    "  __atomic_fetch_add(&started, 1, __ATOMIC_SEQ_CST);\n"
    "  __builtin_wasm_memory_atomic_notify(&started, (unsigned)thread_count - 1);\n"
    "  take(0);\n"
    "  for (int32_t left; (left = __atomic_load_n(&working, __ATOMIC_SEQ_CST)) != 0;)\n"
    "    wait_for_change(&working, left, sleeps);\n"
    "  if (has_failed) page_fail();\n"
    "}\n\n"
    "char *lathe_web_slice(int32_t slot, char *first)\n{\n"
    "  return slot ? area + (int64_t)(slot - 1) * THREAD + STACK : first;\n}\n\n"
    "#define EXPORT(name) __attribute__((export_name(#name)))\n\n"
    "EXPORT(threads) void set_threads(int32_t n, int32_t may_sleep, char *at)\n{\n"
    "  thread_count = n, sleeps = may_sleep, area = at;\n}\n"
    "EXPORT(said) char *said(void) { return sentence; }\n"
    "EXPORT(failed) void failed(void)\n{\n"
    "  __atomic_store_n(&has_failed, 1, __ATOMIC_SEQ_CST);\n  done();\n}\n"
    "EXPORT(serve) void serve(int32_t slot)\n{\n"
    "  for (int32_t seen = 0;; seen++) {\n"
    "    wait_for_change(&started, seen, true);\n"
    "    take(slot);\n"
    "    done();\n"
    "  }\n}\n\n";
/* clang-format on */

/* The model's C with its loops handed to the threads. */
static const char *write_model(Web *w)
{
  const char *threads = "#include <stdint.h>\n\n"
                        "typedef int32_t (*LatheWebBody)(int64_t begin, int64_t end, int32_t slot, void *env);\n"
                        "void lathe_web_parallel(int64_t n, LatheWebBody, void *env);\n"
                        "char *lathe_web_slice(int32_t slot, char *first);\n"
                        "#define PARALLEL(n, body, env) lathe_web_parallel(n, body, env)\n"
                        "#define SLICE(slot, first) lathe_web_slice(slot, first)\n";
  return arena_printf(w->arena, "%s#include \"%s.c\"\n", w->a->code.parallel ? threads : "", w->stem);
}

static const char *write_glue(Web *w)
{
  Text t = text_new(w->arena);
  text_printf(&t, "#include <stdbool.h>\n#include \"%s.h\"\n\n", w->stem);
  if (w->a->code.parallel)
    text_printf(&t, "enum { STACK = %" PRId64 ", THREAD = %" PRId64 " };\n%s", w->stack, w->thread, pool_c);
  put_memory(w, &t);
  text_add(&t, "\n__attribute__((export_name(\"address\"))) void *address(int i)\n{\n  static void *const at[] = {");
  for (int k = 0; k < w->a->p->entry.n; k++) {
    const AotEntry *to = &w->a->entry[k];
    for (int i = 0; i < to->e->input.n; i++) text_printf(&t, "%s, ", array_of(w, &to->input[i], "in", k, i));
    for (int i = 0; i < to->e->output.n; i++) text_printf(&t, "%s, ", array_of(w, &to->output[i], "out", k, i));
  }
  text_add(&t, "0};\n  return at[i];\n}\n\n__attribute__((export_name(\"run\"))) void run(int entry)\n{\n");
  for (int k = 0; k < w->a->p->entry.n; k++) put_call(w, &t, k);
  text_add(&t, "}\n");
  return text_str(&t);
}

/* ---- the module ----------------------------------------------------------------------------------------------- */

/* What JavaScript has for elements of a type: what it has not (halves, bool) by their bits. */
static const char *array_type(DType t)
{
  static const struct {
    const char *c, *js;
  } types[] = {
    {"float", "Float32Array"},   {"double", "Float64Array"},  {"int8_t", "Int8Array"},
    {"int16_t", "Int16Array"},   {"int32_t", "Int32Array"},   {"int64_t", "BigInt64Array"},
    {"uint16_t", "Uint16Array"}, {"uint32_t", "Uint32Array"}, {"uint64_t", "BigUint64Array"},
  };
  const char *c = linkable_c_type(t);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strcmp(c, types[i].c)) return types[i].js;
  return "Uint8Array";
}

static void put_ports(Text *t, const char *key, int n, const ProgPort *port)
{
  text_printf(t, "    %s: [", key);
  for (int i = 0; i < n; i++) {
    text_add(t, i ? ",\n      { name: " : "\n      { name: ");
    text_quote(t, port[i].name);
    text_printf(t, ", dtype: \"%s\", shape: [", dtype_name(t->arena, port[i].dtype));
    for (int d = 0; d < port[i].ndim; d++) text_printf(t, "%s%" PRId64, d ? ", " : "", port[i].dim[d]);
    text_printf(t, "], array: %s }", array_type(port[i].dtype));
  }
  text_add(t, n ? "\n    ],\n" : "],\n");
}

/* What load() makes the memory and the threads of. */
static void put_threads(Web *w, Text *t)
{
  if (!w->a->code.parallel) {
    text_printf(t, "const oneThread = \"%s\";\n\n",
                target_has_threads(w->a->p->target) ? "no loop of the model is worth several threads"
                                                    : "the model was compiled without the feature atomics");
    return;
  }
  text_printf(
      t,
      "/* What one thread needs in pages of 64 KB; bytes of each stack, and of what each further thread has. */\n"
      "const memory = { pages: %" PRId64 ", stack: %" PRId64 ", thread: %" PRId64 " };\n"
      "const MOST_THREADS = %d, WORKER = \"lathe worker\";\n"
      "const newWorker = () => new Worker(new URL(\"./%s.js\", import.meta.url), "
      "{ type: \"module\", name: WORKER });\n\n",
      w->pages, w->stack, w->thread, MOST_THREADS, w->stem);
}

static const char *write_module(Web *w)
{
  Text t = text_new(w->arena);
  text_printf(&t,
              "/* %s.js: a model compiled by Lathe, ahead of time for target '%s'; %s.d.ts has the types.\n *\n"
              " *   import { load } from \"./%s.js\";\n *   const model = await load();\n"
              " *   const outputs = model.run(inputs); // typed arrays by name\n */\n"
              "const address = new URL(\"./%s.wasm\", import.meta.url);\n\nconst entries = {\n",
              w->stem, w->a->p->target->text, w->stem, w->stem, w->stem);
  for (int k = 0; k < w->a->p->entry.n; k++) {
    const ProgEntry *e = &w->a->p->entry.v[k];
    text_add(&t, "  ");
    text_quote(&t, e->name);
    text_add(&t, ": {\n");
    put_ports(&t, "inputs", e->input.n, e->input.v);
    put_ports(&t, "outputs", e->output.n, e->output.v);
    text_add(&t, "  },\n");
  }
  text_add(&t, "};\n\n");
  put_threads(w, &t);
  text_add(&t, aot_web_math_js);
  text_add(&t, aot_web_model_js);
  if (w->a->code.parallel) text_add(&t, aot_web_worker_js);
  text_add(&t, w->a->code.parallel ? aot_web_threads_js : aot_web_load_js);
  return text_str(&t);
}

/* ---- types ------------------------------------------------------------------------------------------------- */

static void put_interface(Text *t, const char *name, int n, const ProgPort *port)
{
  text_printf(t, "export interface %s {\n", name);
  for (int i = 0; i < n; i++) {
    text_add(t, "  ");
    text_quote(t, port[i].name);
    text_printf(t, ": %s; // %s\n", array_type(port[i].dtype), port[i].type);
  }
  text_add(t, "}\n");
}

static const char *write_types(Web *w)
{
  const Program *p = w->a->p;
  Text t = text_new(w->arena);
  Text runs = text_new(w->arena);
  StrMap used = {0};
  text_printf(&t, "/* %s.d.ts: a model compiled by Lathe, for %s.js. */\n", w->stem, w->stem);
  for (int k = 0; k < p->entry.n; k++) {
    const ProgEntry *e = &p->entry.v[k];
    const char *tail = k ? arena_printf(w->arena, "_%s", linkable_identifier(w->arena, &used, e->name, "entry_")) : "";
    put_interface(&t, arena_printf(w->arena, "Inputs%s", tail), e->input.n, e->input.v);
    put_interface(&t, arena_printf(w->arena, "Outputs%s", tail), e->output.n, e->output.v);
    text_printf(&runs, "  run(inputs: Inputs%s, entry%s: ", tail, k ? "" : "?");
    text_quote(&runs, e->name);
    text_printf(&runs, "): Outputs%s;\n", tail);
  }
  text_printf(&t,
              "export interface Port {\n  readonly name: string;\n  readonly dtype: string;\n"
              "  readonly shape: readonly number[];\n  readonly array: { new (length: number): ArrayBufferView };\n}\n"
              "export interface Entry {\n  readonly inputs: readonly Port[];\n  readonly outputs: readonly Port[];\n}\n"
              "/** One model in memory of its own: one run at a time. */\nexport class Model {\n"
              "  private constructor();\n  readonly entries: Readonly<Record<string, Entry>>;\n"
              "  readonly inputs: readonly Port[];\n  readonly outputs: readonly Port[];\n"
              "  /** How many threads compute a run, and what keeps it to one (\"\": nothing). */\n"
              "  readonly threads: number;\n  readonly note: string;\n"
              "  /** Ends the workers; the model cannot run any more. */\n  dispose(): void;\n"
              "  /** Inputs are read; outputs are arrays of their own. */\n%s}\n"
              "/** threads: as many as there are cores, up to %d, unless a number is given; 1 starts no workers. */\n"
              "export interface Options {\n  threads?: number;\n}\n"
              "/** source: an address, a Response, bytes or a module; without one %s.wasm beside %s.js. */\n"
              "export function load(\n  source?: string | URL | Response | BufferSource | WebAssembly.Module,\n"
              "  options?: Options,\n): Promise<Model>;\n",
              text_str(&runs), MOST_THREADS, w->stem, w->stem);
  return text_str(&t);
}

static const char *write_page(Web *w)
{
  Text t = text_new(w->arena);
  text_printf(&t,
              "<!doctype html>\n<!-- the test page of %s.js: a model compiled by Lathe, -->\n%s<title>%s</title>\n"
              "<h1>%s</h1>\n<p id=\"time\">loading …</p>\n<table></table>\n<script type=\"module\">\n"
              "  import { load } from \"./%s.js\";\n%s</script>\n",
              w->stem, aot_web_page_html, w->stem, w->stem, w->stem, aot_web_page_js);
  return text_str(&t);
}

/* ---- files --------------------------------------------------------------------------------------------------- */

static void write_text(Web *w, const char *folder, const char *name, const char *text)
{
  file_write(w->a->p->ctx, arena_printf(w->arena, "%s%s", folder, name), text, strlen(text));
}

static void write_wasm(Web *w, const char *path)
{
  Ctx *ctx = w->a->p->ctx;
  const Target *target = w->a->p->target;
  const char *build = file_temp_dir(ctx);
  const char *slash = arena_printf(w->arena, "%s/", build);
  AotFiles files = {0};
  Vec(const char *) objects = {0};
  aot_files(w->a, w->arena, w->stem, WEIGHTS_BESIDE, &files);
  for (int i = 0; i < files.n; i++)
    file_write(ctx, arena_printf(w->arena, "%s%s", slash, files.v[i].name), files.v[i].bytes, files.v[i].n);
  write_text(w, slash, "lathe_model.c", write_model(w));
  write_text(w, slash, "lathe_web.c", write_glue(w));
  static const char *const sources[] = {"lathe_model", "lathe_web"};
  for (int i = 0; i < 2; i++) {
    vec_push(w->arena, &objects, arena_printf(w->arena, "%s%s.o", slash, sources[i]));
    code_compile_c(ctx, target, arena_printf(w->arena, "%s%s.c", slash, sources[i]), objects.v[i]);
  }
  for (int i = 0; i < files.n; i++)
    if (str_ends(files.v[i].name, ".s")) {
      vec_push(w->arena, &objects, arena_printf(w->arena, "%sweights.o", slash));
      code_assemble_wasm(ctx, target, arena_printf(w->arena, "%s%s", slash, files.v[i].name), build,
                         objects.v[objects.n - 1]);
    }
  w->pages = code_link_wasm(ctx, objects.n, objects.v, w->stack, w->a->code.parallel, path);
}

void aot_check_web(Ctx *ctx, const Target *t, const char *path)
{
  if (t->arch != ARCH_WASM32)
    raise(ctx, ERR_ARGUMENT, NOWHERE, "a module for browsers is WebAssembly: its target is wasm, not '%s'", t->text);
  code_check_clang(ctx, t, path, true);
  const char *slash = strrchr(path, '/');
  const char *page = arena_printf(scratch(ctx), "%.*sindex.html", slash ? (int)(slash + 1 - path) : 0, path);
  linkable_check_own(ctx, path, "module");
  linkable_check_own(ctx, page, "test page");
}

void aot_export_web(Aot *a, const char *path, const char *folder, const char *stem)
{
  Ctx *ctx = a->p->ctx;
  Arena *arena = scratch(ctx);
  Web w = {.a = a, .arena = arena, .stem = stem, .name = linkable_name(arena, stem)};
  w.stack = (STACK_BESIDE_ARRAYS + a->stack_arrays + PAGE - 1) / PAGE * PAGE;
  w.thread = w.stack + (a->slice_bytes + 63) / 64 * 64;
  write_wasm(&w, arena_printf(arena, "%s%s.wasm", folder, stem));
  file_write(ctx, path, write_module(&w), strlen(write_module(&w)));
  write_text(&w, folder, arena_printf(arena, "%s.d.ts", stem), write_types(&w));
  write_text(&w, folder, "index.html", write_page(&w));
}
