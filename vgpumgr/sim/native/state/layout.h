/* SPDX-License-Identifier: Apache-2.0 */
/* The state file's layout and the parts of a handle that the files of this directory share. */
#ifndef VGPUMGR_SIM_LAYOUT_H
#define VGPUMGR_SIM_LAYOUT_H

#include <fcntl.h>
#include <unistd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "simstate.h"

#define SIM_MAGIC "VGSIMST1"
#define SIM_STATE_FILE "state"

enum { SIM_PAGE = 4096 };

/* Written once by the creator; `generation` is the commit point: slot `generation % 2` is the published machine. */
struct sim_header {
	char magic[8];
	uint32_t machine_size, live_size;
	_Atomic uint64_t generation;
};
_Static_assert(sizeof(struct sim_header) <= SIM_PAGE, "the header is one page");

/* Busy times change without a lock, so they live beside the two slots and not in them. */
struct sim_live_client {
	_Atomic int32_t owner; /* pid */
	_Atomic uint32_t gpu, depth;
	_Atomic uint64_t since_ns, total_ns;
	_Atomic uint64_t engine_ns;               /* device time that it has had: engine.c */
	_Atomic uint32_t engine_wants;            /* not 0: it waits for the engine */
};

struct sim_live_gpu {
	_Atomic uint64_t done_ns;                 /* busy time of ended brackets, dead clients' included */
	_Atomic uint64_t window_ns, window_busy_ns; /* start of the sampling window and busy time then */
	_Atomic uint32_t percent;                 /* of the last full window */
	_Atomic uint32_t engine;                  /* a futex: 0, or the slot of the client that has the engine, and 1 */
};

/* A fault that is set; `state` is 0 (free), 1 (being written) or 2. */
struct sim_live_fault {
	_Atomic uint32_t state;
	struct sim_fault fault;
	_Atomic uint32_t calls; /* so far */
};

struct sim_live {
	_Atomic uint32_t clock; /* not 0: kernels take device time */
	struct sim_live_client clients[SIM_MAX_CLIENTS];
	struct sim_live_gpu gpus[SIM_MAX_GPUS];
	struct sim_live_fault faults[SIM_MAX_FAULTS];
};

#define SIM_ALIGNED(n) (((n) + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE)
#define SIM_LIVE_OFFSET ((size_t)SIM_PAGE)
#define SIM_SLOT_OFFSET(i) (SIM_LIVE_OFFSET + SIM_ALIGNED(sizeof(struct sim_live)) + \
			    (size_t)(i) * SIM_ALIGNED(sizeof(struct sim_machine)))
#define SIM_FILE_SIZE SIM_SLOT_OFFSET(2)

struct sim {
	pthread_mutex_t mutex;    /* threads of one process exclude each other here, processes by flock on fd */
	int fd;
	uid_t owner;              /* of the file */
	pid_t pid;                /* the process that opened fd */
	char *map;
	struct sim_machine *copy; /* what readers see and writers change */
	uint64_t copy_generation; /* 0: the copy must be made again */
	uint64_t start_time;      /* of this process; 0 until asked for */
	struct sim *next;
};

static inline struct sim_header *sim_header(const struct sim *sim)
{
	return (struct sim_header *)sim->map;
}

static inline struct sim_live *sim_live(const struct sim *sim)
{
	return (struct sim_live *)(sim->map + SIM_LIVE_OFFSET);
}

/* sim_write() without dropping dead clients, which costs a look at /proc for each: for the allocation path. */
struct sim_machine *sim_write_quick(struct sim *sim);

/* Start time of a live process (field 22 of /proc/PID/stat), 0 if it is gone or a zombie. */
uint64_t sim_process_start(pid_t pid);
/* This process's number as the machine's other programs see it, also from within a pid namespace. */
pid_t sim_own_pid(void);
uint64_t sim_own_start(void);
/* Whether the process that took the slot still runs. */
bool sim_client_lives(const struct sim *sim, int slot, pid_t pid, uint64_t start_time);
/* Each client holds a lock on a byte of its own behind the state: whether it lives is asked without its /proc. */
static inline struct flock slot_byte(int slot, short type)
{
	return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = SIM_FILE_SIZE + slot, .l_len = 1 };
}
/* Frees the slots of dead clients in the copy. */
void sim_drop_dead(const struct sim *sim, struct sim_machine *m);
/* Brings the busy times of `m` up to date. */
void sim_merge_busy(const struct sim *sim, struct sim_machine *m);

/* Writes a new state file; -EEXIST if there is one. */
int sim_create(const char *dir, const struct sim_machine *m);
/* -EPROTO if a count or index is out of bounds, so that a damaged file cannot make a reader run wild. */
int sim_check(const struct sim_machine *m);

#endif
