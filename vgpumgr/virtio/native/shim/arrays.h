/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays as calls, copies, textures and contexts need them. */
#ifndef VGPUMGR_SHIM_ARRAYS_H
#define VGPUMGR_SHIM_ARRAYS_H

#include <cuda_rules.h>

#include "objects.h"

/* What a handle is made of. CUDA_ERROR_INVALID_HANDLE: it is none. */
CUresult shim_array(CUarray handle, struct cuda_array *array);
CUresult shim_mipmap(CUmipmappedArray handle, struct cuda_array *array);
/* What an object of SHIM_ARRAY or SHIM_MIPMAP holds; its levels go, too. */
void shim_array_free(struct shim_object *object);
/* NULL: out of memory. */
struct shim_object *shim_array_new(enum shim_table table, uint64_t context, const struct cuda_array *made, uint32_t levels,
				   uint64_t *id);
/* Ends a handle's making with its result. */
CUresult shim_array_publish(CUresult r, enum shim_table table, struct shim_object *object, uint64_t id);
/* Takes it out for the one caller that ends it, but no level; *levels gets what ends with it. */
bool shim_array_retire(enum shim_table table, uint64_t id, uint64_t **levels, uint32_t *count);
/* When the worker knows. */
void shim_levels_recycle(uint64_t *levels, uint32_t count);
/* Over the levels of a mipmapped array. */
void shim_arrays_lock(void);
void shim_arrays_unlock(void);

#endif
