/* plugin.c: shared libraries that bring the loader of a kind of module.
 *
 * A plugin for kind K is lathe_plugin_K.so in a folder of LATHE_PLUGIN_PATH, or in lathe-plugins beside the runtime; a
 * model says the kind and nothing of the path.  File and folder must be such that only root and this user can change
 * them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "call.h"

enum { PLUGIN_PATH_BYTES = 1024 };

static LatheRtCode check_plugin_owner(const char *path, LatheRtError *err)
{
  struct stat st;
  if (stat(path, &st))
    return rt_fail(err, errno == ENOENT ? LATHE_RT_NOT_FOUND : LATHE_RT_IO, "plugin '%s': %s", path, strerror(errno));
  if ((st.st_uid && st.st_uid != geteuid()) || st.st_mode & (S_IWGRP | S_IWOTH))
    return rt_fail(err, LATHE_RT_UNSUPPORTED, "plugin: others may write '%s'; chmod go-w", path);
  return LATHE_RT_OK;
}

static LatheRtCode check_plugin(const char *path, const LatheRtPlugin *p, const char *kind, LatheRtError *err)
{
  const char *what = NULL;
  if (!p || memcmp(p->magic, "LATHEPL", 8)) what = "is no plugin: it has no table 'lathe_plugin'";
  else if (p->abi != LATHE_RT_ABI) what = "is for another ABI of the runtime; build it again";
  else if (p->size < sizeof *p || !p->kind || !p->load) what = "has a broken table";
  else if (kind && strcmp(kind, p->kind)) what = "brings another kind than its name says";
  return what ? rt_fail(err, LATHE_RT_UNSUPPORTED, "plugin '%s' %s", path, what) : LATHE_RT_OK;
}

static LatheRtCode open_plugin(const char *path, const char *kind, LatheRtError *err)
{
  const char *slash = strrchr(path, '/');
  if (*path != '/' || strlen(path) >= PLUGIN_PATH_BYTES)
    return rt_fail(err, LATHE_RT_ARGUMENT, "plugin '%.200s': give an absolute path", path);
  char folder[PLUGIN_PATH_BYTES];
  snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
  RT_TRY(check_plugin_owner(path, err));
  RT_TRY(check_plugin_owner(folder, err));
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return rt_fail(err, LATHE_RT_IO, "plugin: %s", dlerror());
  const LatheRtPlugin *p = dlsym(handle, "lathe_plugin");
  LatheRtCode code = check_plugin(path, p, kind, err);
  if (code == LATHE_RT_OK) code = lathe_rt_module_kind_add(p->kind, p->load, p->user, err);
  if (code != LATHE_RT_OK) dlclose(handle);
  return code;
}

LatheRtCode lathe_rt_plugin_load(const char *path, LatheRtError *err)
{
  return path ? open_plugin(path, NULL, err) : rt_null(err, "plugin_load");
}

/* May a file be called so?  A letter, a digit, _ or -. */
static bool is_plain(char c)
{
  char small = (char)(c | 32);
  return (small >= 'a' && small <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/* The first folder of the list that has it. */
static LatheRtCode find_plugin_in(const char *folders, const char *kind, bool *found, LatheRtError *err)
{
  char path[PLUGIN_PATH_BYTES];
  struct stat st;
  for (size_t n; *folders && !*found; folders += n + (folders[n] == ':')) {
    n = strcspn(folders, ":");
    int want = snprintf(path, sizeof path, "%.*s/lathe_plugin_%s.so", (int)n, folders, kind);
    *found = n && want < PLUGIN_PATH_BYTES && stat(path, &st) == 0;
  }
  return *found ? open_plugin(path, kind, err) : LATHE_RT_OK;
}

LatheRtCode rt_plugin_find(const char *kind, LatheRtError *err)
{
  bool found = false;
  const char *folders = getenv("LATHE_PLUGIN_PATH");
  char own[PLUGIN_PATH_BYTES];
  Dl_info here;
  for (const char *p = kind; *p; p++)
    if (!is_plain(*p)) return LATHE_RT_OK;
  if (folders) RT_TRY(find_plugin_in(folders, kind, &found, err));
  const char *slash = dladdr((void *)(uintptr_t)rt_plugin_find, &here) ? strrchr(here.dli_fname, '/') : NULL;
  if (found || !slash || *here.dli_fname != '/') return LATHE_RT_OK;
  snprintf(own, sizeof own, "%.*s/lathe-plugins", (int)(slash - here.dli_fname), here.dli_fname);
  return find_plugin_in(own, kind, &found, err);
}
