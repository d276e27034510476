/* SPDX-License-Identifier: Apache-2.0 */
/* Textures and surfaces: what their instructions share. */
#ifndef PTX_TEXTURE_H
#define PTX_TEXTURE_H

#include "ops.h"

/* An instruction's operands, by slot. Coordinates: x, y, z. */
struct texel_access {
	uint32_t object, results[4], coordinates[3], layer, predicate, lod, along[2][3];
	uint32_t rank, count, size; /* of the vector, and of its elements in bytes */
	uint32_t component, boundary;
	bool layered, whole, leveled, graded; /* whole: coordinates are numbers of texels */
};

/* texture.c */
/* NULL after a fault. */
const struct ptx_image *image_find(struct thread *t, const struct insn *i, uint64_t object, bool surface);
/* Takes the geometry and coordinates of operand n. False: not supported. */
bool access_geometry(struct body *b, struct statement *s, uint32_t n, enum type coordinate, struct texel_access *x);
bool access_take_rank(struct statement *s, struct texel_access *x);

#endif
