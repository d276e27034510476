/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "wire.h"

enum { SIZE_MIN = 1 << 20, SIZE_MAX_BYTES = 1 << 30, SIZE_LARGE = 16 << 20 };

static uint32_t pages_down(uint64_t bytes)
{
	return (uint32_t)(bytes & ~(uint64_t)(VG_PAGE - 1));
}

int vg_layout(uint64_t size, struct vg_layout *layout)
{
	bool large = size >= SIZE_LARGE;

	if (size < SIZE_MIN || size > SIZE_MAX_BYTES || (size & (size - 1)))
		return -EINVAL;
	layout->size = size;
	layout->lane_count = large ? VG_RING_LANES_MAX : 4;
	layout->submit_size = large ? 256 << 10 : 64 << 10;
	layout->reply_size = large ? 64 << 10 : 32 << 10;
	layout->lane_size = pages_down((size - VG_LANES_OFFSET) / layout->lane_count);
	layout->window_size = layout->lane_size - VG_PAGE - layout->submit_size - layout->reply_size;
	/* at most 64 blocks: the guest keeps them in one word */
	layout->block_size = pages_down((layout->window_size + 63) / 64 + VG_PAGE - 1);
	layout->bulk_max = layout->window_size / layout->block_size / (large ? 8 : 4) * layout->block_size;
	return 0;
}

static bool power_of_two(uint32_t number)
{
	return number && !(number & (number - 1));
}

/* Another process of this guest may have spoilt the header: what follows from it must at least lie in the memory. */
static bool fits(const struct vg_layout *layout)
{
	uint64_t rings = (uint64_t)VG_PAGE + layout->submit_size + layout->reply_size;

	return power_of_two(layout->submit_size) && power_of_two(layout->reply_size) && layout->block_size &&
	       layout->submit_size >= VG_PAGE && layout->reply_size >= VG_PAGE && layout->lane_size % VG_PAGE == 0 &&
	       layout->lane_count <= VG_RING_LANES_MAX && rings + layout->window_size <= layout->lane_size &&
	       layout->bulk_max <= layout->window_size && layout->window_size / layout->block_size <= 64 &&
	       VG_LANES_OFFSET + (uint64_t)layout->lane_count * layout->lane_size <= layout->size;
}

int vg_layout_read(const struct vg_header *header, struct vg_layout *layout, char *text, size_t text_size)
{
	uint32_t version = vg_load32(&header->version);

	if (vg_load64(&header->magic) != VG_MAGIC || version != VG_WIRE_VERSION) {
		snprintf(text, text_size, "the host's channel has wire version %u, this guest has %d", version,
			 VG_WIRE_VERSION);
		return -EPROTO;
	}
	layout->size = vg_load64(&header->size);
	layout->lane_count = vg_load32(&header->lane_count);
	layout->lane_size = vg_load32(&header->lane_size);
	layout->submit_size = vg_load32(&header->submit_size);
	layout->reply_size = vg_load32(&header->reply_size);
	layout->window_size = vg_load32(&header->window_size);
	layout->block_size = vg_load32(&header->block_size);
	layout->bulk_max = vg_load32(&header->bulk_max);
	if (fits(layout))
		return 0;
	snprintf(text, text_size, "the channel's header is damaged");
	return -EPROTO;
}

void vg_layout_publish(const struct vg_layout *layout, struct vg_header *header)
{
	vg_store32(&header->version, VG_WIRE_VERSION);
	vg_store32(&header->lane_count, layout->lane_count);
	vg_store64(&header->size, layout->size);
	vg_store32(&header->lane_size, layout->lane_size);
	vg_store32(&header->submit_size, layout->submit_size);
	vg_store32(&header->reply_size, layout->reply_size);
	vg_store32(&header->window_size, layout->window_size);
	vg_store32(&header->block_size, layout->block_size);
	vg_store32(&header->bulk_max, layout->bulk_max);
	vg_store32(&header->control_size, VG_CONTROL_RING);
	vg_store64(&header->magic, VG_MAGIC);
}

struct vg_control *vg_lane_at(void *memory, const struct vg_layout *layout, uint32_t lane)
{
	size_t offset = lane ? VG_LANES_OFFSET + (size_t)(lane - 1) * layout->lane_size : VG_CONTROL_OFFSET;

	return (struct vg_control *)((uint8_t *)memory + offset);
}
