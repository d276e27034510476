/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that the build makes from cudaTypedefs.h and cuda.h. */
#ifndef VGPUMGR_PROCS_H
#define VGPUMGR_PROCS_H

struct shim_proc {
	const char *name;
	int version;              /* of CUDA, since which the variant exists */
	int per_thread;
	void (*function)(void);
};

/* Sorted by name, then plain before per-thread, then by version. */
extern const struct shim_proc shim_procs[];
extern const unsigned int shim_procs_count;

struct shim_error_name {
	int code;
	const char *name;
};

extern const struct shim_error_name shim_error_names[];
extern const unsigned int shim_error_names_count;

#endif
