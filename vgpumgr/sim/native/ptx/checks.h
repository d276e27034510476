/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of what a kernel does, asked for by ptx_launch.checks: accesses to memory, races in shared memory, synchronisation.
 *
 * A checked launch runs lane by lane. Its workers have a checker, and their windows of memory have no length, so that each
 * access takes the way that looks closer; an access of a launch without checks finds nothing new on its way.
 */
#ifndef PTX_CHECKS_H
#define PTX_CHECKS_H

#include "ops.h"

#include <stdio.h>

enum finding_kind {
	FINDING_BOUNDS,
	FINDING_MISALIGNED,
	FINDING_UNWRITTEN,
	FINDING_RACE,
	FINDING_DIVERGENCE,
	FINDING_MASK,
	FINDING_COUNT,
	FINDING_COUNTS,
	FINDING_STUCK,
};

/* An access to a byte. `clock` is the thread's own, in the epoch: what a barrier of the whole block ends. */
struct touch {
	const struct insn *insn;
	uint32_t epoch, clock;
	uint16_t thread;
	bool atomic;
	uint8_t size;
};

enum { READERS = 3, MBARRIERS = 64 };

struct byte_state {
	struct touch writer, readers[READERS];
};

/* What threads that arrive at an mbarrier have seen: of this phase, and of those that have ended. */
struct mbarrier_view {
	uint64_t at;
	uint32_t *arriving, *ended;
};

/* What an instruction is, by those who run it: they call the checks, which need none of them so. */
struct insn_facts {
	bool (*is_atomic)(const struct insn *i);
	bool (*is_exchange)(const struct insn *i);
	/* What a plain store writes. False: it is none. */
	bool (*store_value)(const struct insn *i, const uint64_t *r, uint8_t bytes[32]);
};

extern const struct insn_facts insn_facts; /* atomic.c */

/* Of one worker's block. Clocks are compared within an epoch only. */
struct checker {
	const struct insn_facts *facts;
	uint32_t checks, n_threads;
	uint32_t epoch;
	uint32_t *clock;          /* by thread */
	uint32_t (*seen)[WARP];   /* by thread: the clocks of its warp's lanes that it has synchronised with */
	uint32_t *far;            /* by thread: of all threads, once anything but whole warps and blocks has synchronised */
	bool far_used;
	struct byte_state *bytes; /* of shared memory */
	uint8_t *written;
	struct mbarrier_view mbarriers[MBARRIERS];
	uint32_t *arrived[BARRIERS]; /* of barriers with a count: what those who have come have seen */
	/* sync: */
	uint32_t *acts;           /* by thread: accesses and synchronisations */
	uint32_t *acts_then;      /* when the first lane of its warp came to the barrier */
	uint32_t counts[BARRIERS];
	const struct insn *first[BARRIERS];
};

/* check.c. A finding is opened, written to and closed; NULL where this launch has it already, and it is only counted. */
FILE *finding_open(struct thread *t, const struct insn *i, enum finding_kind kind);
void finding_close(struct thread *t);
/* "    thread (1,0,0) writes 4 bytes, at x.cu:12, PTX line 40: st.shared.f32 ..." */
void finding_place(FILE *out, const struct worker *w, uint32_t thread, const char *what, const struct insn *i);
/* Prints what is new, at the end of a launch. */
void findings_print(struct grid *g);

struct checker *checker_new(const struct grid *g, const struct insn_facts *facts);
void checker_free(struct checker *c);
void checker_start(struct worker *w);

/* check_access.c */
void check_shared(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write);
/* By a thread of another block, `owner`'s memory: of its cluster. */
void check_remote(const struct worker *owner, uint64_t addr, uint32_t size, bool write);
void check_global(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write);
/* An access that ends the kernel. `where` is empty for global memory. */
void check_bad_access(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write, const char *where);
void check_misaligned(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size);

/* check_order.c: who has seen what */
bool order_known(const struct checker *c, uint32_t thread, const struct touch *touch);
void order_start(struct checker *c);
void order_join_lanes(struct checker *c, uint32_t warp, uint32_t members);
void order_all(struct checker *c);
void order_arrive(struct checker *c, uint32_t *view, uint32_t thread);
void order_take(struct checker *c, const uint32_t *view, uint32_t thread);
uint32_t *order_view(const struct checker *c);
void order_mbarrier_free(struct checker *c);

enum mbarrier_event { MBARRIER_INIT, MBARRIER_ARRIVE, MBARRIER_PHASE, MBARRIER_WAITED };
void check_mbarrier(struct thread *t, uint64_t addr, enum mbarrier_event event);

/* check_sync.c */
void check_warp(struct worker *w, struct thread *lanes, uint32_t members);
void check_own_mask(struct thread *t, const struct insn *i);
void check_arrive(struct thread *t, const struct insn *i, uint32_t barrier, bool waits);
void check_open(struct worker *w, uint32_t barrier, uint32_t waiting);
void check_number(struct thread *t, const struct insn *i, uint32_t number);
void check_stuck(struct worker *w);

/* atomic.c, mbarrier.c, memory.c */
bool is_ordered(const struct insn *i);
bool is_mbarrier(const struct insn *i);
bool store_value(const struct insn *i, const uint64_t *r, uint8_t bytes[32]);

#endif
