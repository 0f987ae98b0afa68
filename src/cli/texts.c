/* texts.c: strings between numpy's files and an executor.
 *
 * In a file each string has the same room: letters of four bytes ('<U5') or bytes ('|S5'), zeros at
 * the end.  Such a tensor has dtype {LATHE_RT_STRING, 32 or 8, letters} here; an executor's has numbers.
 * Bytes that are no UTF-8 become the letters 0xDC00 + byte and back, as in Python. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

enum { STRAY = 0xDC00 };

static size_t count_of(const LatheRtTensor *t)
{
  size_t n = 1;
  for (int32_t i = 0; i < t->ndim; i++) n *= (size_t)t->shape[i];
  return n;
}

static size_t encode(uint32_t c, char *to)
{
  size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  if (c >= STRAY + 0x80 && c < STRAY + 0x100) return *to = (char)(c - STRAY), 1;
  for (size_t i = n; i-- > 1; c >>= 6) to[i] = (char)(0x80 | (c & 0x3F));
  to[0] = (char)(n == 1 ? c : c | (0xF00 >> n & 0xFF));
  return n;
}

static size_t decode(const unsigned char *s, size_t n, uint32_t *out)
{
  static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
  size_t more = s[0] < 0xC2 || s[0] > 0xF4 ? 0 : s[0] < 0xE0 ? 1 : s[0] < 0xF0 ? 2 : 3;
  uint32_t c = more ? s[0] & (0x3Fu >> more) : s[0];
  bool right = (s[0] < 0x80 || more) && more < n;
  for (size_t i = 1; right && i <= more; i++) {
    right = (s[i] & 0xC0) == 0x80;
    c = c << 6 | (s[i] & 0x3F);
  }
  right = right && c >= least[more] && c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF);
  *out = right ? c : STRAY + (uint32_t)s[0];
  return right ? more + 1 : 1;
}

/* The element as UTF-8 in `room`, 4 bytes a letter; how long it is. */
static size_t text_at(const LatheRtTensor *t, size_t i, char *room)
{
  const char *p = (const char *)t->data + i * t->dtype.lanes * (t->dtype.bits / 8);
  size_t n = 0;
  size_t end = t->dtype.lanes;
  if (t->dtype.bits == 8) {
    while (end && !p[end - 1]) end--;
    memcpy(room, p, end);
    return end;
  }
  uint32_t c = 0;
  for (; end; end--) {
    memcpy(&c, p + 4 * (end - 1), 4);
    if (c) break;
  }
  for (size_t k = 0; k < end; k++) {
    memcpy(&c, p + 4 * k, 4);
    n += encode(c > 0x10FFFF ? 0xFFFD : c, room + n);
  }
  return n;
}

bool cli_texts_to_numbers(LatheRtExecutor *ex, LatheRtTensor **t, LatheRtError *err)
{
  LatheRtTensor *from = *t;
  LatheRtTensor *to;
  if (from->dtype.code != LATHE_RT_STRING) return true;
  if (lathe_rt_tensor_new((LatheRtDevice){LATHE_RT_CPU, 0}, (LatheRtDType){LATHE_RT_STRING, 64, 1}, from->ndim,
                          from->shape, &to, err) != LATHE_RT_OK)
    return false;
  char *room = malloc((size_t)from->dtype.lanes * 4 + 1);
  bool ok = room != NULL;
  if (!ok) snprintf(err->text, sizeof err->text, "there is no memory for a string");
  for (size_t i = 0, n = count_of(from); ok && i < n; i++) {
    size_t bytes = text_at(from, i, room);
    ok = lathe_rt_string_put(ex, room, bytes, (uint64_t *)to->data + i, err) == LATHE_RT_OK;
  }
  free(room);
  lathe_rt_tensor_free(ok ? from : to);
  if (ok) *t = to;
  return ok;
}

bool cli_numbers_to_texts(const LatheRtExecutor *ex, const LatheRtTensor *from, LatheRtTensor **out, LatheRtError *err)
{
  size_t n = count_of(from);
  size_t longest = 1;
  size_t bytes;
  const char *s;
  uint32_t c;
  const uint64_t *number = from->data;
  for (size_t i = 0; i < n; i++) {
    size_t letters = 0;
    if (lathe_rt_string_get(ex, number[i], &s, &bytes, err) != LATHE_RT_OK) return false;
    for (size_t at = 0; at < bytes; letters++) at += decode((const unsigned char *)s + at, bytes - at, &c);
    if (letters > longest) longest = letters;
  }
  if (longest > UINT16_MAX) {
    snprintf(err->text, sizeof err->text, "a string of %zu letters is longer than a numpy file is written for (%d)",
             longest, UINT16_MAX);
    return false;
  }
  if (lathe_rt_tensor_new((LatheRtDevice){LATHE_RT_CPU, 0}, (LatheRtDType){LATHE_RT_STRING, 32, (uint16_t)longest},
                          from->ndim, from->shape, out, err) != LATHE_RT_OK)
    return false;
  for (size_t i = 0; i < n; i++) {
    uint32_t *to = (uint32_t *)(*out)->data + i * longest;
    if (lathe_rt_string_get(ex, number[i], &s, &bytes, err) != LATHE_RT_OK) return false;
    for (size_t at = 0; at < bytes;) at += decode((const unsigned char *)s + at, bytes - at, to++);
  }
  return true;
}

void cli_print_texts(const LatheRtExecutor *ex, const LatheRtTensor *t)
{
  enum { SHOWN = 8 };
  size_t n = count_of(t);
  size_t bytes;
  const char *s;
  LatheRtError err;
  printf(n ? "  first:" : "");
  for (size_t i = 0; i < n && i < SHOWN; i++) {
    if (lathe_rt_string_get(ex, ((const uint64_t *)t->data)[i], &s, &bytes, &err) != LATHE_RT_OK) break;
    printf(" \"");
    for (size_t k = 0; k < bytes; k++) {
      unsigned char c = (unsigned char)s[k];
      if (c < 0x20 || c == 0x7F) printf("\\x%02x", c);
      else if (c == '"' || c == '\\') printf("\\%c", c);
      else putchar(c);
    }
    putchar('"');
  }
  if (n) puts(n > SHOWN ? " …" : "");
}
