/* relay.h: the reader of Relay text; inside the layer only.
 *
 * lex.c gives tokens, parse_type.c types and dimensions, parse.c everything else. */
#ifndef LATHE_GRAPH_RELAY_H
#define LATHE_GRAPH_RELAY_H

#include "graph/state.h"

typedef enum {
  T_END,
  T_PUNCT,  /* text: the character(s) */
  T_IDENT,  /* nn.conv2d, Tensor, fn, let */
  T_LOCAL,  /* %x, %"odd name": text is the name */
  T_TEMP,   /* %12: text is "12" */
  T_GLOBAL, /* @main */
  T_INT,
  T_FLOAT, /* text: the number; dtype: by its suffix, DT_NONE if it has none */
  T_STR,   /* text: its content */
} TokenKind;

typedef struct Token {
  TokenKind kind;
  const char *text;
  DType dtype;
  Loc loc;
  const char *begin; /* in the source */
} Token;

typedef struct Undo {
  const char *name;
  void *before;
} Undo;

typedef struct Reader {
  Module *m;
  Ctx *ctx;
  Arena *arena; /* scratch */
  const char *file, *p, *end;
  int line;
  const char *line_start;
  Token tok;    /* the token to come */
  Loc building; /* where the call begins whose types are being checked; line 0: none is */
  int nesting;
  bool in_dim; /* % and // are operators here, not the begin of a name and of a comment */
  /* names of the function at hand */
  StrMap vars;        /* "%x" -> Node*; temporaries as "%0" */
  Vec(Undo) undo;     /* what vars held before, for the end of a block */
  StrMap sizes;       /* "n" -> Var* */
  StrMap type_params; /* "A" -> Var* */
  StrMap ctors;       /* "Cons" -> Ctor* */
  NodeList constants; /* meta[relay.Constant][i] */
} Reader;

/* lex.c */
void graph_lex_start(Reader *, const char *text, const char *end, int line);
void graph_lex_next(Reader *);
/* Reads digits right here, for %1.0.1, where the number 0.1 must not be seen. */
int graph_lex_index(Reader *);
bool graph_lex_is(const Reader *, const char *punct_or_word);
bool graph_lex_accept(Reader *, const char *);
void graph_lex_expect(Reader *, const char *);
_Noreturn void graph_lex_error(Reader *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void graph_lex_enter(Reader *); /* one level deeper; raises past the limit */
void graph_lex_leave(Reader *);

/* parse_type.c */
const Type *graph_parse_type(Reader *); /* NULL for `_` */
const Expr *graph_parse_dim(Reader *);  /* "?" included */
int64_t graph_parse_int(Reader *);      /* with a sign */

#endif
