/* SPDX-License-Identifier: Apache-2.0 */
/* How a texture answers for coordinates. */
#ifndef PTX_SAMPLE_H
#define PTX_SAMPLE_H

#include "ops.h"

/* The four channels of a texel, as float or as 32-bit integers. */
union texel {
	float f[4];
	uint32_t u[4];
};

/* What one thread samples, while it does. */
struct sample {
	struct thread *thread;
	const struct insn *insn;
	const struct ptx_image *image;
	bool is_float;   /* its texels */
	uint32_t layer;
	bool whole;      /* the coordinates */
	float at[3];
	int32_t index[3];
};

/* False after a fault. */
bool sample_texel(const struct sample *s, float lod, union texel *out);
bool sample_gather(const struct sample *s, uint32_t component, union texel *out);

#endif
