/* dtype.c: element types and single values of them.
 *
 * Every float kind but float32 and float64 is described by one row of `formats`;
 * rounding, encoding and decoding work from that row. */
#include "expr/expr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Format {
  uint8_t code, bits;
  int exponent, mantissa, bias;
  bool has_inf;
  bool fnuz;   /* no infinity, no negative zero; 0x80 is NaN */
  bool finite; /* no infinity, no NaN: the largest value and zero instead */
  double max;
  const char *name;
} Format;

/* clang-format off */
static const Format formats[] = {
    {DT_FLOAT, 16, 5, 10, 15, true, false, false, 65504, "float16"},
    {DT_BFLOAT, 16, 8, 7, 127, true, false, false, 0x1.fep127, "bfloat16"},
    {DT_E4M3FN, 8, 4, 3, 7, false, false, false, 448, "float8_e4m3fn"},
    {DT_E5M2, 8, 5, 2, 15, true, false, false, 57344, "float8_e5m2"},
    {DT_E4M3FNUZ, 8, 4, 3, 8, false, true, false, 240, "float8_e4m3fnuz"},
    {DT_E5M2FNUZ, 8, 5, 2, 16, false, true, false, 57344, "float8_e5m2fnuz"},
    {DT_E8M0FNU, 8, 8, 0, 127, false, false, false, 0x1p127, "float8_e8m0fnu"},
    {DT_E2M1FN, 4, 2, 1, 1, false, false, true, 6, "float4_e2m1fn"},
};
/* clang-format on */
#define NFORMATS ((int)(sizeof formats / sizeof *formats))

static const Format *find_format(DType t)
{
  for (int i = 0; i < NFORMATS; i++)
    if (formats[i].code == t.code && formats[i].bits == t.bits) return &formats[i];
  return NULL;
}

const char *dtype_name(Arena *arena, DType t)
{
  const Format *format = find_format(t);
  char base[32];
  if (t.code == DT_VOID) return "void";
  if (t.code == DT_HANDLE) snprintf(base, sizeof base, "handle");
  else if (dtype_is_string(t)) snprintf(base, sizeof base, "string");
  else if (dtype_is_bool(t)) snprintf(base, sizeof base, "bool");
  else if (format) snprintf(base, sizeof base, "%s", format->name);
  else snprintf(base, sizeof base, "%s%d", t.code == DT_INT ? "int" : t.code == DT_UINT ? "uint" : "float", t.bits);
  if (dtype_is_scalable(t)) return arena_printf(arena, "%sxvscalex%d", base, t.lanes & MAX_LANES);
  return t.lanes == 1 ? arena_strdup(arena, base) : arena_printf(arena, "%sx%d", base, t.lanes);
}

/* The kinds written as a word and a number of bits, or a fixed word. */
static bool parse_base(const char *s, size_t n, DType *out)
{
  static const struct {
    const char *word;
    DType dtype;
  } words[] = {
    {"bool", {DT_UINT, 1, 1}},    {"handle", {DT_HANDLE, 64, 1}}, {"void", {DT_VOID, 0, 1}},
    {"string", {DT_TEXT, 64, 1}}, {"int", {DT_INT, 32, 1}},       {"uint", {DT_UINT, 32, 1}},
    {"float", {DT_FLOAT, 32, 1}},
  };
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strlen(words[i].word) == n && !memcmp(s, words[i].word, n)) return *out = words[i].dtype, true;
  for (int i = 0; i < NFORMATS; i++)
    if (strlen(formats[i].name) == n && !memcmp(s, formats[i].name, n))
      return *out = DTYPE(formats[i].code, formats[i].bits), true;
  uint8_t code = !strncmp(s, "int", 3) ? DT_INT : !strncmp(s, "uint", 4) ? DT_UINT : DT_FLOAT;
  size_t skip = code == DT_INT ? 3 : code == DT_UINT ? 4 : 5;
  if ((code == DT_FLOAT && strncmp(s, "float", 5)) || n <= skip || n > skip + 2) return false;
  int bits = 0;
  for (size_t i = skip; i < n; i++) {
    if (s[i] < '0' || s[i] > '9') return false;
    bits = bits * 10 + (s[i] - '0');
  }
  if (bits < 1 || bits > 64 || (code == DT_FLOAT && bits != 32 && bits != 64)) return false;
  *out = DTYPE(code, (uint8_t)bits);
  return true;
}

bool dtype_parse(const char *s, DType *out)
{
  size_t n = strlen(s);
  const char *x = strrchr(s, 'x');
  if (!x || !x[1] || strspn(x + 1, "0123456789") != strlen(x + 1)) return parse_base(s, n, out);
  long lanes = strtol(x + 1, NULL, 10);
  if (lanes < 1 || lanes > MAX_LANES || !parse_base(s, (size_t)(x - s), out)) return false;
  out->lanes = (uint16_t)lanes;
  return true;
}

int64_t dtype_imin(DType t) { return t.code == DT_UINT ? 0 : t.bits == 64 ? INT64_MIN : -((int64_t)1 << (t.bits - 1)); }

int64_t dtype_imax(DType t)
{
  if (t.code == DT_UINT) return t.bits == 64 ? -1 : (int64_t)((1ull << t.bits) - 1);
  return t.bits == 64 ? INT64_MAX : ((int64_t)1 << (t.bits - 1)) - 1;
}

double dtype_max(DType t)
{
  const Format *format = find_format(t);
  if (format) return format->max;
  if (t.code == DT_FLOAT) return t.bits == 32 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
  return t.code == DT_UINT ? (double)(uint64_t)dtype_imax(t) : (double)dtype_imax(t);
}

double dtype_min(DType t)
{
  if (t.code == DT_E8M0FNU) return 0x1p-127;
  return dtype_is_float(t) ? -dtype_max(t) : (double)dtype_imin(t);
}

/* The nearest power of two from 2^-127 on; NaN for what is negative or too large. */
static double round_to_power(double x)
{
  static const double HALF_WAY = 0.75;
  int exp;
  if (!(x >= 0) || isinf(x)) return (double)NAN;
  if (x == 0) return 0x1p-127;
  double part = frexp(x, &exp); /* x = part 2^exp, part in [0.5, 1) */
  int e = part >= HALF_WAY ? exp : exp - 1;
  return e > 127 ? (double)NAN : ldexp(1, e < -127 ? -127 : e);
}

double float_round(DType t, double x)
{
  const Format *format = find_format(t);
  if (!format) return t.bits == 32 ? (double)(float)x : x;
  if (t.code == DT_E8M0FNU) return round_to_power(x);
  if (isnan(x)) return format->finite ? 0 : x;
  if (isinf(x)) return format->has_inf ? x : format->finite ? copysign(format->max, x) : (double)NAN;
  int exp;
  frexp(x, &exp);                /* |x| in [2^(exp-1), 2^exp) */
  int lowest = 1 - format->bias; /* exponent of the smallest normal */
  int unit = (exp - 1 < lowest ? lowest : exp - 1) - format->mantissa;
  double r = ldexp(nearbyint(ldexp(x, -unit)), unit);
  if (fabs(r) > format->max)
    return format->has_inf ? copysign(INFINITY, x) : format->finite ? copysign(format->max, x) : (double)NAN;
  return format->fnuz && r == 0 ? 0.0 : r;
}

/* x is representable. */
static uint16_t encode(const Format *f, double x)
{
  enum { POWER_NAN = 0xff };
  if (f->code == DT_E8M0FNU) return isnan(x) ? POWER_NAN : (uint16_t)(ilogb(x) + f->bias);
  uint16_t sign = signbit(x) ? (uint16_t)(1u << (f->bits - 1)) : 0;
  uint16_t top = (uint16_t)(((1u << f->exponent) - 1) << f->mantissa); /* all exponent bits */
  if (isnan(x)) {
    if (f->fnuz) return 0x80;
    return f->has_inf ? (uint16_t)(sign | top | (1u << (f->mantissa - 1)))
                      : (uint16_t)(sign | top | ((1u << f->mantissa) - 1));
  }
  if (isinf(x)) return sign | top;
  int exp;
  double m = fabs(x);
  if (m == 0) return f->fnuz ? 0 : sign;
  frexp(m, &exp);
  int e = exp - 1 + f->bias;
  if (e < 1) return (uint16_t)(sign | (uint16_t)ldexp(m, f->bias - 1 + f->mantissa));
  uint16_t frac = (uint16_t)(ldexp(m, f->mantissa - (exp - 1)) - (double)(1 << f->mantissa));
  return (uint16_t)(sign | (e << f->mantissa) | frac);
}

static double decode(const Format *f, uint16_t bits)
{
  enum { POWER_NAN = 0xff };
  if (f->code == DT_E8M0FNU) return bits == POWER_NAN ? (double)NAN : ldexp(1, bits - f->bias);
  uint16_t mask = (uint16_t)((1u << f->mantissa) - 1);
  uint16_t emask = (uint16_t)((1u << f->exponent) - 1);
  int frac = bits & mask;
  int e = (bits >> f->mantissa) & emask;
  bool neg = bits >> (f->bits - 1) & 1;
  if (f->fnuz && bits == 0x80) return (double)NAN;
  if (!f->fnuz && !f->finite && e == emask) {
    if (f->has_inf) return frac ? copysign((double)NAN, neg ? -1 : 1) : neg ? -INFINITY : INFINITY;
    if (frac == mask) return copysign((double)NAN, neg ? -1 : 1);
  }
  double m = e ? ldexp((double)(frac + (1 << f->mantissa)), e - f->bias - f->mantissa)
               : ldexp((double)frac, 1 - f->bias - f->mantissa);
  return neg ? -m : m;
}

uint16_t float_to_half(float x) { return encode(&formats[0], float_round(DT_F16, x)); }
float float_from_half(uint16_t bits) { return (float)decode(&formats[0], bits); }

Value value_int(DType t, int64_t i)
{
  if (t.bits < 64) {
    if (t.code == DT_UINT) i &= dtype_imax(t);
    else i = (int64_t)((uint64_t)i << (64 - t.bits)) >> (64 - t.bits);
  }
  return (Value){.dtype = t, .i = i};
}

Value value_float(DType t, double f) { return (Value){.dtype = t, .f = float_round(t, f)}; }

static int64_t saturate(DType t, double x)
{
  if (isnan(x)) return 0;
  x = trunc(x);
  if (t.code == DT_UINT) {
    if (x <= 0) return 0;
    double top = t.bits == 64 ? 0x1p64 : (double)(dtype_imax(t)) + 1;
    return x >= top ? dtype_imax(t) : (int64_t)(uint64_t)x;
  }
  if (x < (double)dtype_imin(t)) return dtype_imin(t);
  return x >= -(double)dtype_imin(t) ? dtype_imax(t) : (int64_t)x;
}

Value value_cast(Value v, DType t)
{
  bool from_float = dtype_is_float(v.dtype);
  if (t.code == DT_HANDLE || v.dtype.code == DT_HANDLE) return (Value){.dtype = t, .i = v.i};
  if (dtype_is_bool(t)) return value_int(t, from_float ? v.f != 0 : v.i != 0);
  if (dtype_is_float(t)) {
    if (from_float) return value_float(t, v.f);
    bool wide = v.dtype.code == DT_UINT;
    if (t.bits == 32 && t.code == DT_FLOAT) /* one rounding, not two */
      return (Value){.dtype = t, .f = wide ? (double)(float)(uint64_t)v.i : (double)(float)v.i};
    return value_float(t, wide ? (double)(uint64_t)v.i : (double)v.i);
  }
  return from_float ? (Value){.dtype = t, .i = saturate(t, v.f)} : value_int(t, v.i);
}

Value value_load(DType t, const void *p)
{
  const Format *format = find_format(t);
  uint64_t bits = 0;
  memcpy(&bits, p, (size_t)dtype_bytes(t)); /* little endian hosts */
  t = dtype_elem(t);
  if (format) return (Value){.dtype = t, .f = decode(format, (uint16_t)bits)};
  if (t.code == DT_FLOAT) {
    float f;
    double d;
    uint32_t low = (uint32_t)bits;
    memcpy(&f, &low, 4);
    memcpy(&d, &bits, 8);
    return (Value){.dtype = t, .f = t.bits == 32 ? (double)f : d};
  }
  if (dtype_is_bool(t)) return (Value){.dtype = t, .i = bits != 0};
  return t.code == DT_HANDLE ? (Value){.dtype = t, .i = (int64_t)bits} : value_int(t, (int64_t)bits);
}

void value_store(Value v, void *p)
{
  const Format *format = find_format(v.dtype);
  uint64_t bits = (uint64_t)v.i;
  if (format) {
    bits = encode(format, v.f);
  } else if (v.dtype.code == DT_FLOAT) {
    float f = (float)v.f;
    uint32_t low;
    memcpy(&low, &f, 4);
    memcpy(&bits, &v.f, 8);
    if (v.dtype.bits == 32) bits = low;
  }
  memcpy(p, &bits, (size_t)dtype_bytes(v.dtype));
}

bool value_eq(Value a, Value b)
{
  if (!dtype_eq(a.dtype, b.dtype)) return false;
  if (dtype_is_float(a.dtype)) return (isnan(a.f) && isnan(b.f)) || (a.f == b.f && signbit(a.f) == signbit(b.f));
  return a.i == b.i;
}
