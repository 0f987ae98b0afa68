/* parse.c: functions and modules of TVMScript; what all the parser's files share.
 *
 * In: text that Python would accept.  Out: functions as func_print would print
 * them.  Errors raised by the constructors (a wrong dtype, say) come out with the
 * place that the parser had reached. */
#include "tir/script.h"

#include <stdio.h>

/* ---- tokens ------------------------------------------------------------------------ */

_Noreturn void parse_error(Parser *p, Loc loc, const char *fmt, ...)
{
  char text[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  raise(p->ctx, ERR_PARSE, loc, "%s", text);
}

Loc parse_loc(const Parser *p, const Token *t) { return (Loc){p->file, t->line, t->col}; }
const Token *parse_peek(const Parser *p) { return &p->tok[p->at]; }
bool parse_is_op(const Parser *p, const char *op)
{
  return parse_peek(p)->kind == TOK_OP && !strcmp(parse_peek(p)->s, op);
}
bool parse_is_word(const Parser *p, const char *word)
{
  return parse_peek(p)->kind == TOK_NAME && !strcmp(parse_peek(p)->s, word);
}

bool parse_accept(Parser *p, const char *s)
{
  if (!parse_is_op(p, s) && !parse_is_word(p, s)) return false;
  p->at++;
  return true;
}

const char *parse_token_text(Parser *p, const Token *t)
{
  bool named = t->kind == TOK_NEWLINE || t->kind == TOK_END;
  if (t->kind == TOK_INDENT || t->kind == TOK_DEDENT) return "a change of indentation";
  return named ? t->s : arena_printf(p->arena, t->kind == TOK_STR ? "\"%.40s\"" : "'%.40s'", t->s);
}

void parse_expect(Parser *p, const char *s, const char *after)
{
  if (!parse_accept(p, s))
    parse_error(p, parse_loc(p, parse_peek(p)), "expected '%s' after %s, found %s", s, after,
                parse_token_text(p, parse_peek(p)));
}

const char *parse_expect_name(Parser *p, const char *what)
{
  if (parse_peek(p)->kind != TOK_NAME)
    parse_error(p, parse_loc(p, parse_peek(p)), "expected %s, found %s", what, parse_token_text(p, parse_peek(p)));
  return p->tok[p->at++].s;
}

static void expect_kind(Parser *p, TokKind kind, const char *what, const char *after)
{
  if (parse_peek(p)->kind != kind)
    parse_error(p, parse_loc(p, parse_peek(p)), "expected %s after %s, found %s", what, after,
                parse_token_text(p, parse_peek(p)));
  p->at++;
}

void parse_enter(Parser *p)
{
  if (++p->depth > MAX_NESTING)
    parse_error(p, parse_loc(p, parse_peek(p)), "nested too deep (more than %d levels)", MAX_NESTING);
}
void parse_leave(Parser *p) { p->depth--; }

/* path = name {'.' name}, when T or I comes first and '(' follows */
Operand parse_path(Parser *p)
{
  const Token *t = parse_peek(p);
  Operand none = {.kind = OP_NONE, .loc = parse_loc(p, t)};
  if (t->kind != TOK_NAME || parse_find_symbol(p, t->s)) return none;
  if (strcmp(t->s, "T") && strcmp(t->s, "I") && strcmp(t->s, "tir")) return none;
  Text s = text_new(p->arena);
  text_add(&s, t->s[0] == 'I' ? "I" : "T");
  int at = p->at + 1;
  while (p->tok[at].kind == TOK_OP && !strcmp(p->tok[at].s, ".") && p->tok[at + 1].kind == TOK_NAME) {
    text_printf(&s, ".%s", p->tok[at + 1].s);
    at += 2;
  }
  if (p->tok[at].kind != TOK_OP || strcmp(p->tok[at].s, "(")) return none;
  p->at = at;
  return (Operand){.kind = OP_PATH, .loc = none.loc, .s = text_str(&s)};
}

/* ---- names --------------------------------------------------------------------------- */

Symbol *parse_define(Parser *p, const char *name, Operand value)
{
  vec_push(p->arena, &p->symbols, (Symbol){.name = name, .value = value});
  return &p->symbols.v[p->symbols.n - 1];
}

Symbol *parse_define_var(Parser *p, const Var *v, Loc loc)
{
  Symbol *s = parse_define(p, v->name, parse_expr_operand(p, v->expr, loc, 0));
  s->inner = true;
  return s;
}

Symbol *parse_find_symbol(Parser *p, const char *name)
{
  for (int i = p->symbols.n - 1; i >= 0; i--)
    if (!strcmp(p->symbols.v[i].name, name)) return &p->symbols.v[i];
  return NULL;
}

bool parse_dtype_word(const char *name, DType *out)
{
  if (!strcmp(name, "boolean")) name = "bool";
  return strcmp(name, "void") && dtype_parse(name, out);
}

/* ---- parameters ------------------------------------------------------------------------ */

/* annotation = 'T.handle' | 'T.' dtype | 'T.Buffer' '(' arguments ')' | 'T.Buffer' '[' … ']' */
static void parse_annotation(Parser *p, const char *name)
{
  const Token *t = parse_peek(p);
  Loc loc = parse_loc(p, t);
  DType dtype;
  if (!parse_is_word(p, "T") && !parse_is_word(p, "tir"))
    parse_error(p, loc, "expected a type such as T.Buffer or T.int32 for parameter '%s', found %s", name,
                parse_token_text(p, t));
  p->at++;
  parse_expect(p, ".", "T");
  const char *word = parse_expect_name(p, "a type after 'T.'");
  Operand callee = {.kind = OP_PATH, .loc = loc, .s = arena_printf(p->arena, "T.%s", word)};
  if (!strcmp(word, "Buffer")) {
    Args args = {0};
    if (parse_accept(p, "(")) args = parse_args(p);
    else {
      parse_expect(p, "[", "T.Buffer");
      Operand o = parse_list(p);
      parse_expect(p, "]", "the type");
      for (int i = 0; o.kind == OP_LIST && i < o.n; i++) vec_push(p->arena, &args.pos, o.list[i]);
      if (o.kind != OP_LIST) vec_push(p->arena, &args.pos, o);
    }
    const Buffer *b = parse_buffer(p, name, &args, 0, &callee, NULL);
    vec_push(p->arena, &p->params, (Param){b->data, b});
    parse_define(p, name, (Operand){.kind = OP_BUFFER, .loc = loc, .buffer = b});
    return;
  }
  if (!parse_dtype_word(word, &dtype)) parse_error(p, loc, "unknown type 'T.%s' for parameter '%s'", word, name);
  if (parse_accept(p, "(")) parse_args(p); /* T.handle("float32") */
  const Var *v = var_new(p->m, name, dtype, VAR_PLAIN);
  if (dtype.code == DT_HANDLE)
    parse_define(p, name, (Operand){.kind = OP_HANDLE, .loc = loc, .s = name, .param = p->params.n});
  else parse_define(p, name, parse_expr_operand(p, v->expr, loc, 0));
  vec_push(p->arena, &p->params, (Param){v, NULL});
}

/* parameters = [name ':' annotation {',' …}] ')' */
static void parse_params(Parser *p)
{
  while (!parse_is_op(p, ")")) {
    const Token *t = parse_peek(p);
    const char *name = parse_expect_name(p, "a parameter");
    Symbol *old = parse_find_symbol(p, name);
    if (old) parse_error(p, parse_loc(p, t), "parameter '%s' is given twice", name);
    if (!parse_is_op(p, ":"))
      parse_error(p, parse_loc(p, parse_peek(p)), "parameter '%s' needs a type such as T.Buffer((8,), \"float32\")",
                  name);
    p->at++;
    parse_annotation(p, name);
    if (!parse_accept(p, ",")) break;
  }
  parse_expect(p, ")", "the parameters");
}

/* A size that stands alone as a dimension is not negative. */
static void mark_sizes(Parser *p)
{
  for (int i = 0; i < p->params.n; i++) {
    const Buffer *b = p->params.v[i].buffer;
    for (int d = 0; b && d < b->ndim; d++)
      if (b->shape[d]->kind == E_VAR) ((Var *)(uintptr_t)b->shape[d]->u.var)->kind = VAR_SIZE;
  }
}

/* ---- functions --------------------------------------------------------------------------- */

/* decorator = '@' name {'.' name} ['(' arguments ')'] newline ; the last name comes back */
static const char *parse_decorator(Parser *p, bool *is_private)
{
  Loc loc = parse_loc(p, parse_peek(p));
  const char *name = parse_expect_name(p, "a decorator after '@'");
  while (parse_accept(p, ".")) name = parse_expect_name(p, "a name after '.'");
  if (parse_accept(p, "(")) {
    static const char *const kws[] = {"private", "check_well_formed", NULL};
    Operand callee = {.kind = OP_PATH, .loc = loc, .s = name};
    Args args = parse_args(p);
    parse_args_check(p, &args, 0, kws, &callee);
    const Operand *o = parse_arg_get(&args, -1, "private");
    if (o) *is_private = o->kind == OP_BOOL && o->i;
  }
  expect_kind(p, TOK_NEWLINE, "a new line", "the decorator");
  return name;
}

static Stmt *with_root(Parser *p, BlockBuild *root, Stmt *body)
{
  bool own = body->kind == S_BLOCK && !strcmp(body->u.block->name, "root") && !body->u.block->niter && !root->allocs.n;
  if (own || (!p->saw_block && !root->allocs.n)) return body;
  root->b->name = "root";
  root->b->body = body;
  root->reads_given = root->writes_given = true;
  parse_fill_block(p, root);
  return stmt_block(p->m, root->b);
}

/* function = {decorator} 'def' name '(' parameters ')' ['->' expression] body */
static PrimFunc *parse_function(Parser *p, bool is_private)
{
  BlockBuild root = {
    .b = arena_new_of(p->m->arena, Block), .root = true, .depth = p->depth + 1, .bindings = p->bindings};
  int mark = p->symbols.n;
  p->params.n = 0;
  p->params.v = NULL;
  p->params.cap = 0;
  p->attrs = (Annots){0};
  p->block = &root;
  p->saw_block = false;
  p->block_names = (StrMap){0};
  parse_expect(p, "def", "the decorator");
  const char *name = parse_expect_name(p, "the name of the function");
  parse_expect(p, "(", "the name of the function");
  parse_params(p);
  if (parse_accept(p, "->")) parse_operand(p);
  Stmt *body = parse_body(p);
  body = with_root(p, &root, body);
  mark_sizes(p);
  PrimFunc *f = func_new(p->m, name, p->params.n, p->params.v, body);
  f->attrs = p->attrs;
  if (!is_private && !annots_get(&f->attrs, "global_symbol"))
    annots_set(p->m->arena, &f->attrs, "global_symbol", expr_str(p->m, name));
  p->symbols.n = mark;
  return f;
}

static PrimFunc *parse_decorated(Parser *p)
{
  bool is_private = false;
  while (parse_accept(p, "@")) {
    Loc loc = parse_loc(p, parse_peek(p));
    const char *name = parse_decorator(p, &is_private);
    if (strcmp(name, "prim_func"))
      parse_error(p, loc, "unknown decorator '%s'; a function is decorated with @T.prim_func", name);
  }
  return parse_function(p, is_private);
}

/* class = 'class' name ':' newline indent {function} dedent */
static void parse_class(Parser *p)
{
  parse_expect(p, "class", "the decorator");
  parse_expect_name(p, "the name of the class");
  if (parse_accept(p, "(")) parse_args(p);
  parse_expect(p, ":", "the name of the class");
  expect_kind(p, TOK_NEWLINE, "a new line", "':'");
  expect_kind(p, TOK_INDENT, "indented functions", "the class");
  while (parse_peek(p)->kind != TOK_DEDENT) {
    if (parse_accept(p, "pass") || parse_peek(p)->kind == TOK_STR) {
      if (parse_peek(p)->kind == TOK_STR) p->at++;
      expect_kind(p, TOK_NEWLINE, "a new line", "it");
      continue;
    }
    PrimFunc *f = parse_decorated(p);
    module_set(p->m, f->name, GLOBAL_TIR, f);
  }
  p->at++;
}

/* ---- entry points -------------------------------------------------------------------------- */

typedef struct Job {
  Parser p;
  const char *text;
  int line0;
  bool module;
  PrimFunc *f;
} Job;

/* imports = {('import' | 'from') … newline} */
static void skip_imports(Parser *p)
{
  while (parse_is_word(p, "import") || parse_is_word(p, "from")) {
    while (parse_peek(p)->kind != TOK_NEWLINE && parse_peek(p)->kind != TOK_END) p->at++;
    if (parse_peek(p)->kind == TOK_NEWLINE) p->at++;
  }
}

/* module = {import} {['@I.ir_module'] class | function} */
static void parse_module(Parser *p)
{
  skip_imports(p);
  while (parse_peek(p)->kind != TOK_END) {
    int at = p->at;
    bool is_private = false;
    Loc loc = parse_loc(p, parse_peek(p));
    if (!parse_is_op(p, "@") && !parse_is_word(p, "class") && !parse_is_word(p, "def"))
      parse_error(p, loc, "expected a class or a function, found %s", parse_token_text(p, parse_peek(p)));
    if (parse_accept(p, "@") && !strcmp(parse_decorator(p, &is_private), "ir_module")) {
      parse_class(p);
      continue;
    }
    p->at = at;
    if (parse_is_word(p, "class")) {
      parse_class(p);
      continue;
    }
    PrimFunc *f = parse_decorated(p);
    module_set(p->m, f->name, GLOBAL_TIR, f);
  }
}

static void run_job(Ctx *ctx, void *arg)
{
  Job *job = arg;
  job->p.arena = scratch(ctx);
  job->p.tok = parse_lex(scratch(ctx), job->text, job->p.file, job->line0).v;
  if (job->module) {
    parse_module(&job->p);
    return;
  }
  skip_imports(&job->p);
  job->f = parse_decorated(&job->p);
  if (parse_peek(&job->p)->kind != TOK_END)
    parse_error(&job->p, parse_loc(&job->p, parse_peek(&job->p)),
                "expected the end of the text after the function, found %s",
                parse_token_text(&job->p, parse_peek(&job->p)));
}

static void run(Job *job)
{
  Ctx *ctx = job->p.ctx;
  Scope scope = scope_begin(ctx);
  ErrKind kind = protect(ctx, run_job, job);
  if (kind != ERR_NONE && error_loc(ctx).line == 0 && job->p.here.line)
    raise(ctx, kind, job->p.here, "%s", error_message(ctx));
  if (kind != ERR_NONE) error_reraise(ctx);
  scope_end(ctx, scope);
}

static Job new_job(Module *m, const char *text, const char *file, int line0, int nnames, const ScriptName *names)
{
  const char *kept = file ? arena_strdup(m->arena, file) : "<text>";
  return (Job){
    .p = {.m = m, .ctx = m->ctx, .file = kept, .nnames = nnames, .names = names}, .text = text, .line0 = line0};
}

PrimFunc *func_parse(Module *m, const char *text, const char *file, int line0, int nnames, const ScriptName *names)
{
  Job job = new_job(m, text, file, line0, nnames, names);
  run(&job);
  return job.f;
}

void tir_parse_module(Module *m, const char *text, const char *file, int line0, int nnames, const ScriptName *names)
{
  Job job = new_job(m, text, file, line0, nnames, names);
  job.module = true;
  run(&job);
}
