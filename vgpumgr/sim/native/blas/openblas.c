/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenBLAS, found at run time: without it everything else of a simulated machine works, and nothing is linked that a host
 * with GPUs would need. It is loaded with this library, before a program gives up the right to open files.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "blas.h"

static void *library;

__attribute__((constructor)) static void load(void)
{
	void (*set_threads)(int);

	library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return;
	*(void **)&set_threads = dlsym(library, "openblas_set_num_threads");
	if (set_threads)
		set_threads(1); /* results are the same on all machines */
}

void *bl_routine(const char *name)
{
	return library ? dlsym(library, name) : NULL;
}

void *bl_typed_routine(int base, const char *name)
{
	char typed[32];

	snprintf(typed, sizeof typed, "%c%s", base == BL_R_32F ? 's' : base == BL_R_64F ? 'd' : base == BL_C_32F ? 'c' : 'z', name);
	return bl_routine(typed);
}
