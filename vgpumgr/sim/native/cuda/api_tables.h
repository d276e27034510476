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

#define API __attribute__((visibility("default")))
#define WEAK __attribute__((weak, visibility("default")))

#include <cuda_rules.h>

/* For cuda_find_proc(). */
extern const struct cuda_proc api_procs[];
extern const size_t n_api_procs;

/* +1 while a _ptds/_ptsz variant runs: stream 0 then means the calling thread's own default stream. */
void default_stream_per_thread(int change);

#endif
