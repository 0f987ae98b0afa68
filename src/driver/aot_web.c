/* aot_web.c: a program ahead of time as a module for browsers.
 *
 *   NAME.wasm    kernels, weights, and memory for inputs, outputs and pools; imports functions of Math at most
 *   NAME.js      an ES module: load() gives an object with run()
 *   NAME.d.ts    its types
 *   index.html   a page that loads it, runs it on random numbers and shows the time
 *
 * The C of aot_c.c is compiled with a second file that has the memory and exports two functions: address(i), of the
 * i-th array (the inputs, then the outputs, of each entry in order), and run(entry). */
#include "driver/aot.h"
#include "driver/linkable.h"

enum { STACK_BESIDE_ARRAYS = 64 * 1024 }; /* bytes */

typedef struct Web {
  Aot *a;
  Arena *arena;
  const char *stem, *name; /* of the files, and in C */
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

static const char *write_glue(Web *w)
{
  Text t = text_new(w->arena);
  text_printf(&t, "#include \"%s.h\"\n\n", w->stem);
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

/* clang-format off */
static const char math_js[] =
    "/* Functions of float64, where the model has some. */\n"
    "const math = {\n"
    "  exp: Math.exp, log: Math.log, log2: Math.log2, log10: Math.log10, log1p: Math.log1p, sin: Math.sin,\n"
    "  cos: Math.cos, tan: Math.tan, asin: Math.asin, acos: Math.acos, atan: Math.atan, sinh: Math.sinh,\n"
    "  cosh: Math.cosh, tanh: Math.tanh, asinh: Math.asinh, acosh: Math.acosh, atanh: Math.atanh,\n"
    "  atan2: Math.atan2, hypot: Math.hypot,\n"
    "  exp2: (x) => 2 ** x,\n"
    "  fmod: (x, y) => x % y,\n"
    "  pow: (x, y) => (x === 1 || (x === -1 && Math.abs(y) === Infinity) ? 1 : x ** y),\n"
    "  erf(x) {\n"
    "    const a = Math.abs(x);\n"
    "    if (!(a < 6)) return Number.isNaN(x) ? x : Math.sign(x);\n"
    "    let term = a, sum = a;  // x + 2/3 x^3 + 4/15 x^5 + ...: no term has another sign\n"
    "    for (let n = 1; term > sum * 1e-17; n++) sum += term *= (2 * a * a) / (2 * n + 1);\n"
    "    return Math.sign(x) * Math.min(1, 1.1283791670955126 * Math.exp(-a * a) * sum);\n"
    "  },\n"
    "  nextafter(x, y) {\n"
    "    if (Number.isNaN(x) || Number.isNaN(y)) return NaN;\n"
    "    if (x === y) return y;\n"
    "    if (x === 0) return y > 0 ? 5e-324 : -5e-324;\n"
    "    const bits = new BigInt64Array(new Float64Array([x]).buffer);\n"
    "    bits[0] += (y > x) === (x > 0) ? 1n : -1n;\n"
    "    return new Float64Array(bits.buffer)[0];\n"
    "  },\n"
    "};\n\n";

static const char model_js[] =
    "async function compile(source) {\n"
    "  if (source instanceof WebAssembly.Module) return source;\n"
    "  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return WebAssembly.compile(source);\n"
    "  const local = typeof process === \"object\" && !/^(https?|data|blob):/.test(String(source));\n"
    "  if (local && !(source instanceof Response)) {  // a file, outside of browsers\n"
    "    const { readFile } = await import(\"node:fs/promises\");\n"
    "    return WebAssembly.compile(await readFile(/^file:/.test(source) ? new URL(source) : source));\n"
    "  }\n"
    "  const response = source instanceof Response ? source : await fetch(source);\n"
    "  if (!response.ok) throw new Error(`${response.url}: the server answers ${response.status}`);\n"
    "  const streams = /^application\\/wasm/.test(response.headers.get(\"Content-Type\"));\n"
    "  if (streams) return WebAssembly.compileStreaming(response);\n"
    "  return WebAssembly.compile(await response.arrayBuffer());\n"
    "}\n\n"
    "const elements = (port) => port.shape.reduce((n, d) => n * d, 1);\n\n"
    "/* One model in memory of its own: one run at a time. */\n"
    "export class Model {\n"
    "  #exports;\n"
    "  #views = {};\n\n"
    "  constructor(exports) {\n"
    "    this.#exports = exports;\n"
    "    let at = 0;\n"
    "    for (const [name, entry] of Object.entries(entries)) {\n"
    "      const view = (port) => new port.array(exports.memory.buffer, exports.address(at++), elements(port));\n"
    "      this.#views[name] = { inputs: entry.inputs.map(view), outputs: entry.outputs.map(view) };\n"
    "    }\n"
    "  }\n\n"
    "  get entries() {\n"
    "    return entries;\n"
    "  }\n\n"
    "  get inputs() {\n"
    "    return Object.values(entries)[0].inputs;\n"
    "  }\n\n"
    "  get outputs() {\n"
    "    return Object.values(entries)[0].outputs;\n"
    "  }\n\n"
    "  run(inputs, name = Object.keys(entries)[0]) {\n"
    "    const entry = entries[name];\n"
    "    const names = Object.keys(entries).join(\", \");\n"
    "    if (!entry) throw new Error(`the model has no entry '${name}'; it has ${names}`);\n"
    "    const known = entry.inputs.map((port) => port.name);\n"
    "    const { inputs: to, outputs: from } = this.#views[name];\n"
    "    for (const given of Object.keys(inputs))\n"
    "      if (!known.includes(given))\n"
    "        throw new Error(`there is no input '${given}'; there are ${known.join(\", \")}`);\n"
    "    entry.inputs.forEach((port, i) => {\n"
    "      const x = inputs[port.name];\n"
    "      const said = x === undefined ? \"nothing\" : `${x?.constructor?.name} of ${x?.length}`;\n"
    "      if (!(x instanceof port.array) || x.length !== to[i].length)\n"
    "        throw new TypeError(\n"
    "          `input '${port.name}' takes a ${port.array.name} of ${to[i].length} elements (${port.dtype} ` +\n"
    "            `${port.shape.join(\" x \") || \"scalar\"}), not ${said}`,\n"
    "        );\n"
    "      to[i].set(x);\n"
    "    });\n"
    "    this.#exports.run(Object.keys(entries).indexOf(name));\n"
    "    return Object.fromEntries(entry.outputs.map((port, i) => [port.name, from[i].slice()]));\n"
    "  }\n"
    "}\n\n"
    "/* The model; source: an address, a Response, bytes or a WebAssembly.Module. */\n"
    "export async function load(source = address) {\n"
    "  const { exports } = await WebAssembly.instantiate(await compile(source), { math });\n"
    "  return new Model(exports);\n"
    "}\n";

static const char page_html[] =
    "<meta charset=\"utf-8\">\n"
    "<style>\n"
    "  body { font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem }\n"
    "  table { border-collapse: collapse } td, th { text-align: left; padding: 0.2rem 1rem 0.2rem 0 }\n"
    "  code { overflow-wrap: anywhere }\n"
    "</style>\n";

static const char page_js[] =
    "  const row = (...cells) => document.querySelector(\"table\").insertRow().append(\n"
    "    ...cells.map((text) => Object.assign(document.createElement(\"td\"), { textContent: text })));\n"
    "  const say = (text) => (document.querySelector(\"#time\").textContent = text);\n"
    "  try {\n"
    "    const start = performance.now();\n"
    "    const model = await load();\n"
    "    const loaded = performance.now() - start;\n"
    "    const size = (port) => port.shape.reduce((n, d) => n * d, 1);\n"
    "    const type = (port) => `${port.dtype} ${port.shape.join(\" x \")}`;\n"
    "    const text = (x) => (typeof x === \"number\" ? x.toPrecision(4) : x);\n"
    "    const number = (port) => (port.array.name.startsWith(\"Float\") ? Math.random() : 0);\n"
    "    const value = (port) => (port.array.name.startsWith(\"Big\") ? 0n : number(port));\n"
    "    const inputs = Object.fromEntries(\n"
    "      model.inputs.map((port) => [port.name, port.array.from({ length: size(port) }, () => value(port))]));\n"
    "    let outputs = model.run(inputs);\n"
    "    let best = Infinity;\n"
    "    for (let i = 0; i < 5; i++) {\n"
    "      const before = performance.now();\n"
    "      outputs = model.run(inputs);\n"
    "      best = Math.min(best, performance.now() - before);\n"
    "    }\n"
    "    for (const port of model.inputs) row(\"input\", port.name, type(port), \"\");\n"
    "    for (const port of model.outputs)\n"
    "      row(\"output\", port.name, type(port), [...outputs[port.name].slice(0, 8)].map(text).join(\", \"));\n"
    "    say(`loaded in ${loaded.toFixed(1)} ms; a run takes ${best.toFixed(2)} ms`);\n"
    "  } catch (error) {\n"
    "    say(String(error));\n"
    "  }\n";
/* clang-format on */

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
  text_add(&t, math_js);
  text_add(&t, model_js);
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
              "  /** Inputs are read; outputs are arrays of their own. */\n%s}\n"
              "/** source: an address, a Response, bytes or a module; without one %s.wasm beside %s.js. */\n"
              "export function load(source?: string | URL | Response | BufferSource | WebAssembly.Module): "
              "Promise<Model>;\n",
              text_str(&runs), w->stem, w->stem);
  return text_str(&t);
}

static const char *write_page(Web *w)
{
  Text t = text_new(w->arena);
  text_printf(&t,
              "<!doctype html>\n<!-- the test page of %s.js: a model compiled by Lathe, -->\n%s<title>%s</title>\n"
              "<h1>%s</h1>\n<p id=\"time\">loading …</p>\n<table></table>\n<script type=\"module\">\n"
              "  import { load } from \"./%s.js\";\n%s</script>\n",
              w->stem, page_html, w->stem, w->stem, w->stem, page_js);
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
  write_text(w, slash, "lathe_web.c", write_glue(w));
  const char *const sources[] = {arena_printf(w->arena, "%s%s.c", slash, w->stem),
                                 arena_printf(w->arena, "%slathe_web.c", slash)};
  for (int i = 0; i < 2; i++) {
    vec_push(w->arena, &objects, arena_printf(w->arena, "%s%d.o", slash, i));
    code_compile_c(ctx, target, sources[i], objects.v[i]);
  }
  for (int i = 0; i < files.n; i++)
    if (str_ends(files.v[i].name, ".s")) {
      vec_push(w->arena, &objects, arena_printf(w->arena, "%sweights.o", slash));
      code_assemble_wasm(ctx, target, arena_printf(w->arena, "%s%s", slash, files.v[i].name), build,
                         objects.v[objects.n - 1]);
    }
  code_link_wasm(ctx, objects.n, objects.v, STACK_BESIDE_ARRAYS + w->a->stack_arrays, path);
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
  write_wasm(&w, arena_printf(arena, "%s%s.wasm", folder, stem));
  file_write(ctx, path, write_module(&w), strlen(write_module(&w)));
  write_text(&w, folder, arena_printf(arena, "%s.d.ts", stem), write_types(&w));
  write_text(&w, folder, "index.html", write_page(&w));
}
