/* npy.c: tensors in numpy's files.
 *
 * In: .npy (any version, C order), members of .npz that are stored without compression.
 * Out: tensors of the runtime; .npy and .npz files.  Every length is checked against the
 * file before it is believed. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static bool fail(LatheRtError *err, const char *path, const char *why)
{
  snprintf(err->text, sizeof err->text, "'%s': %s", path, why);
  return false;
}

typedef struct Bytes {
  uint8_t *p;
  size_t n;
} Bytes;

static bool read_all(const char *path, Bytes *out, LatheRtError *err)
{
  FILE *f = fopen(path, "rb");
  long n = -1;
  if (f && !fseek(f, 0, SEEK_END)) n = ftell(f);
  out->p = n >= 0 && n < LONG_MAX ? malloc((size_t)n + 1) : NULL; /* a folder says LONG_MAX */
  bool ok = out->p && !fseek(f, 0, SEEK_SET) && fread(out->p, 1, (size_t)n, f) == (size_t)n;
  const char *why = f && n == LONG_MAX ? strerror(EISDIR) : strerror(errno);
  if (f) fclose(f);
  out->n = ok ? (size_t)n : 0;
  if (ok) return true;
  free(out->p);
  char text[96];
  snprintf(text, sizeof text, "cannot be read: %s", why);
  return fail(err, path, text);
}

/* ---- dtypes ----------------------------------------------------------------------------- */

static const struct {
  const char *descr;
  LatheRtDType dtype;
} dtypes[] = {
  {"<f4", {2, 32, 1}}, {"<f8", {2, 64, 1}}, {"<f2", {2, 16, 1}}, {"|i1", {0, 8, 1}},
  {"<i2", {0, 16, 1}}, {"<i4", {0, 32, 1}}, {"<i8", {0, 64, 1}}, {"|u1", {1, 8, 1}},
  {"<u2", {1, 16, 1}}, {"<u4", {1, 32, 1}}, {"<u8", {1, 64, 1}}, {"|b1", {6, 8, 1}},
};
#define NDTYPES (sizeof dtypes / sizeof *dtypes)

/* The runtime writes a bool in three ways. */
static bool is_bool(LatheRtDType t) { return t.code == 6 || (t.code == 1 && t.bits == 1); }

const char *cli_dtype_text(LatheRtDType t, char out[24])
{
  static const char *const kinds[] = {[0] = "int",
                                      [1] = "uint",
                                      [2] = "float",
                                      [4] = "bfloat",
                                      [10] = "float8_e4m3fn",
                                      [11] = "float8_e4m3fnuz",
                                      [12] = "float8_e5m2",
                                      [13] = "float8_e5m2fnuz",
                                      [14] = "float8_e8m0fnu",
                                      [17] = "float4_e2m1fn"};
  const char *kind = t.code < sizeof kinds / sizeof *kinds ? kinds[t.code] : NULL;
  if (is_bool(t)) snprintf(out, 24, "bool");
  else if (t.code == LATHE_RT_STRING) snprintf(out, 24, "string");
  else if (kind && t.code >= 10) snprintf(out, 24, "%s", kind);
  else snprintf(out, 24, "%s%d", kind ? kind : "dtype", t.bits);
  return out;
}

static const char *descr_of(LatheRtDType t)
{
  for (size_t i = 0; i < NDTYPES; i++)
    if (is_bool(t) ? is_bool(dtypes[i].dtype) : dtypes[i].dtype.code == t.code && dtypes[i].dtype.bits == t.bits)
      return dtypes[i].descr;
  return NULL;
}

/* '<U5' or '|S5': text of so many letters or bytes each (texts.c). */
static bool text_dtype(const char *descr, LatheRtDType *out)
{
  bool letters = !strncmp(descr, "<U", 2);
  char *end;
  if ((!letters && strncmp(descr, "|S", 2)) || descr[2] < '1' || descr[2] > '9') return false;
  long n = strtol(descr + 2, &end, 10);
  *out = (LatheRtDType){LATHE_RT_STRING, letters ? 32 : 8, (uint16_t)n};
  return *end == '\'' && n <= UINT16_MAX;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* The header is a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), } */
static bool parse_header(const char *path, const char *head, LatheRtDType *dtype, int32_t *ndim, int64_t *shape,
                         LatheRtError *err)
{
  const char *descr = strstr(head, "'descr':");
  const char *order = strstr(head, "'fortran_order':");
  const char *dims = strstr(head, "'shape':");
  if (!descr || !order || !dims) return fail(err, path, "has no numpy header");
  if (!strncmp(order + 16 + strspn(order + 16, " "), "True", 4))
    return fail(err, path, "is in Fortran order; save numpy.ascontiguousarray of it");
  descr = strchr(descr + 8, '\'');
  size_t i = 0;
  for (; i < NDTYPES; i++)
    if (descr && !strncmp(descr + 1, dtypes[i].descr, 3) && descr[4] == '\'') break;
  if (i < NDTYPES) *dtype = dtypes[i].dtype;
  else if (!descr || !text_dtype(descr + 1, dtype)) return fail(err, path, "has a dtype that tensors cannot have");
  const char *p = strchr(dims, '(');
  *ndim = 0;
  for (p = p ? p + 1 : dims; *p && *p != ')';) {
    char *end;
    long long d = strtoll(p, &end, 10);
    if (end == p) {
      p++;
      continue;
    }
    if (*ndim == LATHE_RT_MAX_RANK) return fail(err, path, "has more dimensions than the 16 that tensors may have");
    if (d < 0) return fail(err, path, "has a shape that tensors cannot have");
    shape[(*ndim)++] = d;
    p = end;
  }
  return *p == ')' || fail(err, path, "has no numpy header");
}

static bool parse_npy(const char *path, const uint8_t *p, size_t n, LatheRtTensor **out, LatheRtError *err)
{
  if (n < 12 || memcmp(p, "\x93NUMPY", 6)) return fail(err, path, "is not a numpy file");
  size_t at = p[6] == 1 ? 10 : 12;
  size_t head =
      p[6] == 1 ? p[8] | (size_t)p[9] << 8 : p[8] | (size_t)p[9] << 8 | (size_t)p[10] << 16 | (size_t)p[11] << 24;
  if (head > n - at || head > 65536) return fail(err, path, "ends inside its header");
  char *text = malloc(head + 1);
  if (!text) return fail(err, path, "there is no memory for it");
  memcpy(text, p + at, head);
  text[head] = 0;
  LatheRtDType dtype = {0};
  int32_t ndim = 0;
  int64_t shape[LATHE_RT_MAX_RANK];
  bool ok = parse_header(path, text, &dtype, &ndim, shape, err);
  free(text);
  LatheRtTensor like = {.ndim = ndim, .dtype = dtype, .shape = shape};
  size_t bytes;
  if (!ok || lathe_rt_tensor_bytes(&like, &bytes, err) != LATHE_RT_OK) return false;
  if (bytes > n - at - head) return fail(err, path, "ends before its last element");
  if (lathe_rt_tensor_new((LatheRtDevice){LATHE_RT_CPU, 0}, dtype, ndim, shape, out, err) != LATHE_RT_OK) return false;
  memcpy((*out)->data, p + at + head, bytes);
  return true;
}

static uint32_t u16(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t u32(const uint8_t *p) { return u16(p) | u16(p + 2) << 16; }

/* Goes over the central directory at the end of a zip file.  `each` is handed an entry and the length of its name, and
 * stops the walk by true; true: it did. */
typedef bool (*EntryFn)(void *user, const uint8_t *entry, size_t name);
static bool walk_zip(Bytes zip, EntryFn each, void *user, bool *is_zip)
{
  size_t end = zip.n < 22 ? 0 : zip.n - 22;
  while (end && u32(zip.p + end) != 0x06054b50) end--;
  *is_zip = zip.n >= 22 && u32(zip.p + end) == 0x06054b50;
  if (!*is_zip) return false;
  size_t at = u32(zip.p + end + 16);
  for (uint32_t k = u16(zip.p + end + 10); k > 0; k--) {
    if (at > zip.n - 46 || zip.n < 46 || u32(zip.p + at) != 0x02014b50) break;
    size_t len = u16(zip.p + at + 28);
    if (len > zip.n - at - 46) break;
    if (each(user, zip.p + at, len)) return true;
    at += 46 + len + u16(zip.p + at + 30) + u16(zip.p + at + 32);
  }
  return false;
}

typedef struct Wanted {
  const char *name;
  const uint8_t *entry;
} Wanted;

static bool is_wanted(void *user, const uint8_t *entry, size_t len)
{
  Wanted *w = user;
  const char *key = (const char *)entry + 46;
  w->entry = entry;
  return len == strlen(w->name) + 4 && !memcmp(key, w->name, len - 4) && !memcmp(key + len - 4, ".npy", 4);
}

/* A member of a zip file. */
static bool find_member(const char *path, Bytes zip, const char *name, const uint8_t **out, size_t *n,
                        LatheRtError *err)
{
  Wanted w = {name, NULL};
  bool is_zip;
  bool found = walk_zip(zip, is_wanted, &w, &is_zip);
  if (!is_zip) return fail(err, path, "is not an npz file");
  if (found && u16(w.entry + 10) != 0)
    return fail(err, path, "is compressed; save it with numpy.savez, not savez_compressed");
  size_t size = found ? u32(w.entry + 20) : 0;
  size_t local = found ? u32(w.entry + 42) : 0;
  if (found && zip.n >= 30 && local <= zip.n - 30) {
    size_t data = local + 30 + u16(zip.p + local + 26) + u16(zip.p + local + 28);
    if (data <= zip.n && size <= zip.n - data) {
      *out = zip.p + data;
      *n = size;
      return true;
    }
  }
  snprintf(err->text, sizeof err->text, "'%s': holds no array '%s'", path, name);
  return false;
}

typedef struct Names {
  char **v;
  int n;
  bool full;
} Names;

static bool take_name(void *user, const uint8_t *entry, size_t len)
{
  Names *names = user;
  const char *key = (const char *)entry + 46;
  if (len < 4 || memcmp(key + len - 4, ".npy", 4) != 0) return false;
  char **grown = realloc(names->v, ((size_t)names->n + 1) * sizeof *grown);
  if (grown) names->v = grown;
  char *name = grown ? strndup(key, len - 4) : NULL;
  if (name) names->v[names->n++] = name;
  names->full = !name;
  return !name;
}

int npy_names(const char *path, char ***out, LatheRtError *err)
{
  Bytes file;
  Names names = {0};
  bool is_zip;
  if (!read_all(path, &file, err)) return -1;
  walk_zip(file, take_name, &names, &is_zip);
  free(file.p);
  *out = names.v;
  if (is_zip && !names.full) return names.n;
  for (int i = 0; i < names.n; i++) free(names.v[i]);
  free(names.v);
  fail(err, path, names.full ? "there is no memory for it" : "is not an npz file");
  return -1;
}

bool npy_read(const char *path, const char *name, LatheRtTensor **out, LatheRtError *err)
{
  Bytes file;
  if (!read_all(path, &file, err)) return false;
  const uint8_t *p = file.p;
  size_t n = file.n;
  bool ok = !cli_ends_with(path, ".npz") || find_member(path, file, name, &p, &n, err);
  ok = ok && parse_npy(path, p, n, out, err);
  free(file.p);
  return ok;
}

/* ---- writing ---------------------------------------------------------------------------------- */

static bool make_header(const char *path, const LatheRtTensor *t, char head[256], LatheRtError *err)
{
  const char *descr = descr_of(t->dtype);
  char text[16];
  if (t->dtype.code == LATHE_RT_STRING && t->dtype.bits == 32)
    snprintf(text, sizeof text, "<U%u", t->dtype.lanes), descr = text;
  if (!descr) return fail(err, path, "numpy has no dtype for this tensor");
  int n = snprintf(head + 10, 200, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (int32_t i = 0; i < t->ndim; i++)
    n += snprintf(head + 10 + n, 200 - (size_t)n, "%lld,%s", (long long)t->shape[i], i + 1 < t->ndim ? " " : "");
  n += snprintf(head + 10 + n, 200 - (size_t)n, "), }");
  int total = (10 + n + 1 + 63) / 64 * 64;
  memset(head + 10 + n, ' ', (size_t)(total - 10 - n - 1));
  head[total - 1] = '\n';
  memcpy(head, "\x93NUMPY\x01\x00", 8);
  head[8] = (char)((total - 10) & 255);
  head[9] = (char)((total - 10) >> 8);
  return true;
}

static size_t header_bytes(const char head[256]) { return 10 + ((uint8_t)head[8] | (size_t)(uint8_t)head[9] << 8); }

bool npy_write(const char *path, const LatheRtTensor *t, LatheRtError *err)
{
  char head[256];
  size_t bytes;
  if (!make_header(path, t, head, err) || lathe_rt_tensor_bytes(t, &bytes, err) != LATHE_RT_OK) return false;
  FILE *f = fopen(path, "wb");
  bool ok = f && fwrite(head, 1, header_bytes(head), f) == header_bytes(head) &&
            fwrite((char *)t->data + t->byte_offset, 1, bytes, f) == bytes;
  if (f && fclose(f)) ok = false;
  return ok || fail(err, path, "cannot be written");
}

static uint32_t crc_more(uint32_t crc, const uint8_t *p, size_t n)
{
  for (crc = ~crc; n; n--, p++) {
    crc ^= *p;
    for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
  }
  return ~crc;
}

static void put(uint8_t *p, int bytes, uint64_t v)
{
  for (int i = 0; i < bytes; i++) p[i] = (uint8_t)(v >> (8 * i));
}

/* The 26 bytes that the local header and the central directory have in common, from "version needed" on. */
static void put_common(uint8_t *p, uint32_t crc, size_t size, size_t name)
{
  memset(p, 0, 26);
  put(p, 2, 20);
  put(p + 8, 2, 0x21); /* 1 January 1980 */
  put(p + 10, 4, crc);
  put(p + 14, 4, size);
  put(p + 18, 4, size);
  put(p + 22, 2, name);
}

bool npy_write_archive(const char *path, int n, const char *const *names, const LatheRtTensor *const *tensors,
                       LatheRtError *err)
{
  FILE *f = fopen(path, "wb");
  size_t at = 0;
  size_t central = 0;
  uint8_t *dir = malloc(1);
  bool ok = f && dir;
  for (int i = 0; ok && i < n; i++) {
    char head[256], name[300];
    size_t bytes = 0;
    size_t len = (size_t)snprintf(name, sizeof name, "%.290s.npy", names[i]);
    if (!make_header(path, tensors[i], head, err) || lathe_rt_tensor_bytes(tensors[i], &bytes, err) != LATHE_RT_OK)
      goto refused;
    const uint8_t *data = (const uint8_t *)tensors[i]->data + tensors[i]->byte_offset;
    size_t size = header_bytes(head) + bytes;
    if (size > UINT32_MAX - 65536 || at + size > UINT32_MAX - 65536) {
      fail(err, path, "an npz file holds at most 4 GB; write .npy files into a folder");
      goto refused;
    }
    uint32_t crc = crc_more(crc_more(0, (uint8_t *)head, header_bytes(head)), data, bytes);
    uint8_t local[30] = {'P', 'K', 3, 4};
    uint8_t *grown = realloc(dir, central + 46 + len);
    if (!grown) break;
    dir = grown;
    put_common(local + 4, crc, size, len);
    uint8_t *e = dir + central;
    memset(e, 0, 46);
    memcpy(e, "PK\x01\x02", 4);
    put(e + 4, 2, 20);
    put_common(e + 6, crc, size, len);
    put(e + 42, 4, at);
    memcpy(e + 46, name, len);
    central += 46 + len;
    ok = fwrite(local, 1, 30, f) == 30 && fwrite(name, 1, len, f) == len &&
         fwrite(head, 1, header_bytes(head), f) == header_bytes(head) && fwrite(data, 1, bytes, f) == bytes;
    at += 30 + len + size;
  }
  uint8_t end[22] = {'P', 'K', 5, 6};
  put(end + 8, 2, (uint64_t)n);
  put(end + 10, 2, (uint64_t)n);
  put(end + 12, 4, central);
  put(end + 16, 4, at);
  ok = ok && fwrite(dir, 1, central, f) == central && fwrite(end, 1, 22, f) == 22;
  if (f && fclose(f)) ok = false;
  free(dir);
  return ok || fail(err, path, "cannot be written");
refused:
  fclose(f);
  free(dir);
  return false;
}
