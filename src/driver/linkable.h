/* linkable.h: models that a C program links; private to this folder. */
#ifndef LATHE_DRIVER_LINKABLE_H
#define LATHE_DRIVER_LINKABLE_H

#include <stdio.h>

#include "driver/program.h"

/* What a model in this file is called in C. */
const char *linkable_name(Arena *, const char *path);
/* Head and end of a .c file: definitions get the model's name. */
void linkable_c_names(const Program *, const char *name, FILE *);
void linkable_c_aliases(const char *name, FILE *);
/* The same for what an object defines. */
void linkable_rename(Ctx *, const char *object, const char *name);
void linkable_archive(Ctx *, const char *object, const char *path, const char *name);
/* Raises when a file would take the place of one that Lathe did not write. */
void linkable_check_own(Ctx *, const char *path, const char *what);
void linkable_check_header(Ctx *, const char *path); /* the same of a model's header */
/* An identifier for a name of the model's: unlike all in `used`, which it joins. */
const char *linkable_identifier(Arena *, StrMap *used, const char *name, const char *stem);
const char *linkable_c_type(DType); /* of elements in arrays of the caller's */
/* Writes the header beside path: NAME_load, and NAME_run with typed inputs and outputs. */
void linkable_header(Program *, const char *path);

#endif
