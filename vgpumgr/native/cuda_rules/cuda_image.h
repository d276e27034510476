/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Module images: a loader is given their start only. Layout as in NVIDIA's public fatbinary_section.h and nvcc's output.
 * Needs no cuda.h.
 */
#ifndef VGPUMGR_CUDA_IMAGE_H
#define VGPUMGR_CUDA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The head of a fat binary's container. */
struct cuda_container {
	uint32_t magic;
	uint16_t version, header;
	uint64_t body;
};
_Static_assert(sizeof(struct cuda_container) == 16, "as in every image seen");

/* What the structure in .nvFatBinSegment points to, if `image` is one, else `image`. NULL: it points to nothing. */
const void *cuda_unwrap_image(const void *image);
/* Starts like a container or an ELF file, which may still be damaged. Otherwise an image is text. */
bool cuda_is_binary_image(const void *image);
/*
 * Length of the ELF file or container at `image`; 0: there is none, or it reaches beyond `limit`. Containers that follow
 * one another count where a limit says how far may be read; SIZE_MAX: unknown, as in cuModuleLoadData.
 */
size_t cuda_binary_image_length(const void *image, size_t limit);
/* Length of the container at `image`, whose head is copied, or 0. */
size_t cuda_container_length(const void *image, size_t limit, struct cuda_container *head);

#endif
