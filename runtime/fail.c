/* fail.c: the sentences of what went wrong. */
#include <string.h>

#include "internal.h"

/* Words, and what err says already behind them if it is to be kept. */
static void put_words(LatheRtError *err, bool keep, const char *fmt, va_list ap)
{
  LatheRtError inner;
  if (!err) return;
  if (keep) inner = *err;
  int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
  if (keep && n >= 0 && (size_t)n < sizeof err->text)
    snprintf(err->text + n, sizeof err->text - (size_t)n, "%s", inner.text);
}

LatheRtCode rt_fail(LatheRtError *err, LatheRtCode code, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  put_words(err, false, fmt, ap);
  va_end(ap);
  return code;
}

LatheRtCode rt_within(LatheRtError *err, LatheRtCode code, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  if (code != LATHE_RT_OK) put_words(err, true, fmt, ap);
  va_end(ap);
  return code;
}

LatheRtCode rt_broken(LatheRtError *err, const char *fmt, ...)
{
  va_list ap;
  va_start(ap, fmt);
  put_words(err, false, fmt, ap);
  va_end(ap);
  return rt_within(err, LATHE_RT_ARGUMENT, "the model is broken: ");
}

LatheRtCode rt_no_memory(LatheRtError *err, const char *who)
{
  return rt_fail(err, LATHE_RT_MEMORY, "%s: out of memory", who);
}

LatheRtCode rt_null(LatheRtError *err, const char *who)
{
  return rt_fail(err, LATHE_RT_ARGUMENT, "%s: an argument is null", who);
}

LatheRtCode rt_take_struct(void *to, size_t room, const void *from, uint32_t size, size_t least, const char *who,
                           LatheRtError *err)
{
  if (size < least)
    return rt_fail(err, LATHE_RT_ARGUMENT, "%s: a table of %u bytes, wants %zu; set its size", who, size, least);
  memset(to, 0, room);
  memcpy(to, from, size < room ? size : room);
  return LATHE_RT_OK;
}

void rt_add_name(char *out, size_t n, const char *name)
{
  static const char more[] = ", …";
  size_t used = strlen(out);
  if (used + strlen(name) + 16 < n) snprintf(out + used, n - used, "%s'%s'", used ? ", " : "", name);
  else if (used && !strstr(out, more)) snprintf(out + used, n - used, "%s", more);
}

LatheRtError *rt_call_failed(const LatheRtCalls *calls, LatheRtCode code)
{
  CallState *state = calls ? calls->user : NULL;
  if (!state || atomic_exchange(&state->taken, 1)) return NULL;
  state->code = code;
  return &state->error;
}
