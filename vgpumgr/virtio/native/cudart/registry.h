/* SPDX-License-Identifier: Apache-2.0 */
/* How the registry's tables are filled. Nothing here touches the driver: a program without a GPU may still start. */
#ifndef VGPUMGR_CUDART_REGISTRY_H
#define VGPUMGR_CUDART_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>

#include "driver.h"

/* What nvcc hands to __cudaRegisterFatBinary(); see fatbinary_section.h. */
struct fatbin_wrapper {
	int magic;             /* FATBIN_WRAPPER_MAGIC */
	int version;           /* 1, or 2: linked device code */
	const void *container;
	const void *extra;     /* version 1: a file's name; 2: NULL-ended list of the containers before linking */
};
_Static_assert(sizeof(struct fatbin_wrapper) == 24, "layout of nvcc's fat-binary wrapper");

enum { FATBIN_WRAPPER_MAGIC = 0x466243b1 };

struct image; /* one registered fat binary */

/* NULL: not a fat binary, or no memory. */
struct image *registry_add_image(const struct fatbin_wrapper *wrapper);
/* Unloads it everywhere and forgets its kernels and variables. */
void registry_remove_image(struct image *image);
/* A library that the program has loaded: an image that the driver keeps. NULL: no memory. */
struct image *registry_add_library(CUlibrary library);
/* NULL: not one of ours. */
struct image *registry_find_library(CUlibrary library);
/* A kernel of a library, which a program passes where it would pass a kernel's host stub; what the driver says of it. */
CUresult registry_add_library_kernel(CUlibrary library, CUkernel kernel);
/* Names are not copied: they live as long as the program's text. */
void registry_add_kernel(struct image *image, const void *host, const char *name);
void registry_add_variable(struct image *image, const void *host, const char *name);
/* A managed variable: known, so that its use is refused by that name and not as an unknown symbol. */
void registry_add_managed(struct image *image, const void *host, const char *name);

#endif
