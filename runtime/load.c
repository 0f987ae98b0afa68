/* load.c: opening a shared library without letting a bad file crash the process.
 *
 * The dynamic loader maps what the program headers say and faults on pages that a
 * truncated file does not have, so the headers are read and checked first. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#if defined(__ELF__)
#include <elf.h>
#if UINTPTR_MAX > UINT32_MAX
typedef Elf64_Ehdr Header;
typedef Elf64_Phdr Segment;
enum { OUR_CLASS = ELFCLASS64 };
#else
typedef Elf32_Ehdr Header;
typedef Elf32_Phdr Segment;
enum { OUR_CLASS = ELFCLASS32 };
#endif

static const char *machine_name(unsigned machine)
{
  switch (machine) {
  case EM_X86_64: return "x86_64";
  case EM_386: return "i386";
  case EM_AARCH64: return "aarch64";
  case EM_ARM: return "arm";
  case EM_RISCV: return "riscv";
  }
  return "another machine";
}

static bool read_at(int fd, void *out, size_t n, uint64_t at)
{
  return at <= INT64_MAX && pread(fd, out, n, (off_t)at) == (ssize_t)n;
}

/* Every loadable segment must lie within the file. */
static LatheRtCode check_segments(const char *path, int fd, const Header *h, uint64_t size, LatheRtError *err)
{
  for (unsigned i = 0; i < h->e_phnum; i++) {
    Segment p;
    if (!read_at(fd, &p, sizeof p, h->e_phoff + (uint64_t)i * sizeof p))
      return rt_fail(err, LATHE_RT_IO, "'%s' is truncated: its program headers are missing", path);
    if (p.p_type == PT_LOAD && (p.p_offset > size || p.p_filesz > size - p.p_offset))
      return rt_fail(err, LATHE_RT_IO, "'%s' is truncated: it has %llu bytes, its segments want %llu", path,
                     (unsigned long long)size, (unsigned long long)p.p_offset + p.p_filesz);
  }
  return LATHE_RT_OK;
}

static LatheRtCode check_file(const char *path, int fd, LatheRtError *err)
{
  struct stat st;
  if (fstat(fd, &st) != 0) return rt_fail(err, LATHE_RT_IO, "'%s' cannot be read: %s", path, strerror(errno));
  if (!S_ISREG(st.st_mode)) return rt_fail(err, LATHE_RT_IO, "'%s' is not a file", path);
  Header h;
  if (!read_at(fd, &h, sizeof h, 0) || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_type != ET_DYN)
    return rt_fail(err, LATHE_RT_IO, "'%s' is not a shared library", path);
  const char *machine = machine_name(h.e_machine);
  if (h.e_ident[EI_CLASS] != OUR_CLASS || strncmp(machine, rt_cpu_arch(), strlen(machine)) != 0)
    return rt_fail(err, LATHE_RT_UNSUPPORTED, "'%s' is for %s, this machine is %s", path, machine, rt_cpu_arch());
  if (h.e_phentsize != sizeof(Segment)) return rt_fail(err, LATHE_RT_IO, "'%s' is not a shared library", path);
  return check_segments(path, fd, &h, (uint64_t)st.st_size, err);
}
#else
static LatheRtCode check_file(const char *path, int fd, LatheRtError *err)
{
  (void)path;
  (void)fd;
  (void)err;
  return LATHE_RT_OK;
}
#endif

/* The loader hands out what it has under the same name, even when the file has been
 * replaced since.  So each open spells the name anew: folder, then the bits of a
 * counter as "./" and ".//", then the file. */
static char *fresh_name(const char *path)
{
  static atomic_uint opened;
  unsigned count = atomic_fetch_add(&opened, 1);
  const char *slash = strrchr(path, '/');
  size_t folder = slash ? (size_t)(slash + 1 - path) : 0;
  char *name = malloc(strlen(path) + 3 * 8 * sizeof count + 3);
  if (!name) return NULL;
  memcpy(name, path, folder);
  char *p = name + folder;
  do {
    memcpy(p, ".//", 3);
    p += 2 + (count & 1);
    count >>= 1;
  } while (count);
  memcpy(p, path + folder, strlen(path + folder) + 1);
  return name;
}

LatheRtCode rt_library_open(const char *path, void **handle, LatheRtError *err)
{
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    LatheRtCode code = errno == ENOENT ? LATHE_RT_NOT_FOUND : LATHE_RT_IO;
    return rt_fail(err, code, "'%s' cannot be opened: %s", path, strerror(errno));
  }
  LatheRtCode code = check_file(path, fd, err);
  close(fd);
  if (code != LATHE_RT_OK) return code;
  char *name = fresh_name(path);
  if (!name) return rt_no_memory(err, "module_load");
  *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  free(name);
  if (!*handle) return rt_fail(err, LATHE_RT_IO, "'%s' cannot be loaded: %s", path, dlerror());
  return LATHE_RT_OK;
}
