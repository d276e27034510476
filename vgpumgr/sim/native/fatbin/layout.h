/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of containers and their entries. Fields are copied out, never cast: images have no alignment. */
#ifndef FATBIN_LAYOUT_H
#define FATBIN_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONTAINER_MAGIC 0xba55ed50u
enum { CONTAINER_VERSION = 1, CONTAINER_HEADER = 16, ENTRY_HEADER = 64, KIND_PTX = 1 };
enum {
	ENTRY_LZ4 = 0x2000,
	ENTRY_ZSTD = 0x8000,
	/* code for one architecture (or its family) only */
	ENTRY_SPECIFIC = 0x100000 | 0x200000 | 0x1000000,
};

struct container_header {
	uint32_t magic;
	uint16_t version, header;
	uint64_t body;
};

struct entry_header {
	uint16_t kind, version;
	uint32_t header;
	uint64_t payload;
	uint32_t compressed, options, code_version, architecture, name_offset, name_length;
	uint64_t flags, reserved, uncompressed;
};

_Static_assert(sizeof(struct container_header) == CONTAINER_HEADER, "as in every image seen");
_Static_assert(sizeof(struct entry_header) == ENTRY_HEADER, "the part that all entries have");
_Static_assert(offsetof(struct entry_header, flags) == 40 && offsetof(struct entry_header, uncompressed) == 56, "as measured");

/* Total length of the container at `image`, or 0 if there is none within `limit`. */
size_t container_length(const uint8_t *image, size_t limit);
bool looks_like_ptx(const uint8_t *image, size_t limit);

#endif
