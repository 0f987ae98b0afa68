#define _GNU_SOURCE
/* file.c: files, temporary folders, child processes. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <libgen.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

extern char **environ;

static void close_fd(void *arg) { close((int)(intptr_t)arg); }

char *file_read(Arena *arena, const char *path, size_t *n, size_t limit)
{
  Ctx *ctx = arena_ctx(arena);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) raise(ctx, ERR_IO, NOWHERE, "cannot read '%s': %s", path, strerror(errno));
  defer(ctx, close_fd, (void *)(intptr_t)fd);
  struct stat st;
  if (fstat(fd, &st) || !S_ISREG(st.st_mode)) raise(ctx, ERR_IO, NOWHERE, "cannot read '%s': not a regular file", path);
  if (limit && (size_t)st.st_size > limit)
    raise(ctx, ERR_IO, NOWHERE, "'%s' has %lld bytes; at most %zu are read", path, (long long)st.st_size, limit);
  char *data = arena_alloc(arena, (size_t)st.st_size + 1);
  size_t got = 0;
  while (got < (size_t)st.st_size) {
    ssize_t k = read(fd, data + got, (size_t)st.st_size - got);
    if (k < 0 && errno == EINTR) continue;
    if (k < 0) raise(ctx, ERR_IO, NOWHERE, "cannot read '%s': %s", path, strerror(errno));
    if (k == 0) break;
    got += (size_t)k;
  }
  data[got] = 0;
  if (n) *n = got;
  return data;
}

static void unlink_path(void *arg) { unlink(arg); }

void file_write(Ctx *ctx, const char *path, const void *data, size_t n)
{
  Scope scope = scope_begin(ctx);
  char *temp = arena_printf(scratch(ctx), "%s.XXXXXX", path);
  int fd = mkstemp(temp);
  if (fd < 0) raise(ctx, ERR_IO, NOWHERE, "cannot write '%s': %s", path, strerror(errno));
  defer(ctx, unlink_path, temp); /* harmless after the rename */
  FILE *f = fdopen(fd, "wb");
  if (!f) close(fd);
  bool ok = f && fwrite(data, 1, n, f) == n;
  if (f && fclose(f)) ok = false;
  mode_t mask = umask(0);
  umask(mask);
  if (!ok || chmod(temp, 0666 & ~mask) || rename(temp, path))
    raise(ctx, ERR_IO, NOWHERE, "cannot write '%s': %s", path, strerror(errno));
  scope_end(ctx, scope);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
  (void)st, (void)flag, (void)ftw;
  return remove(path);
}

static void remove_tree(void *arg)
{
  nftw(arg, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  free(arg);
}

void file_check_output(Ctx *ctx, const char *path)
{
  Scope scope = scope_begin(ctx);
  struct stat st;
  char *copy = arena_strdup(scratch(ctx), path);
  const char *folder = dirname(copy);
  if (!*path) raise(ctx, ERR_IO, NOWHERE, "'' cannot be written: it is no name of a file");
  if (stat(folder, &st))
    raise(ctx, ERR_IO, NOWHERE, "'%s' cannot be written: the folder '%s' %s", path, folder,
          errno == ENOENT ? "does not exist" : strerror(errno));
  if (!S_ISDIR(st.st_mode)) raise(ctx, ERR_IO, NOWHERE, "'%s' cannot be written: '%s' is no folder", path, folder);
  if (access(folder, W_OK | X_OK))
    raise(ctx, ERR_IO, NOWHERE, "'%s' cannot be written: the folder '%s': %s", path, folder, strerror(errno));
  if (!stat(path, &st) && S_ISDIR(st.st_mode))
    raise(ctx, ERR_IO, NOWHERE, "'%s' cannot be written: it is a folder", path);
  scope_end(ctx, scope);
}

bool process_exists(Arena *arena, const char *name)
{
  if (strchr(name, '/')) return !access(name, X_OK);
  const char *p = getenv("PATH");
  while (p && *p) {
    size_t n = strcspn(p, ":");
    if (!access(arena_printf(arena, "%.*s/%s", n ? (int)n : 1, n ? p : ".", name), X_OK)) return true;
    p += n + (p[n] == ':');
  }
  return false;
}

const char *file_temp_dir(Ctx *ctx)
{
  const char *base = getenv("TMPDIR");
  char *path = NULL;
  if (asprintf(&path, "%s/lathe-XXXXXX", base && *base ? base : "/tmp") < 0)
    raise(ctx, ERR_MEMORY, NOWHERE, "out of memory");
  if (!mkdtemp(path)) {
    int err = errno;
    free(path);
    raise(ctx, ERR_IO, NOWHERE, "cannot make a temporary folder: %s", strerror(err));
  }
  defer(ctx, remove_tree, path);
  return path;
}

/* Reads to the end, keeps the first `cap` bytes; allocates nothing, so that the
 * child is waited for whatever happens. */
static size_t read_all(int fd, char *buf, size_t cap)
{
  size_t n = 0;
  char rest[4096];
  for (;;) {
    ssize_t k = n < cap ? read(fd, buf + n, cap - n) : read(fd, rest, sizeof rest);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return n;
    if (n < cap) n += (size_t)k;
  }
}

int process_run(Arena *arena, const char *const *argv, const char **out)
{
  Ctx *ctx = arena_ctx(arena);
  int pipes[2];
  if (pipe(pipes)) raise(ctx, ERR_IO, NOWHERE, "cannot start '%s': %s", argv[0], strerror(errno));
  defer(ctx, close_fd, (void *)(intptr_t)pipes[0]);
  fcntl(pipes[0], F_SETFD, FD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
  posix_spawn_file_actions_adddup2(&actions, pipes[1], 2);
  posix_spawn_file_actions_addclose(&actions, pipes[1]);
  pid_t pid;
  int err = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipes[1]);
  if (err) raise(ctx, ERR_IO, NOWHERE, "cannot start '%s': %s", argv[0], strerror(err));
  char said[65536];
  size_t n = read_all(pipes[0], said, sizeof said);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (out) *out = arena_strndup(arena, said, n);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const char *file_self_dir(Arena *arena)
{
  Dl_info info;
  if (!dladdr((void *)(uintptr_t)file_self_dir, &info) || !info.dli_fname) return ".";
  char *real = realpath(info.dli_fname, NULL);
  if (!real) return ".";
  const char *dir = arena_strdup(arena, dirname(real));
  free(real);
  return dir;
}

double clock_seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
