/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of a machine by name, so that the program that creates one and changes one shares a table. */
#ifndef VGPUMGR_SIM_FIELDS_H
#define VGPUMGR_SIM_FIELDS_H

#include <stdio.h>

#include "simstate.h"

enum field_kind { FIELD_TEXT, FIELD_U32, FIELD_I32, FIELD_U64, FIELD_BOOL };

struct field {
	const char *name;
	enum field_kind kind;
	size_t offset, size;
};

/* Each table ends with a NULL name. */
extern const struct field machine_fields[], gpu_fields[], profile_fields[], vgpu_type_fields[];

/* Sets the field `name` of the structure at `base`. -ENOENT: no such field. -EINVAL or -ERANGE: bad value. */
int field_set(const struct field *table, void *base, const char *name, const char *value);
/* Prints each field as "<prefix><name> <value>". */
void fields_print(FILE *out, const struct field *table, const void *base, const char *prefix);

#endif
