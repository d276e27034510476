/* SPDX-License-Identifier: Apache-2.0 */
#include "window.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "../../vgpumgr/virtio/native/transport/util.h"

/* who changes it reads it undisturbed */
#undef vg_load32
#undef vg_load64

enum { MOST_ACCESSES = 100000, ARMED_MAX = 8 };

struct window window;

static const uint8_t *tape, *tape_end;
static uint64_t state = 1;
static bool own_clock;
static uint64_t now_ms;
static unsigned armed, countdown; /* changes to come, and accesses before the next */
static const struct vg_ring *followed;
static uint8_t *const *followed_memory;
static bool follows_with_pads, spoilt;
static bool is_turn;
static unsigned long accesses; /* in this turn */

/* ---- chance ---- */

static uint64_t noise(uint64_t most)
{
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (state >> 11) % most;
}

void seed_with(uint64_t seed)
{
	state = seed * 0x9e3779b97f4a7c15ull | 1;
}

void tape_begin(const uint8_t *bytes, size_t size)
{
	tape = bytes;
	tape_end = bytes + size;
	seed_with(size);
}

bool tape_has_ended(void)
{
	return tape == tape_end;
}

uint64_t roll(uint64_t most)
{
	uint64_t value = 0;

	if (!tape)
		return noise(most);
	for (uint64_t bytes = most > 256 ? 2 : 1; bytes; bytes--)
		value = value << 8 | (tape < tape_end ? *tape++ : 0);
	return value % most;
}

void fill(void *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		((uint8_t *)bytes)[i] = (uint8_t)noise(256);
}

size_t make_tape(uint64_t seed, uint8_t *bytes, size_t room)
{
	size_t length;

	seed_with(seed);
	length = 1 + noise(room < TAPE_MAX ? room : TAPE_MAX);
	fill(bytes, length);
	return length;
}

/* ---- time ---- */

uint64_t __real_vg_now_ms(void);
uint64_t __wrap_vg_now_ms(void);
uint64_t __wrap_vg_now_ms(void)
{
	return own_clock ? now_ms : __real_vg_now_ms();
}

void clock_set(bool is_own)
{
	own_clock = is_own;
	now_ms = 1000;
}

void clock_advance(uint64_t ms)
{
	now_ms += ms;
}

/* ---- the memory ---- */

bool window_make(size_t size)
{
	int fd = memfd_create("window", MFD_CLOEXEC);
	void *memory;

	if (fd < 0 || ftruncate(fd, (off_t)size))
		return false;
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	window = (struct window){ .fd = fd, .memory = memory == MAP_FAILED ? NULL : memory, .size = size };
	spoilt = false;
	vg_layout(size, &window.layout);
	return window.memory;
}

void window_free(void)
{
	munmap(window.memory, window.size);
	window.memory = NULL;
	vg_close_fd(&window.fd);
}

/* ---- changes ---- */

/* What a word may become: a little more or less, a bit off, far away. */
static uint64_t worse(uint64_t value)
{
	switch (roll(8)) {
	case 0:
		return value + 32 * (1 + roll(300));
	case 1:
		return value - 32 * (1 + roll(300));
	case 2:
		return value + 1 + roll(31);
	case 3:
		return value ^ 1ull << roll(64);
	case 4:
		return value + VG_CONTROL_RING;
	case 5:
		return 0;
	case 6:
		return roll(1 << 16);
	default:
		return ~0ull - roll(40);
	}
}

static struct vg_control *control(uint32_t lane)
{
	return vg_lane_at(window.memory, &window.layout, lane);
}

static void spoil_word(void)
{
	struct vg_control *lane0 = control(0);
	vg_word64 *words[] = { &lane0->submit_head, &lane0->submit_tail, &lane0->reply_head, &lane0->reply_tail, &lane0->life };
	vg_word64 *word = words[roll(sizeof(words) / sizeof(words[0]))];

	vg_store64(word, worse(vg_load64(word)));
}

static void spoil_header(void)
{
	struct vg_header *header = (struct vg_header *)window.memory;
	vg_word32 *words = (vg_word32 *)header;
	/* up to the heartbeat: half of a number of 64 bits is changed, too */
	uint64_t at = roll(offsetof(struct vg_header, heartbeat) / 4);

	if (roll(4))
		vg_store32(&words[at], (uint32_t)worse(vg_load32(&words[at])));
	else
		vg_store32(&header->state, (uint32_t)roll(4));
}

/* The header of a frame or reply near the place where it is written or read. */
static void spoil_frame(void)
{
	static const uint32_t lengths[] = { 0, 1, 31, 32, 33, 48, 72, 112, 4096, 8192, 16416, 16417, ~0u };
	struct vg_control *lane0 = control(0);
	uint8_t *base = (uint8_t *)lane0 + VG_PAGE + (roll(2) ? VG_CONTROL_RING : 0);
	vg_word64 *word = roll(2) ? &lane0->reply_head : roll(2) ? &lane0->submit_head : &lane0->submit_tail;
	uint64_t at = (vg_load64(word) - 32 * roll(16)) & (VG_CONTROL_RING - 1) & ~31ull;
	vg_word32 *fields = (vg_word32 *)(base + at);
	uint64_t field = roll(14);

	if (field == 0)
		vg_store32(&fields[0], lengths[roll(sizeof(lengths) / sizeof(lengths[0]))]);
	else if (field == 1)
		vg_store32(&fields[3], roll(2) ? VG_PAD : (uint32_t)roll(16));
	else
		vg_store32(&fields[field - 2], (uint32_t)worse(vg_load32(&fields[field - 2])));
}

static void spoil_life(void)
{
	uint32_t lanes = window.layout.lane_count ? window.layout.lane_count : 1;
	struct vg_control *lane = control(1 + (uint32_t)roll(lanes));

	if (roll(3))
		vg_store64(&lane->life, worse(vg_load64(&lane->life)));
	else
		vg_store64(roll(2) ? &lane->submit_head : &lane->reply_tail, roll(1 << 16));
}

static void spoil_anything(void)
{
	uint64_t at = roll(VG_LANES_OFFSET / 64) * 64, length = roll(200);

	fill(window.memory + at, length);
}

void window_spoil(void)
{
	if (!window.memory || window.size < VG_LANES_OFFSET + VG_PAGE)
		return;
	spoilt = true;
	switch (roll(8)) {
	case 0:
		return spoil_header();
	case 1:
		return spoil_life();
	case 2:
		return spoil_anything();
	case 3:
	case 4:
		return spoil_frame();
	default:
		spoil_word();
	}
}

/* ---- while it is read ---- */

void window_arm(void)
{
	armed = 1 + (unsigned)roll(ARMED_MAX);
	countdown = 1 + (unsigned)roll(24);
}

void window_follow(const struct vg_ring *ring, uint8_t *const *memory, bool with_pads)
{
	followed = ring;
	followed_memory = memory;
	follows_with_pads = with_pads;
}

void window_lied(void)
{
	spoilt = true;
}

bool window_is_spoilt(void)
{
	return spoilt;
}

void window_rest(void)
{
	armed = 0;
	followed = NULL;
}

void window_turn(bool begins)
{
	is_turn = begins;
	accesses = 0;
}

/* One who always knows where the reader is: there is always something more to read. */
static void follow(void)
{
	const struct vg_ring *ring = followed;
	uint8_t *memory = *followed_memory;
	uint64_t at = ring->mine & (ring->size - 1);
	struct vg_frame_header header = { .length = VG_ALIGN, .op = 7, .sequence = 64 };

	if (!memory || !ring->size || ring->base < memory || ring->base + ring->size > memory + window.size ||
	    ring->mine % VG_ALIGN)
		return;
	spoilt = true;
	if (!at && follows_with_pads) {
		header.length = ring->size;
		header.flags = VG_PAD;
	}
	memcpy(ring->base + at, &header, sizeof(header));
	vg_store64(ring->head, ring->mine + ring->size);
}

void race(void)
{
	if (!is_turn)
		return;
	if (++accesses > MOST_ACCESSES) {
		fprintf(stderr, "a turn without an end\n");
		abort();
	}
	if (followed)
		follow();
	if (!armed || --countdown)
		return;
	armed--; /* first: a change makes accesses, too */
	countdown = 1 + (unsigned)roll(24);
	window_spoil();
}
