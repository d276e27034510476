/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the driver's compiler and linker, as they travel, and where the program keeps its logs. */
#ifndef VGPUMGR_JIT_H
#define VGPUMGR_JIT_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

struct shim_jit {
	uint64_t words[128];
	unsigned int count;      /* of pairs */
	void **info, **error;    /* where the program keeps the log buffers, */
	void **info_bytes, **error_bytes; /* and where it wants to be told how much was written */
};

CUresult shim_jit_read(struct shim_jit *jit, unsigned int count, const CUjit_option *options, void **values);
/* Room in one of the program's logs. */
uint32_t shim_jit_room(void **buffer, void **bytes);
/* Writes as much of it as there is room for, and how much. */
void shim_jit_log(const uint8_t *log, size_t length, void **buffer, void **bytes);

#endif
