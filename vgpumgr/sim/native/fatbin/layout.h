/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of the entries of containers. Fields are copied out, never cast: images have no alignment. */
#ifndef FATBIN_LAYOUT_H
#define FATBIN_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CONTAINER_VERSION = 1, ENTRY_HEADER = 64, KIND_PTX = 1 };
enum {
	ENTRY_LZ4 = 0x2000,
	ENTRY_ZSTD = 0x8000,
	/* code for one architecture (or its family) only */
	ENTRY_SPECIFIC = 0x100000 | 0x200000 | 0x1000000,
};

struct entry_header {
	uint16_t kind, version;
	uint32_t header;
	uint64_t payload;
	uint32_t compressed, options, code_version, architecture, name_offset, name_length;
	uint64_t flags, reserved, uncompressed;
};

_Static_assert(sizeof(struct entry_header) == ENTRY_HEADER, "the part that all entries have");
_Static_assert(offsetof(struct entry_header, flags) == 40 && offsetof(struct entry_header, uncompressed) == 56, "as measured");

bool looks_like_ptx(const uint8_t *image, size_t limit);

#endif
