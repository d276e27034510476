/* SPDX-License-Identifier: Apache-2.0 */
/* Texture and surface objects that this process has. */
#ifndef VGPUMGR_SHIM_TEXTURES_H
#define VGPUMGR_SHIM_TEXTURES_H

#include <cuda.h>

#include "objects.h"

struct shim_texture {
	struct shim_texture *next;
	uint64_t number, context, id;
	bool surface;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
};

enum shim_table shim_texture_table(bool surface);
void shim_texture_add(struct shim_texture *object, uint64_t number);
/* Takes it out, for the caller to free; NULL: there is none. */
struct shim_texture *shim_texture_take(uint64_t context, uint64_t number, bool surface);
/* What it is made of, and how it is read; false: there is none. */
bool shim_texture_look(uint64_t context, uint64_t number, bool surface, CUDA_RESOURCE_DESC *resource,
		       CUDA_TEXTURE_DESC *texture);
/* What a context had is gone with it. */
void shim_texture_forget(uint64_t context);

#endif
