/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the PTX for a device in a fat binary, and unpacking it. */
#include "layout.h"

#include <cuda_image.h>
#include <fatbin.h>

#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/* Bounds on what a few bytes may unpack to. */
enum { LARGEST_TEXT = 256 << 20, LARGEST_RATIO = 4096 };

struct candidate {
	struct entry_header header;
	const uint8_t *payload;
	uint32_t seen; /* PTX entries of any architecture */
	uint32_t lowest;
};

static bool specific(const struct entry_header *e)
{
	return e->flags & ENTRY_SPECIFIC;
}

/* The highest architecture not above the device's; of two, the one that is not tied to it. */
static void consider(struct candidate *best, const struct entry_header *e, const uint8_t *payload, uint32_t cc)
{
	if (e->kind != KIND_PTX)
		return;
	if (!best->seen++ || e->architecture < best->lowest)
		best->lowest = e->architecture;
	if (e->architecture > cc || (specific(e) && e->architecture != cc))
		return;
	if (best->payload && (best->header.architecture > e->architecture ||
			      (best->header.architecture == e->architecture && !specific(&best->header))))
		return;
	best->header = *e;
	best->payload = payload;
}

/* Steps through the entries by the lengths that they give. */
static bool scan(const uint8_t *body, size_t length, uint32_t cc, struct candidate *best)
{
	size_t at = 0;

	while (length - at >= ENTRY_HEADER) {
		struct entry_header e;

		memcpy(&e, body + at, sizeof e);
		if (e.header < ENTRY_HEADER || e.header > length - at || e.payload > length - at - e.header)
			return false;
		consider(best, &e, body + at + e.header, cc);
		at += e.header + (size_t)e.payload;
	}
	return true;
}

static int say(char *error, size_t size, int status, const char *text)
{
	snprintf(error, size, "%s", text);
	return status;
}

static bool unpack(const struct candidate *c, char *out, size_t size)
{
	const char *packed = (const char *)c->payload;

	if (c->header.flags & ENTRY_LZ4)
		return LZ4_decompress_safe(packed, out, (int)c->header.compressed, (int)size) == (int)size;
	return ZSTD_decompress(out, size, packed, c->header.compressed) == size;
}

static int extract(const struct candidate *c, char **text, size_t *length, char *error, size_t error_size)
{
	const struct entry_header *e = &c->header;
	bool packed = e->flags & (ENTRY_LZ4 | ENTRY_ZSTD);
	uint64_t size = packed ? e->uncompressed : e->payload;

	if (packed && (!e->compressed || e->compressed > e->payload))
		return say(error, error_size, FATBIN_MALFORMED, "fat binary: compressed length beyond the entry");
	if (size > LARGEST_TEXT || (packed && size / LARGEST_RATIO > e->compressed))
		return say(error, error_size, FATBIN_TOO_LARGE, "fat binary: PTX unpacks to more than it may");
	*text = malloc((size_t)size + 1);
	if (!*text)
		return say(error, error_size, FATBIN_NO_MEMORY, "fat binary: no memory");
	if (!packed) {
		memcpy(*text, c->payload, (size_t)size);
	} else if (!unpack(c, *text, (size_t)size)) {
		free(*text);
		*text = NULL;
		return say(error, error_size, FATBIN_MALFORMED, "fat binary: PTX cannot be unpacked");
	}
	(*text)[size] = 0;
	*length = strlen(*text); /* padding follows the text */
	return FATBIN_OK;
}

static int copy_text(const void *image, size_t length, char **text, size_t *text_length, char *error, size_t error_size)
{
	size_t n = strnlen(image, length);

	*text = malloc(n + 1);
	if (!*text)
		return say(error, error_size, FATBIN_NO_MEMORY, "no memory");
	memcpy(*text, image, n);
	(*text)[n] = 0;
	*text_length = n;
	return FATBIN_OK;
}

int fatbin_find_ptx(const void *image, size_t length, uint32_t cc, char **text, size_t *text_length, char *error,
		    size_t error_size)
{
	const uint8_t *bytes = image;
	struct candidate best = { .payload = NULL };
	struct cuda_container head;
	size_t n;

	*text = NULL;
	*text_length = 0;
	if (looks_like_ptx(bytes, length))
		return copy_text(image, length, text, text_length, error, error_size);
	if (length >= 4 && !memcmp(bytes, "\177ELF", 4))
		return say(error, error_size, FATBIN_NO_PTX, "image is machine code without PTX");
	if (!cuda_container_length(bytes, length, &head))
		return say(error, error_size, FATBIN_MALFORMED, "image is no fat binary");
	while ((n = cuda_container_length(bytes, length, &head))) {
		if (head.version != CONTAINER_VERSION)
			return say(error, error_size, FATBIN_MALFORMED, "fat binary: unknown version");
		if (!scan(bytes + head.header, n - head.header, cc, &best))
			return say(error, error_size, FATBIN_MALFORMED, "fat binary: entry beyond its container");
		bytes += n;
		length -= n;
	}
	if (best.payload)
		return extract(&best, text, text_length, error, error_size);
	if (best.seen)
		snprintf(error, error_size, "fat binary has PTX from compute capability %u.%u on only, the device has %u.%u",
			 best.lowest / 10, best.lowest % 10, cc / 10, cc % 10);
	else
		snprintf(error, error_size, "fat binary holds no PTX");
	return FATBIN_NO_PTX;
}
