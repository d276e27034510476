/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A window that somebody else writes to: an input is a tape, the outcomes of all that is left to chance, which also says what
 * is changed and when. See race.h. To be linked with window.c.
 */
#ifndef TEST_WINDOW_H
#define TEST_WINDOW_H

#include "../../vgpumgr/virtio/native/transport/ring.h"

enum { WINDOW_SIZE = 1 << 20, TAPE_MAX = 16 << 10 };

struct window {
	int fd;
	uint8_t *memory;
	size_t size;
	struct vg_layout layout; /* as it was when nobody had changed it */
};
extern struct window window;

/* Of a size that a host may offer; false: there is no memory. */
bool window_make(size_t size);
void window_free(void);

void tape_begin(const uint8_t *bytes, size_t size);
bool tape_has_ended(void);
/* Below `most`; without a tape, at random. */
uint64_t roll(uint64_t most);
void fill(void *bytes, size_t length);
void seed_with(uint64_t seed);
size_t make_tape(uint64_t seed, uint8_t *bytes, size_t room);

/* One change: of a word of lane 0 or of the header, of a frame that waits, of a lane's life, of anything. */
void window_spoil(void);
/* Some of the next accesses find a change. */
void window_arm(void);
/*
 * From now on the reader of that ring, which has the window at *memory, always finds one more frame, or pad at the ring's
 * beginning; NULL: no longer.
 */
void window_follow(const struct vg_ring *ring, uint8_t *const *memory, bool with_pads);
/* Nothing changes any more. */
void window_rest(void);
/* The host has said what is not so; whether it has, or anything was changed, since the window was made. */
void window_lied(void);
bool window_is_spoilt(void);
/* Around each turn of the program under test, whose accesses alone find changes: one without an end is found. */
void window_turn(bool begins);

/* The time is the tape's; the program is linked with -Wl,--wrap=vg_now_ms. */
void clock_set(bool is_own);
void clock_advance(uint64_t ms);

#endif
