/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The primitives that generated encoders and decoders call, and nothing else; docs/wire-format.md, "Calls".
 *
 * Both ends are sticky: after the first thing that does not fit nothing is read or written any more, values are zero,
 * and vg_encoder_end() or vg_decoder_end() says so. The decoder reads a private copy of the payload, never shared
 * memory, and allocates nothing: blobs point into that copy.
 */
#ifndef VGPUMGR_CODEC_H
#define VGPUMGR_CODEC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire is little-endian, and so must be the host"
#endif

struct vg_bytes {
	const void *data;
	size_t length;
};

struct vg_encoder {
	uint8_t *at, *end;
	bool failed;
};

struct vg_decoder {
	const uint8_t *at, *end;
	bool failed;
};

enum {
	VG_HANDLE_TAG_SHIFT = 56,
	VG_HANDLE_GENERATION_SHIFT = 32,
	VG_HANDLE_GENERATION_MAX = (1 << 24) - 1,
};

static inline uint32_t vg_handle_tag(uint64_t handle)
{
	return handle >> VG_HANDLE_TAG_SHIFT;
}

static inline uint32_t vg_handle_generation(uint64_t handle)
{
	return (handle >> VG_HANDLE_GENERATION_SHIFT) & VG_HANDLE_GENERATION_MAX;
}

static inline uint32_t vg_handle_slot(uint64_t handle)
{
	return (uint32_t)handle;
}

static inline uint64_t vg_handle_make(uint32_t tag, uint32_t generation, uint32_t slot)
{
	return (uint64_t)tag << VG_HANDLE_TAG_SHIFT | (uint64_t)generation << VG_HANDLE_GENERATION_SHIFT | slot;
}

/* Bytes on the wire of a blob: its length word and its data, padded. */
static inline size_t vg_blob_size(size_t length)
{
	return 8 + ((length + 7) & ~(size_t)7);
}

/* Inline is what nearly every call uses: a forwarded call is a few hundred instructions in all. */

inline void vg_encoder_init(struct vg_encoder *e, void *buffer, size_t size)
{
	*e = (struct vg_encoder){ .at = buffer, .end = (uint8_t *)buffer + size };
}

inline void vg_put_u64(struct vg_encoder *e, uint64_t value)
{
	if (e->failed || (size_t)(e->end - e->at) < sizeof(value)) {
		e->failed = true;
		return;
	}
	memcpy(e->at, &value, sizeof(value));
	e->at += sizeof(value);
}

inline void vg_put_i32(struct vg_encoder *e, int32_t value)
{
	vg_put_u64(e, (uint64_t)(int64_t)value);
}

void vg_put_f32(struct vg_encoder *e, float value);
/* More than cap bytes, or a NULL with a length, fails the encoder. */
void vg_put_bytes(struct vg_encoder *e, const void *data, size_t length, size_t cap);

/* 0, or -EMSGSIZE if something did not fit or the buffer was not filled exactly. */
inline __attribute__((warn_unused_result)) int vg_encoder_end(const struct vg_encoder *e)
{
	return e->failed || e->at != e->end ? -EMSGSIZE : 0;
}

inline void vg_decoder_init(struct vg_decoder *d, const void *payload, size_t length)
{
	*d = (struct vg_decoder){ .at = payload, .end = (const uint8_t *)payload + length };
}

inline uint64_t vg_get_u64(struct vg_decoder *d)
{
	uint64_t value;

	if (d->failed || (size_t)(d->end - d->at) < sizeof(value)) {
		d->failed = true;
		return 0;
	}
	memcpy(&value, d->at, sizeof(value));
	d->at += sizeof(value);
	return value;
}

inline uint32_t vg_get_u32(struct vg_decoder *d)
{
	uint64_t value = vg_get_u64(d);

	if (value > UINT32_MAX) {
		d->failed = true;
		return 0;
	}
	return value;
}

inline int32_t vg_get_i32(struct vg_decoder *d)
{
	int64_t value = (int64_t)vg_get_u64(d);

	if (value < INT32_MIN || value > INT32_MAX) {
		d->failed = true;
		return 0;
	}
	return value;
}

float vg_get_f32(struct vg_decoder *d);
struct vg_bytes vg_get_bytes(struct vg_decoder *d, size_t cap);
/* length counts the NUL, which is the last byte and the only NUL. */
struct vg_bytes vg_get_string(struct vg_decoder *d, size_t cap);

/* 0, or a handle with this tag and a generation. */
uint64_t vg_get_handle(struct vg_decoder *d, uint32_t tag);
/* As vg_get_handle, and never 0. */
uint64_t vg_get_mint(struct vg_decoder *d, uint32_t tag);
/* Copies a blob into a fixed array of a reply. */
size_t vg_get_array(struct vg_decoder *d, void *array, size_t cap);

/* 0, or -EPROTO if anything was wrong or something is left over. */
inline __attribute__((warn_unused_result)) int vg_decoder_end(const struct vg_decoder *d)
{
	return d->failed || d->at != d->end ? -EPROTO : 0;
}

#endif
