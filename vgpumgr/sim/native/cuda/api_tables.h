/* SPDX-License-Identifier: Apache-2.0 */
/* What gen_api.py makes from NVIDIA's headers at build time. */
#ifndef VGPUMGR_CUDA_API_TABLES_H
#define VGPUMGR_CUDA_API_TABLES_H

#include <stdbool.h>
#include <stddef.h>

/* What cuda.h declares is what this library exports. */
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#define WEAK __attribute__((weak, visibility("default")))

/* One version of one name, as cuGetProcAddress knows it; version 11040 is CUDA 11.4. */
struct api_proc {
	const char *name;
	int version;
	bool per_thread_stream;
	void *address;
};
extern const struct api_proc api_procs[];
extern const size_t n_api_procs;

struct api_error {
	int value;
	const char *name;
};
extern const struct api_error api_errors[];
extern const size_t n_api_errors;

/* +1 while a _ptds/_ptsz variant runs: stream 0 then means the calling thread's own default stream. */
void default_stream_per_thread(int change);

#endif
