/* SPDX-License-Identifier: Apache-2.0 */
/* What exists while a kernel runs: the grid, a worker for each host thread, and the threads of the worker's block. */
#ifndef PTX_STATE_H
#define PTX_STATE_H

#include "module.h"

#include <pthread.h>
#include <string.h>

enum {
	MAX_BLOCK = 1024,
	BARRIERS = 16,
	CACHE = 64,
	FUEL = 20000,                   /* backward branches and calls before another thread gets its turn */
	FUEL_TOGETHER = 400,            /* where a block may wait for another */
	FUEL_ATOMIC = 64,               /* what an atomic operation takes of it: a loop around one may wait for others */
	STACK_SLOTS = 1 << 17,          /* registers of one thread, all frames together */
	LOCAL_BYTES = 512 << 10,        /* local memory of one thread, as the hardware's bound */
	MAX_SHARED = 227 << 10,
	MAX_CLUSTER = 16,
};

struct range { /* a live allocation, as the host told */
	uint64_t base, length;
	uint8_t *at;
	bool write;
};

enum thread_state {
	THREAD_READY,
	THREAD_WARP,     /* at a warp-wide instruction, for the lanes in `mask` */
	THREAD_CONVERGE, /* at activemask: those who stand there together are active together */
	THREAD_BARRIER,
	THREAD_CLUSTER,  /* at barrier.cluster.wait */
	THREAD_EXITED,
};

struct call_frame {
	const struct insn *back;
	const void *call;  /* the caller's struct call, for return values */
	const struct function *function;
	uint32_t r;        /* of the caller, in cells of the stack */
	uint32_t base;     /* caller's frame in local memory */
};

/* A thread's part in the barrier of its cluster: nothing, has arrived, and all others have, too. */
enum cluster_phase { CLUSTER_NONE, CLUSTER_ARRIVED, CLUSTER_COMPLETE };

struct thread {
	uint64_t *r;
	const struct insn *pc;
	struct worker *worker;
	enum thread_state state;
	uint32_t fuel; /* 0: its turn is over */
	bool carry;
	uint32_t index, lane, warp, tid[3];
	uint32_t mask;     /* THREAD_WARP */
	uint32_t barrier;  /* THREAD_BARRIER */
	enum cluster_phase phase;
	bool at_grid;           /* waits at the grid's barrier, which had been passed so often: */
	uint64_t grid_passed;
	const struct function *function;
	uint64_t *stack; /* the warp's, from this lane's cells on */
	uint32_t stack_used; /* registers */
	uint8_t *local;
	uint32_t base, local_used, local_capacity;
	struct call_frame *frames;
	uint32_t depth, frames_capacity;
};

/* Where lanes that have parted wait for each other: the branch's immediate post-dominator. */
struct join {
	const struct insn *at;
	uint32_t depth, members, arrived;
	uint32_t outer; /* the join that is next for them afterwards */
	bool used;
};

enum { JOINS = 64 }; /* lanes that find none free meet again when they stand at the same instruction */

struct warp {
	uint64_t *stack;
	uint32_t capacity; /* registers */
	/* simd.c, turn.c: */
	uint32_t exited, waiting; /* lanes; a waiting one is at its join */
	uint8_t next[WARP];       /* each lane's join; 0: none */
	struct join joins[JOINS];
};

struct barrier {
	uint32_t arrived, expected; /* expected 0: every thread of the block */
	uint32_t count;             /* predicates that were true, for .red */
};

struct grid {
	struct ptx_kernel *kernel;
	const struct ptx_launch *launch;
	struct ptx_error *error;
	pthread_mutex_t lock;
	volatile bool stop;
	uint64_t passed, blocks_arrived; /* the grid's barrier: grid_sync.c */
	uint64_t n_blocks, n_clusters, next_cluster, id;
	uint32_t cluster[3], cluster_size; /* blocks */
	bool clustered; /* the launch or the kernel asks for clusters, be it of one block */
	uint32_t n_threads, dynamic_offset, shared_bytes;
	struct finding *findings; /* check.c */
};

/* Blocks that run together, on one thread of the host: cluster.c. Without clusters each block is one by itself. */
struct cluster {
	struct grid *grid;
	struct worker *blocks[MAX_CLUSTER];
	uint32_t alive; /* blocks */
	bool arrived;   /* some threads, at its barrier */
};

struct worker {
	struct grid *grid;
	struct cluster *cluster;
	uint32_t rank, clusterid[3]; /* in the cluster; the cluster's */
	uint32_t ctaid[3];
	struct thread *threads; /* whole warps of them: those beyond n_threads have exited */
	struct warp *warps;
	uint32_t n_threads, alive;
	const struct insn *slept_at; /* the last nanosleep, and whose it was */
	uint32_t slept_warp, slept_lane;
	uint32_t grid_arrived; /* threads, at the grid's barrier, since it was passed so often: */
	uint64_t grid_passed;
	bool grid_counted;     /* all of them */
	uint8_t *shared;
	uint32_t shared_bytes; /* within which an access needs no check: 0 with a checker */
	struct barrier barriers[BARRIERS];
	struct range cache[CACHE];
	uint32_t index; /* %smid */
	uint64_t random; /* of its schedule */
	struct checker *checker; /* check.h; NULL: nothing is checked */
	struct images *images; /* textures and surfaces that its threads have used: texture.c */
};

/* fault.c: records the first error of the grid and stops it. Always NULL, so that a handler can return it. */
const struct insn *fault(struct thread *t, const struct insn *i, enum ptx_status status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/*
 * Shared memory of a cluster's blocks. An address below 2^24 is the block's own; mapa makes one that has the rank of another
 * block, plus one, above. Both lie in the shared window of the generic address space.
 */
enum { CLUSTER_SHIFT = 24 };
#define CLUSTER_OFFSET(addr) ((addr) & (((uint64_t)1 << CLUSTER_SHIFT) - 1))
static inline uint32_t cluster_rank(const struct worker *w, uint64_t addr)
{
	uint32_t rank = (uint8_t)(addr >> CLUSTER_SHIFT);

	return rank ? rank - 1 : w->rank;
}

/* Each instruction tends to stay within one allocation: the cache is looked up by instruction. */
static inline uint32_t range_place(const struct insn *i)
{
	return (uint32_t)((uintptr_t)i >> 4) % CACHE;
}

/* Host memory behind a checked device address, or NULL after a fault. `align` is checked too. */
uint8_t *reach(struct thread *t, const struct insn *i, enum space space, uint64_t addr, uint32_t size, bool write);
uint8_t *reach_global(struct thread *t, const struct insn *i, uint64_t addr, uint32_t size, bool write);

/*
 * A warp-wide instruction that every lane of `members` has reached: gives each its results. It occupies two
 * instructions; the second one's `a` is the cell of the member mask, its `d` the second destination, its `ext` the
 * form of an operation on matrices.
 */
typedef void warp_operation(struct thread *lanes, uint32_t members);

/* cluster.c: `index` is that of the host's thread. Runs a whole cluster; false: the grid stops. */
struct cluster *cluster_new(struct grid *g, uint32_t index);
void cluster_free(struct cluster *c);
bool cluster_run(struct cluster *c, uint64_t number);
/* The same in turns: alive is 0 when all blocks have ended. */
bool cluster_place(struct cluster *c, uint64_t number);
bool cluster_turn(struct cluster *c);

/* block.c, schedule.c, warp.c and barrier.c. Blocks are numbered cluster by cluster. */
bool place_block(struct worker *w, uint64_t index);
bool block_turn(struct worker *w, bool *progress);
/* Says why, at the first thread that has not ended. Always false. */
bool deadlock(struct worker *w);
/* A turn of a warp's lanes, in step; or of the block's threads, at random. False: the grid stops. */
bool warp_turn(struct worker *w, uint32_t warp, bool *progress);
bool random_turn(struct worker *w, bool *progress);
/* turn.c: a turn of a warp, one instruction for all lanes that stand at it. */
bool simd_turn(struct worker *w, uint32_t warp, bool *progress);
void simd_start(struct worker *w, uint32_t warp);
static inline uint32_t warp_lanes(const struct worker *w, uint32_t warp)
{
	return w->n_threads - warp * WARP < WARP ? w->n_threads - warp * WARP : WARP;
}
bool stopped(struct worker *w);
/* Blocks may wait for each other. */
static inline bool is_cooperative(const struct worker *w)
{
	return w->grid->launch->workspace || w->grid->cluster_size > 1;
}
/* Runs the warp-wide instructions that all their lanes have come to. False: there is none. */
bool warp_step(struct worker *w, uint32_t warp);
void barriers_check(struct worker *w);
/* Local memory of so many bytes. False after a fault. */
bool grow_local(struct thread *t, const struct insn *i, uint64_t want);
bool push_frame(struct thread *t, const struct insn *i, const struct function *f);
uint64_t special_value(const struct thread *t, uint64_t number);

/* Text of vprintf: format.c. Reads the arguments from generic addresses. */
bool format_print(struct thread *t, const struct insn *i, uint64_t format, uint64_t args, int32_t *printed);
bool read_string(struct thread *t, const struct insn *i, uint64_t addr, char *buffer, size_t size);

#endif
