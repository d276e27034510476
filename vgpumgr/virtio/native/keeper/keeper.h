/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper of one VM's channel: owns the memory, the sockets and the worker for as long as the attachment lives.
 * One thread, one poll loop; it decides nothing about GPUs and never waits on a worker or on QEMU. What needs root's
 * rights its launcher does; where it runs for root, it has a user of its own and no rights once it serves.
 */
#ifndef VG_KEEPER_H
#define VG_KEEPER_H

#include <stdio.h>
#include <sys/types.h>

#include "../transport/share.h"
#include "../transport/stats.h"
#include "../transport/util.h"
#include "sandbox.h"

enum { KEEPER_CLIENTS = 8, KEEPER_LINE = 512, KEEPER_ARGS = 64, KEEPER_CGROUPS = 3, LOG_LINE = 1024 };

enum worker_state { WORKER_STARTING, WORKER_READY, WORKER_STOPPING, WORKER_WAITING, WORKER_FAILED, WORKER_NONE };

struct keeper_options {
	const char *dir, *worker, *serial;
	uint64_t shm_size;
	uid_t owner;
	gid_t group;
	unsigned mode;
	bool detach;
	char *worker_args[KEEPER_ARGS + 1]; /* after its own name */
	unsigned worker_arg_count;
	const char *cgroup[KEEPER_CGROUPS]; /* made by who started us; the worker enters them, the launcher removes them */
	unsigned cgroups;
	bool tells_pids;         /* there is a socket that tells a process its number outside */
	const char *arbiter;     /* its socket; NULL: the channel has no share of the GPU's time */
	uint32_t compute;        /* millionths */
	uint32_t priority;       /* VG_SHARE_LOW and so on */
	bool fixed;              /* a hard cap */
	const char *policy;      /* what `compute` means, in a word; NULL: burst */
	struct sandbox sandbox;
};

struct worker {
	pid_t pid;               /* 0: none runs */
	enum worker_state state;
	unsigned starts, failures; /* failures: quick deaths in a row */
	uint64_t started_ms, retry_ms, kill_ms;
	char message[VG_STATS_TEXT]; /* of the worker itself, or why it is not there */
	char last_exit[80];
	int control;
	bool unwanted;           /* its memory is gone: no harm if it dies */
};

/* See log.c. */
struct keeper_log {
	int file;                /* -1: there is none to write to */
	int read, write;         /* the pipe's ends; -1 */
	char line[LOG_LINE];     /* not yet whole */
	size_t filled, budget;
	uint64_t until_ms;       /* when the second ends that the budget is for */
	uint64_t left_out;
};

/* See arbiter.c. */
struct keeper_share {
	int socket;              /* to the arbiter; -1: there is none */
	int page_fd, bell, arbiters_bell; /* of this worker; -1 */
	struct vg_share_page *page;
	const struct vg_share_account *account; /* the last that an arbiter has made; NULL */
	uint32_t compute, priority;
	uint64_t retry_ms;
};

struct client {
	int fd;
	char line[KEEPER_LINE];
	size_t filled;
};

/* Device memory as the workers' limit, where that is another one than their option says. See limits.c. */
struct limit_change {
	uint64_t bytes;          /* what every worker gets; 0: its option holds */
	uint64_t asked;
	unsigned number;         /* of the last change that was asked for */
	unsigned answered;       /* the last one that is decided */
	int error;               /* of that: 0, or errno */
};

struct keeper {
	struct keeper_options options;
	struct worker worker;
	int memory_fd, doorbell, stats_fd;
	uint8_t *memory;
	struct vg_layout layout;
	uint64_t next_size;
	uint32_t epoch;
	const struct vg_stats *stats;

	int ivshmem, qemu;       /* listening; QEMU's connection */
	pid_t qemu_pid;
	uid_t qemu_uid;
	unsigned qemu_connects;
	int launcher;            /* -1: it has ended */
	int control, pids, signals, pid_file; /* pids: see tells_pids; -1: there is none */
	struct client client[KEEPER_CLIENTS];
	struct limit_change limit;
	struct keeper_share share;
	struct keeper_log log;
	bool stopping;
	uint64_t started_s;
	char error[256];
};

/* channel.c: memory, and its hand-over to QEMU */
int keeper_make_memory(struct keeper *keeper);
void keeper_accept_qemu(struct keeper *keeper);
void keeper_watch_qemu(struct keeper *keeper);
int keeper_set_size(struct keeper *keeper, uint64_t size);

/* process.c: the worker */
void keeper_start_worker(struct keeper *keeper);
void keeper_stop_worker(struct keeper *keeper);
/* Marks every lane as lost in the memory: the worker is gone and cannot do so itself. */
void keeper_mark_lost(struct keeper *keeper);
void keeper_read_launcher(struct keeper *keeper);
void keeper_read_worker(struct keeper *keeper);
void keeper_tick_worker(struct keeper *keeper);
/* Milliseconds until the worker needs attention; -1: never. */
int keeper_next_tick(const struct keeper *keeper);

/* limits.c: device memory, changed while workers run */
void keeper_change_memory(struct keeper *keeper, uint64_t bytes);
/* The worker is new, and has what its option says. */
void keeper_repeat_limit(struct keeper *keeper);
void keeper_hear_limit(struct keeper *keeper, const char *text);
/* Without a worker nothing is held, so that every limit holds. */
void keeper_decide_limit(struct keeper *keeper);

/* become.c: in a child of the launcher */
enum launch_fd { LAUNCH_MEMORY, LAUNCH_DOORBELL, LAUNCH_STATS, LAUNCH_CONTROL, LAUNCH_PAGE, LAUNCH_BELL, LAUNCH_FDS };
_Noreturn void keeper_become_worker(struct keeper *keeper, const int *fds, uint32_t epoch, pid_t parent, int sync);

/* arbiter.c: without a share they do nothing */
int keeper_join_arbiter(struct keeper *keeper);
/* Page and bell for a new worker. */
int keeper_fresh_share(struct keeper *keeper);
void keeper_watch_arbiter(struct keeper *keeper);
void keeper_tick_arbiter(struct keeper *keeper);
/* A connection that the launcher has made; the caller closes it. */
void keeper_adopt_arbiter(struct keeper *keeper, int fd);
/* A percentage, as 12.5, in millionths; 0: it is none from 1 to 100. */
uint32_t keeper_read_percent(const char *text);
/* Of "high" and so on, as it begins; -1: it is none. */
int keeper_read_priority(const char *text);
const char *keeper_name_priority(uint32_t priority);
/* -ENOENT: there is no share; -EINVAL: no percentage. */
int keeper_set_share(struct keeper *keeper, uint32_t compute, uint32_t priority);

/* log.c: worker.log; keeper.log, which no guest can write to, is shortened when it is opened */
int keeper_log_open(struct keeper *keeper, const char *path);
void keeper_log_read(struct keeper *keeper);
/* All that is left. */
void keeper_log_end(struct keeper *keeper);
/* Milliseconds until it has something to say by itself: then no more is read before; -1: it has not. */
int keeper_log_wait(const struct keeper *keeper);
int keeper_log_own(const char *path);

/* sessions.c: the pid here of the worker's child that has this one in its own namespace; 0: none has. */
uint32_t keeper_find_session(const struct keeper *keeper, uint32_t inner);

/* control.c: requests; status.c: the answer to one of them */
void keeper_accept_client(struct keeper *keeper);
void keeper_answer_pid(struct keeper *keeper);
void keeper_serve_client(struct keeper *keeper, struct client *client);
void keeper_write_status(const struct keeper *keeper, FILE *out);
void keeper_json_text(FILE *out, const char *text, size_t size);

#endif
