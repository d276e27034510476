/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator: each rank has a thread (comm.c) that takes one batch of operations after the other (engine.c). A batch is what one
 * call, or one group of calls, has put into streams; these wait for a word in the device's memory, which the thread writes.
 */
#ifndef VG_NCCL_H
#define VG_NCCL_H

#include <pthread.h>
#include <sys/types.h>

#include "api.h"
#include "cuda_calls.h"
#include "segment.h"

enum { NCCL_ALIVE = 0x4c43434e, NCCL_SCALES = 256, NCCL_WORDS = 4096 };

enum op_kind {
	OP_ALL_REDUCE = 1, OP_REDUCE, OP_BROADCAST, OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_ALL_TO_ALL, OP_GATHER, OP_SCATTER,
	OP_SPLIT, OP_SEND, OP_RECEIVE
};

/* What the parent's ranks say of a new communicator, held by the parent's operation and by the new one. */
struct split {
	pthread_mutex_t lock;
	pthread_cond_t known;
	int holders;
	int color, key;
	ncclResult_t result; /* ncclInProgress: not known yet */
	int rank, ranks;
	struct sg_id id;
};

struct op {
	struct op *next;
	enum op_kind kind;
	ncclDataType_t type;
	ncclRedOp_t op;
	int root;            /* or the peer */
	size_t count;
	uint64_t from, to;
	bool from_host, to_host; /* memory that the processor has as it is */
	bool scaled;
	uint64_t scalar, scalar_at; /* in the device's memory, unless 0 */
	CUstream stream;
	bool captured;
	struct split *split;
	/* rounds, or pieces between two ranks: how many there are, and those done */
	bool begun;
	uint64_t first, rounds, published, reduced, consumed;
};

struct ready {
	struct ready *next;
	CUevent event;
};

struct batch {
	struct batch *next;
	struct op *ops;
	struct ready *ready;
	uint32_t number;
	unsigned int word; /* of a graph's launch: its own; 0: the communicator's, which counts batches */
};

/* What a graph does at each launch. */
struct captured {
	struct captured *next;
	struct ncclComm *comm;
	struct op *ops;
	unsigned int word;
};

struct scale {
	bool used;
	ncclDataType_t type;
	uint64_t scalar, scalar_at;
};

struct ncclComm {
	uint32_t magic;
	pid_t process;
	int rank, ranks;
	bool blocking, started;
	CUcontext context;
	CUdevice device;
	bool retained; /* the device's primary context */

	pthread_mutex_t lock;
	pthread_cond_t more, less;
	_Atomic int async;        /* ncclResult_t */
	_Atomic bool abort;
	bool failed, ending, stop;
	char text[SG_TEXT];
	struct batch *first, **last;
	struct ready *spare;
	uint32_t number;          /* of the last batch */
	struct captured *captured;
	unsigned int words;       /* of graphs */
	struct scale scales[NCCL_SCALES];
	unsigned int shrinks;

	struct sg_id id;
	struct split *split;
	struct segment *segment;
	pthread_t thread;
	CUstream stream;
	CUdeviceptr word;
	uint64_t round, sent[SG_RANKS], taken[SG_RANKS];
	uint8_t *scratch;

	/* of the thread that has it in a group */
	struct op *pending, **pending_last;
	struct ncclComm *group_next, *init_next;
	struct ncclComm **handle;
	bool in_group;
};

/* ---- error.c */
/* Keeps the sentence for ncclGetLastError. */
ncclResult_t nccl_error(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
ncclResult_t nccl_cuda_error(CUresult result, const char *what);
int nccl_unsupported(const char *name, atomic_flag *said);

/* ---- fail.c */
/* It does nothing any more, its streams go on, and the other ranks hear of it. */
void comm_fail(ncclComm_t comm, ncclResult_t result, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- comm.c */
/* One that can be used by this process, else why not. */
ncclResult_t comm_check(ncclComm_t comm);
/* The same, and it has all its ranks and has not failed. */
ncclResult_t comm_ready(ncclComm_t comm);
ncclResult_t comm_wait_init(ncclComm_t comm);
/* Ends the thread and all that it has. */
void comm_end(ncclComm_t comm, bool abort);
ncclResult_t comm_enqueue(ncclComm_t comm, struct op *ops);
/* Its thread begins to find the other ranks. */
ncclResult_t comm_begin(ncclComm_t comm, ncclComm_t *handle);

/* ---- capture.c */
/* Under the lock, in the communicator's context: operations of one captured stream. */
ncclResult_t capture_ops(ncclComm_t comm, struct op *ops);

/* ---- engine.c */
void engine_run(ncclComm_t comm, struct batch *batch);
bool engine_wait_ranks(ncclComm_t comm);
void op_free(struct op *ops);

/* ---- split.c */
size_t split_words(struct op *op, void *to);
/* said[rank]: what each has put up. */
void split_decide(ncclComm_t comm, struct op *op, const uint8_t *const *said);
void split_refuse(struct split *split, ncclResult_t result);
void split_release(struct split *split);
/* Waits until the parent's ranks have said theirs. */
ncclResult_t split_wait(ncclComm_t comm);

/* ---- group.c */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t group_submit(ncclComm_t comm, const struct op *op);
/* False: there is no group, and the caller waits. */
bool group_take_init(ncclComm_t comm);
/* Within a group its error, too. */
ncclResult_t group_error(ncclResult_t result);

#endif
