/* SPDX-License-Identifier: Apache-2.0 */
/* What a texture or surface object stands for, as kernels read and write it. Texels lie in device memory, row by row. */
#ifndef VGPUMGR_PTX_IMAGE_H
#define VGPUMGR_PTX_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

enum { PTX_LEVELS = 18 }; /* of the widest array, 131072 elements */

enum ptx_texel { PTX_U8, PTX_U16, PTX_U32, PTX_S8, PTX_S16, PTX_S32, PTX_F16, PTX_F32 };
/* As CUaddress_mode has them. */
enum ptx_address { PTX_WRAP, PTX_CLAMP, PTX_MIRROR, PTX_BORDER };

struct ptx_level {
	uint64_t base, pitch, slice;
	uint32_t width, height, depth; /* depth: slices, or layers; none of them is 0 */
};

struct ptx_image {
	bool surface;
	bool linear;     /* a line of memory: read by number, nothing beside it */
	bool layered;
	enum ptx_texel texel;
	uint32_t channels, rank; /* rank: without the layers */
	/* of textures */
	enum ptx_address address[3];
	bool normalized; /* coordinates from 0 to 1 */
	bool filtered;   /* between texels */
	bool fractions;  /* integers are read as numbers from 0 or -1 to 1 */
	float border[4];
	bool between_levels;
	float bias, least, most; /* of the level of detail */
	uint32_t n_levels;
	struct ptx_level levels[PTX_LEVELS];
};

static inline uint32_t ptx_texel_bytes(enum ptx_texel texel)
{
	return texel == PTX_U8 || texel == PTX_S8 ? 1 : texel == PTX_U32 || texel == PTX_S32 || texel == PTX_F32 ? 4 : 2;
}

#endif
