/* object.h: object files, as much of them as a model needs: data that is linked with kernels, other names for what an
 * object defines, an archive of one object.  ELF of 64 and of 32 bits.  Private to this folder. */
#ifndef LATHE_DRIVER_OBJECT_H
#define LATHE_DRIVER_OBJECT_H

#include <stdio.h>

#include "base/base.h"

/* A file being written (or changed in place); closed, unless that has been done, where an error unwinds. */
typedef struct ObjectFile {
  Ctx *ctx;
  FILE *f;
  const char *path;
} ObjectFile;
ObjectFile *object_open(Ctx *, const char *path, const char *mode);
void object_put(ObjectFile *, const void *, size_t);
void object_put_zeros(ObjectFile *, uint64_t);
void object_close(ObjectFile *); /* raises if it could not be written */

/* What kind of machine an object is for, read off another one: the two can be linked. */
typedef struct ObjectForm {
  bool wide; /* 64 bits */
  unsigned char ident[16];
  unsigned machine, flags;
  const char *attributes_name; /* a section that says more of the machine (ARM, RISC-V); NULL: none */
  const void *attributes;
  uint64_t nattributes;
} ObjectForm;
/* Raises if data cannot be written for it; target: its text, for the sentence.  Lives in scratch memory. */
ObjectForm object_form(Ctx *, const char *object, const char *target);

/* A piece of memory, a section of its own. */
typedef struct ObjectPart {
  const char *name;
  uint64_t bytes;
  unsigned align;
  const void *data;                               /* or NULL: … */
  void (*write)(ObjectFile *, const void *about); /* … this puts as many bytes */
  const void *about;
  bool writable;
  bool large; /* more than code need reach */
} ObjectPart;
/* A name that others see: part 0 and on are defined here, so many bytes into the part; -1: elsewhere. */
typedef struct ObjectSymbol {
  const char *name;
  int part;
  uint64_t at;
} ObjectSymbol;
/* The address of a part (and so many bytes on) or, where that is -1, of a symbol, to be put at this place. */
typedef struct ObjectAddress {
  uint64_t at;
  int part, symbol;
  uint64_t plus;
} ObjectAddress;
typedef struct ObjectData {
  int nparts, nsymbols, naddresses;
  const ObjectPart *part;
  const ObjectSymbol *symbol;
  const ObjectAddress *address; /* all in the last part */
} ObjectData;
void object_write(Ctx *, const ObjectForm *, const ObjectData *, const char *path);

/* Everything that the object defines is called PREFIX__NAME; those in weak keep their names beside it, as weak ones. */
void object_prefix(Ctx *, const char *object, const char *prefix, int nweak, const char *const *weak);
/* One symbol that the object defines gets another name. */
void object_rename(Ctx *, const char *object, const char *from, const char *to);
/* An archive of the object, whose index has these names. */
void object_archive(Ctx *, const char *object, int n, const char *const *names, const char *path);

#endif
