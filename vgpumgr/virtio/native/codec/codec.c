/* SPDX-License-Identifier: Apache-2.0 */
#include "codec.h"

extern inline void vg_encoder_init(struct vg_encoder *e, void *buffer, size_t size);
extern inline void vg_put_u64(struct vg_encoder *e, uint64_t value);
extern inline void vg_put_i32(struct vg_encoder *e, int32_t value);
extern inline int vg_encoder_end(const struct vg_encoder *e);
extern inline void vg_decoder_init(struct vg_decoder *d, const void *payload, size_t length);
extern inline uint64_t vg_get_u64(struct vg_decoder *d);
extern inline uint32_t vg_get_u32(struct vg_decoder *d);
extern inline int32_t vg_get_i32(struct vg_decoder *d);
extern inline int vg_decoder_end(const struct vg_decoder *d);

void vg_put_f32(struct vg_encoder *e, float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	vg_put_u64(e, bits);
}

void vg_put_bytes(struct vg_encoder *e, const void *data, size_t length, size_t cap)
{
	size_t padded = (length + 7) & ~(size_t)7;

	if (length > cap || (length && !data))
		e->failed = true;
	vg_put_u64(e, length);
	if (e->failed || (size_t)(e->end - e->at) < padded) {
		e->failed = true;
		return;
	}
	if (padded) {
		memset(e->at + padded - 8, 0, 8);
		memcpy(e->at, data, length);
	}
	e->at += padded;
}

float vg_get_f32(struct vg_decoder *d)
{
	uint32_t bits = vg_get_u32(d);
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static bool zero(const uint8_t *at, const uint8_t *end)
{
	for (; at < end; at++)
		if (*at)
			return false;
	return true;
}

struct vg_bytes vg_get_bytes(struct vg_decoder *d, size_t cap)
{
	struct vg_bytes found = { 0 };
	uint64_t length = vg_get_u64(d);
	size_t padded;

	if (d->failed || length > cap) {
		d->failed = true;
		return found;
	}
	padded = (length + 7) & ~(size_t)7;
	if ((size_t)(d->end - d->at) < padded || !zero(d->at + length, d->at + padded)) {
		d->failed = true;
		return found;
	}
	found = (struct vg_bytes){ .data = d->at, .length = length };
	d->at += padded;
	return found;
}

struct vg_bytes vg_get_string(struct vg_decoder *d, size_t cap)
{
	struct vg_bytes found = vg_get_bytes(d, cap);

	if (!d->failed && found.length && memchr(found.data, 0, found.length) == (const char *)found.data + found.length - 1)
		return found;
	d->failed = true;
	return (struct vg_bytes){ .data = "", .length = 1 };
}

uint64_t vg_get_handle(struct vg_decoder *d, uint32_t tag)
{
	uint64_t handle = vg_get_u64(d);

	if (handle && (vg_handle_tag(handle) != tag || !vg_handle_generation(handle)))
		d->failed = true;
	return d->failed ? 0 : handle;
}

uint64_t vg_get_mint(struct vg_decoder *d, uint32_t tag)
{
	uint64_t handle = vg_get_handle(d, tag);

	if (!handle)
		d->failed = true;
	return handle;
}

size_t vg_get_array(struct vg_decoder *d, void *array, size_t cap)
{
	struct vg_bytes found = vg_get_bytes(d, cap);

	if (found.length)
		memcpy(array, found.data, found.length);
	return found.length;
}
