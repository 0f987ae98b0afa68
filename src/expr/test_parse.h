/* test_parse.h: expressions from text, for the tests of this layer.
 *
 * A domain is "io:32 ii:2..7 k:n/32 n:size x:any": name, colon, extent (from 0),
 * or first and last, or size, or any.  Expressions are Python's, with // and %
 * flooring; / and `mod` truncate; and min, max, select, abs, likely,
 * if_then_else, ramp(base, stride, lanes), broadcast(x, lanes), int64(x). */
#ifndef LATHE_EXPR_TEST_PARSE_H
#define LATHE_EXPR_TEST_PARSE_H

#include "expr/analysis.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

typedef struct World {
  Ctx *ctx;
  Module *m;
  Analyzer *a;
  StrMap vars;
  Vec(const Var *) order;
  const char *at;
} World;

static const Expr *parse_or(World *);

static void skip_space(World *w)
{
  while (*w->at == ' ') w->at++;
}

static bool accept(World *w, const char *token)
{
  skip_space(w);
  size_t n = strlen(token);
  if (strncmp(w->at, token, n)) return false;
  w->at += n;
  return true;
}

static void expect(World *w, const char *token)
{
  if (!accept(w, token)) fail_msg("expected '%s' at '%s'", token, w->at);
}

static inline const Expr *parse_text(World *w, const char *text)
{
  w->at = text;
  const Expr *e = parse_or(w);
  skip_space(w);
  if (*w->at) fail_msg("left over: '%s'", w->at);
  return e;
}

static const char *parse_name(World *w)
{
  skip_space(w);
  const char *from = w->at;
  while ((*w->at >= 'a' && *w->at <= 'z') || (*w->at >= '0' && *w->at <= '9') || *w->at == '_') w->at++;
  return arena_strndup(w->m->arena, from, (size_t)(w->at - from));
}

static const Expr *parse_call(World *w, const char *name)
{
  const Expr *arg[4];
  int n = 0;
  do arg[n++] = parse_or(w);
  while (accept(w, ","));
  expect(w, ")");
  Module *m = w->m;
  if (!strcmp(name, "min")) return expr_min(m, arg[0], arg[1]);
  if (!strcmp(name, "max")) return expr_max(m, arg[0], arg[1]);
  if (!strcmp(name, "select")) return expr_select(m, arg[0], arg[1], arg[2]);
  if (!strcmp(name, "ramp")) return expr_ramp(m, arg[0], arg[1], (int)arg[2]->u.i);
  if (!strcmp(name, "broadcast")) return expr_broadcast(m, arg[0], (int)arg[1]->u.i);
  if (!strcmp(name, "int64")) return expr_cast(m, DT_I64, arg[0]);
  if (!strcmp(name, "truncdiv")) return expr_binary(m, E_DIV, arg[0], arg[1]);
  Intrin in;
  if (!intrin_find(name, &in)) fail_msg("unknown function '%s'", name);
  return expr_call(m, DT_NONE, in, n, arg);
}

static const Expr *parse_primary(World *w)
{
  skip_space(w);
  if (accept(w, "(")) {
    const Expr *e = parse_or(w);
    expect(w, ")");
    return e;
  }
  if (accept(w, "-")) {
    const Expr *e = parse_primary(w);
    return e->kind == E_INT ? expr_int(w->m, e->dtype, -e->u.i) : expr_mul(w->m, e, expr_int(w->m, e->dtype, -1));
  }
  if (*w->at >= '0' && *w->at <= '9') return expr_i32(w->m, strtoll(w->at, (char **)&w->at, 10));
  if (accept(w, "True")) return expr_bool(w->m, true);
  if (accept(w, "False")) return expr_bool(w->m, false);
  const char *name = parse_name(w);
  if (accept(w, "(")) return parse_call(w, name);
  const Var *v = strmap_get(&w->vars, name);
  if (!v) fail_msg("unknown variable '%s'", name);
  return v->expr;
}

static const Expr *parse_product(World *w)
{
  const Expr *e = parse_primary(w);
  for (;;) {
    if (accept(w, "*")) e = expr_mul(w->m, e, parse_primary(w));
    else if (accept(w, "//")) e = expr_floordiv(w->m, e, parse_primary(w));
    else if (accept(w, "/")) e = expr_binary(w->m, E_DIV, e, parse_primary(w));
    else if (accept(w, "%")) e = expr_floormod(w->m, e, parse_primary(w));
    else if (accept(w, "mod ")) e = expr_binary(w->m, E_MOD, e, parse_primary(w));
    else return e;
  }
}

static const Expr *parse_sum(World *w)
{
  const Expr *e = parse_product(w);
  for (;;) {
    if (accept(w, "+")) e = expr_add(w->m, e, parse_product(w));
    else if (accept(w, "-")) e = expr_sub(w->m, e, parse_product(w));
    else return e;
  }
}

static const Expr *parse_compare(World *w)
{
  static const struct {
    const char *token;
    ExprKind kind;
  } ops[] = {
    {"==", E_EQ}, {"!=", E_NE}, {"<=", E_LE}, {">=", E_GE}, {"<", E_LT}, {">", E_GT},
  };
  if (accept(w, "not ")) return expr_not(w->m, parse_compare(w));
  const Expr *e = parse_sum(w);
  for (int i = 0; i < 6; i++)
    if (accept(w, ops[i].token)) return expr_binary(w->m, ops[i].kind, e, parse_sum(w));
  return e;
}

static const Expr *parse_and(World *w)
{
  const Expr *e = parse_compare(w);
  while (accept(w, "and ")) e = expr_and(w->m, e, parse_compare(w));
  return e;
}

static const Expr *parse_or(World *w)
{
  const Expr *e = parse_and(w);
  while (accept(w, "or ")) e = expr_binary(w->m, E_OR, e, parse_and(w));
  return e;
}

/* ---- worlds ---------------------------------------------------------------------------- */

static void declare(World *w, const char *name, VarKind kind)
{
  const Var *v = var_new(w->m, name, DT_I32, kind);
  strmap_put(w->m->arena, &w->vars, name, (void *)(uintptr_t)v);
  vec_push(w->m->arena, &w->order, v);
}

static void declare_one(World *w, const char **at)
{
  w->at = *at;
  const char *name = parse_name(w);
  expect(w, ":");
  if (accept(w, "size")) declare(w, name, VAR_SIZE);
  else if (accept(w, "any")) declare(w, name, VAR_PLAIN);
  else {
    const Expr *zero = expr_i32(w->m, 0);
    const Expr *first = parse_product(w);
    const Expr *extent = first;
    if (accept(w, "..")) extent = expr_i32(w->m, parse_product(w)->u.i - first->u.i + 1);
    else first = zero;
    declare(w, name, VAR_PLAIN);
    analyzer_bind(w->a, strmap_get(&w->vars, name), first, extent);
  }
  skip_space(w);
  *at = w->at;
}

static World world_new(const char *domain)
{
  World w = {.ctx = ctx_new()};
  w.m = module_new(w.ctx);
  w.a = analyzer_new(w.m, w.m->arena);
  for (const char *at = domain; *at;) declare_one(&w, &at);
  return w;
}

static void world_free(World *w)
{
  module_release(w->m);
  ctx_free(w->ctx);
}

static inline const char *world_text(World *w, const Expr *e) { return expr_str_of(w->m->arena, e); }

#endif
