/* fail.c: the sentences of what went wrong. */
#include "internal.h"

LatheRtCode rt_fail(LatheRtError *err, LatheRtCode code, const char *fmt, ...)
{
  if (err) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
  }
  return code;
}

LatheRtError *rt_call_failed(const LatheRtCalls *calls, LatheRtCode code)
{
  CallState *state = calls ? calls->user : NULL;
  if (!state || atomic_exchange(&state->taken, 1)) return NULL;
  state->code = code;
  return &state->error;
}
