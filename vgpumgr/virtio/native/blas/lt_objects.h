/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of cuBLASLt: lists of what a program has set, in memory that it may have brought along. */
#ifndef VGPUMGR_LT_OBJECTS_H
#define VGPUMGR_LT_OBJECTS_H

#include <lt_wire.h>

#include "blas.h"

struct lt_object;

/* The value of an attribute, or what it is where none was set. */
uint64_t lt_value(const struct lt_object *o, unsigned int number, uint64_t otherwise);
/* NULL where it is no object of that kind. */
struct lt_object *lt_object(void *opaque, enum lt_object_kind kind);
/* Its attributes as they travel. Returns the words written; 0: there is no room. */
size_t lt_pack(const struct lt_object *o, uint64_t *words, size_t room);

#endif
