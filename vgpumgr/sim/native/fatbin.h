/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fat binaries: the containers that nvcc embeds. Layout as measured in NVIDIA's public fatbinary_section.h and nvcc's
 * output. Finds the PTX for a device and unpacks it (LZ4 and zstd).
 */
#ifndef VGPUMGR_FATBIN_H
#define VGPUMGR_FATBIN_H

#include <stddef.h>
#include <stdint.h>

enum fatbin_status {
	FATBIN_OK = 0,
	FATBIN_MALFORMED,  /* CUDA_ERROR_INVALID_IMAGE */
	FATBIN_NO_PTX,     /* only machine code, or only PTX for newer devices: CUDA_ERROR_NO_BINARY_FOR_GPU */
	FATBIN_TOO_LARGE,  /* unpacks to more than the bound */
	FATBIN_NO_MEMORY,
};

/*
 * Length of the image that starts at `image`, which may be a fat-binary container (several may follow one another),
 * an ELF file or PTX text. Reads at most `limit` bytes (SIZE_MAX where unknown, as in cuModuleLoadData).
 * Returns 0 if it is none of these.
 */
size_t fatbin_image_length(const void *image, size_t limit);

/*
 * The PTX best suited for compute capability `cc` (80 for 8.0): highest architecture not above cc.
 * *text is malloc'ed and NUL-terminated. `image` may also be PTX text itself. `error` (of `error_size`) gets a message.
 */
int fatbin_find_ptx(const void *image, size_t length, uint32_t cc, char **text, size_t *text_length, char *error,
		    size_t error_size);

#endif
