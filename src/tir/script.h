/* script.h: between the files of the TVMScript parser; no other layer includes it.
 *
 * The text is cut into tokens at once (lex.c); the parser walks them with an
 * index, so it can look ahead as far as it likes.  Expressions give Operands: what
 * Python would have there: a number, a string, a list, a buffer, an expression. */
#ifndef LATHE_TIR_SCRIPT_H
#define LATHE_TIR_SCRIPT_H

#include "tir/tir.h"

/* ---- lex.c ---------------------------------------------------------------------- */

typedef enum { TOK_NAME, TOK_INT, TOK_FLOAT, TOK_STR, TOK_OP, TOK_NEWLINE, TOK_INDENT, TOK_DEDENT, TOK_END } TokKind;

typedef struct Token {
  TokKind kind;
  const char *s; /* the text; strings without quotes and escapes */
  uint64_t i;
  double f;
  int line, col;
} Token;

typedef struct Tokens {
  Token *v;
  int n, cap;
} Tokens;
/* Raises ERR_PARSE.  The last token is TOK_END. */
Tokens parse_lex(Arena *, const char *text, const char *file, int line0);

/* ---- operands ------------------------------------------------------------------- */

typedef struct Operand Operand;
typedef Vec(Operand) Operands;
struct Operand {
  enum {
    OP_NONE,
    OP_INT, /* a Python int: magnitude and sign */
    OP_FLOAT,
    OP_BOOL,
    OP_STR,
    OP_EXPR,
    OP_BUFFER,
    OP_ITEM,   /* buffer[…], not decided yet whether load, store or region */
    OP_LIST,   /* list or tuple */
    OP_DICT,   /* keys in keys, values in list */
    OP_PATH,   /* a name below T or I, or a method: "T.axis.remap" */
    OP_HANDLE, /* a parameter declared as T.handle */
  } kind;
  Loc loc;
  int depth; /* of the expression tree */
  uint64_t i;
  bool negative;
  double f;
  const char *s;
  const Expr *e;
  const Buffer *buffer;
  int param;            /* OP_HANDLE */
  Operand *list, *keys; /* OP_ITEM: start, stop, step of each index in list */
  int n;
  bool meta; /* T.meta_var(…): the name that it is assigned to stands for it */
  bool axis; /* OP_STR: a thread axis by T.env_thread */
};

/* What a name stands for. */
typedef struct Symbol {
  const char *name;
  Operand value;
  bool inner;               /* bound by a loop, a let or a block */
  const Expr *min, *extent; /* loop variables: their range */
} Symbol;

/* A block while its statements are read. */
typedef struct BlockBuild {
  Block *b;
  bool root;           /* the root that a function gets by itself */
  int depth, bindings; /* of the parser in its own list of statements */
  Vec(BlockIter) iters;
  Vec(Region) reads, writes;
  Vec(const Buffer *) allocs;
  Vec(MatchBuffer) matches;
  bool reads_given, writes_given;
} BlockBuild;

typedef struct Parser {
  Module *m;
  Ctx *ctx;
  Arena *arena; /* scratch */
  const char *file;
  const Token *tok;
  int at;
  Loc here;            /* of the statement or expression begun last */
  int depth, bindings; /* open brackets and indents; bindings whose scope is the rest of a list */
  bool one_line;       /* in a body on the line of its ':' */
  Vec(Symbol) symbols;
  int nnames;
  const ScriptName *names;
  /* the function being parsed */
  Vec(Param) params;
  Annots attrs;
  BlockBuild *block; /* nearest enclosing one */
  bool saw_block;
  StrMap block_names;
} Parser;

enum { MAX_NESTING = 200, MAX_BINDINGS = 1000, MAX_DEPTH = 800 };

/* parse.c */
_Noreturn void parse_error(Parser *, Loc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
Loc parse_loc(const Parser *, const Token *);
const Token *parse_peek(const Parser *);
bool parse_is_op(const Parser *, const char *op);
bool parse_is_word(const Parser *, const char *word);
bool parse_accept(Parser *, const char *op_or_word);
void parse_expect(Parser *, const char *op_or_word, const char *after);
const char *parse_token_text(Parser *, const Token *);
const char *parse_expect_name(Parser *, const char *what);
void parse_enter(Parser *);
void parse_leave(Parser *);
Symbol *parse_define(Parser *, const char *name, Operand value);
Symbol *parse_define_var(Parser *, const Var *, Loc); /* one that a loop, a let or a block binds */
Symbol *parse_find_symbol(Parser *, const char *name);
/* The path before '(' here, such as "T.axis.remap", with its tokens passed over;
 * OP_NONE when something else stands here. */
Operand parse_path(Parser *);
/* A dtype after "T.": false if name is none. */
bool parse_dtype_word(const char *name, DType *out);

/* parse_expr.c */
Operand parse_operand(Parser *); /* any expression */
/* a, b, c without brackets: OP_LIST if there is a comma */
Operand parse_list(Parser *);
const Expr *parse_expr(Parser *);
const Expr *parse_as_expr(Parser *, const Operand *);
const Expr *parse_as_index(Parser *, const Operand *); /* an integer expression */
const Expr *parse_as_cond(Parser *, const Operand *);
const Expr *parse_as_value(Parser *, const Operand *); /* of an annotation: lists too */
const char *parse_as_str(Parser *, const Operand *, const char *what);
int64_t parse_as_int(Parser *, const Operand *, const char *what);
DType parse_as_dtype(Parser *, const Operand *);
Region parse_as_region(Parser *, const Operand *);
const Expr **parse_as_indices(Parser *, const Operand *item, int *n);
Operand parse_expr_operand(Parser *, const Expr *, Loc, int depth);
Operand parse_binary_operand(Parser *, ExprKind, const Operand *a, const Operand *b, Loc);
/* From start and stop to min and extent of one dtype. */
void parse_as_range(Parser *, const Operand *start, const Operand *stop, const Expr **min, const Expr **extent);

/* parse_call.c */
typedef struct Args {
  Operands pos;
  Vec(const char *) kw;
  Operands kwval;
} Args;
Args parse_args(Parser *); /* after '(' through ')' */
/* The positional argument i, or the keyword one; NULL if neither is given. */
const Operand *parse_arg_get(const Args *, int i, const char *kw);
const Operand *parse_arg_need(Parser *, const Args *, int i, const char *kw, const Operand *callee);
void parse_args_check(Parser *, const Args *, int max, const char *const *kws, const Operand *callee);
Operand parse_call_operand(Parser *, const Operand *callee, const Args *);
Operand parse_let_call(Parser *, const Operand *callee); /* T.Let(body, where={x: v}), after '(' */
/* The buffer that T.Buffer(…) and its like describe; first: where the shape stands. */
const Buffer *parse_buffer(Parser *, const char *name, const Args *, int first, const Operand *callee, bool *has_data);
Annots parse_as_annots(Parser *, const Operand *dict);

/* parse_stmt.c */
void parse_fill_block(Parser *, BlockBuild *); /* moves what was gathered into the block */
/* ':' newline indented statements, or one on the line */
Stmt *parse_body(Parser *);
Stmt *parse_statements(Parser *); /* up to the dedent or the end */

#endif
