/* json.c: JSON to a tree, with a limit of depth.  Text without escapes stays where it lies; numbers are doubles. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"

enum { DEEPEST = 64 };

/* The values lie in one array that grows by blocks; the text, which they point into, is a copy in front of them. */
typedef struct Block {
  struct Block *older;
  int used;
  Json value[256];
} Block;
typedef struct Root {
  Json value; /* first: what json_read gives */
  Block *block;
  char *text;
} Root;
typedef struct Reader {
  Root *root;
  char *p, *end;
  int depth;
  const char *wrong;
} Reader;

static Json *new_value(Reader *r)
{
  Block *b = r->root->block;
  if (!b || b->used == 256) {
    b = malloc(sizeof *b);
    if (!b) {
      r->wrong = "memory is out";
      return NULL;
    }
    b->older = r->root->block;
    b->used = 0;
    r->root->block = b;
  }
  memset(&b->value[b->used], 0, sizeof *b->value);
  return &b->value[b->used++];
}

static void blank(Reader *r)
{
  while (r->p < r->end && strchr(" \t\r\n", *r->p) && *r->p) r->p++;
}

static bool take(Reader *r, char c)
{
  blank(r);
  if (r->p >= r->end || *r->p != c) return false;
  r->p++;
  return true;
}

/* Escapes shrink, so the text is written over itself; \u stands for one byte below 128 or a question mark. */
static const char *string(Reader *r)
{
  char *from = r->p;
  char *to = r->p;
  for (; from < r->end && *from != '"'; from++) {
    if ((unsigned char)*from < 32) break;
    if (*from != '\\') {
      *to++ = *from;
      continue;
    }
    static const char letters[] = "\"\\/bfnrt";
    static const char meaning[] = "\"\\/\b\f\n\r\t";
    const char *at = ++from < r->end && *from ? strchr(letters, *from) : NULL;
    if (at) {
      *to++ = meaning[at - letters];
    } else if (from < r->end && *from == 'u' && r->end - from > 4) {
      unsigned code = 0;
      if (sscanf(from + 1, "%4x", &code) != 1) break;
      *to++ = code && code < 128 ? (char)code : '?';
      from += 4;
    } else {
      break;
    }
  }
  if (from >= r->end || *from != '"') {
    r->wrong = "a text does not end";
    return "";
  }
  const char *start = r->p;
  r->p = from + 1;
  *to = 0;
  return start;
}

static void value(Reader *, Json *);

static void items(Reader *r, Json *v, char close)
{
  Json **last = &v->first;
  if (++r->depth > DEEPEST) r->wrong = "it is too deep";
  for (bool more = !take(r, close); more && !r->wrong; more = !r->wrong && !take(r, close)) {
    if (v->count && !take(r, ',')) r->wrong = "a comma is missing";
    Json *item = r->wrong ? NULL : new_value(r);
    if (!item) return;
    if (close == '}') {
      if (!take(r, '"')) r->wrong = "a key is missing";
      else item->key = string(r);
      if (!r->wrong && !take(r, ':')) r->wrong = "a colon is missing";
    }
    if (!r->wrong) value(r, item);
    *last = item;
    last = &item->next;
    v->count++;
  }
  r->depth--;
}

static bool word(Reader *r, const char *w)
{
  size_t n = strlen(w);
  if ((size_t)(r->end - r->p) < n || memcmp(r->p, w, n) != 0) return false;
  r->p += n;
  return true;
}

static void value(Reader *r, Json *v)
{
  blank(r);
  if (take(r, '{')) {
    v->kind = JSON_OBJECT;
    items(r, v, '}');
  } else if (take(r, '[')) {
    v->kind = JSON_LIST;
    items(r, v, ']');
  } else if (take(r, '"')) {
    v->kind = JSON_TEXT;
    v->text = string(r);
  } else if (word(r, "true") || word(r, "false")) {
    v->kind = JSON_BOOL;
    v->number = r->p[-1] == 'e' && r->p[-2] == 'u';
  } else if (!word(r, "null")) {
    char *after = r->p;
    v->kind = JSON_NUMBER;
    v->number = strtod(r->p, &after);
    if (after == r->p) r->wrong = "a value is missing";
    r->p = after;
  }
}

Json *json_read(const char *text, size_t n, LatheRtError *err)
{
  Root *root = calloc(1, sizeof *root);
  char *copy = root ? malloc(n + 1) : NULL;
  Reader r = {.root = root, .p = copy, .end = copy + n};
  if (!copy) {
    free(root);
    plugin_fail(err, LATHE_RT_MEMORY, "no memory for a graph");
    return NULL;
  }
  root->text = copy;
  memcpy(copy, text, n);
  copy[n] = 0;
  value(&r, &root->value);
  blank(&r);
  if (!r.wrong && r.p != r.end) r.wrong = "something follows it";
  if (!r.wrong) return &root->value;
  plugin_fail(err, LATHE_RT_ARGUMENT, "its graph is no JSON: %s, at byte %zu", r.wrong, (size_t)(r.p - copy));
  json_free(&root->value);
  return NULL;
}

void json_free(Json *j)
{
  Root *root = (Root *)j;
  if (!root) return;
  for (Block *b = root->block; b;) {
    Block *older = b->older;
    free(b);
    b = older;
  }
  free(root->text);
  free(root);
}

const Json *json_get(const Json *j, const char *key)
{
  for (const Json *i = j && j->kind == JSON_OBJECT ? j->first : NULL; i; i = i->next)
    if (!strcmp(i->key, key)) return i;
  return NULL;
}

const Json *json_at(const Json *j, int k)
{
  const Json *i = j && j->kind == JSON_LIST ? j->first : NULL;
  while (i && k-- > 0) i = i->next;
  return i;
}
