/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker tells its keeper: a page of numbers, and a few small messages. The keeper trusts neither. Sessions write
 * their lane's numbers; a keeper may be older than its worker, so new fields stand at the end.
 */
#ifndef VG_STATS_H
#define VG_STATS_H

#include "wire.h"

enum { VG_STATS_TEXT = 208, VG_STUCK_MAX = 8, VG_ENDED_MAX = 8, VG_SLOW_MAX = 8, VG_REFUSED_MAX = 24, VG_REFUSED_NAME = 40 };

/* One for each entry of the lane table, written by the lane's own threads. */
struct vg_lane_stats {
	vg_word32 used;
	vg_word32 pid;
	vg_word32 ring;
	uint32_t zero;
	vg_word64 since_s;       /* CLOCK_REALTIME */
	vg_word64 calls, posts, bytes_in, bytes_out, memory_bytes;
	char name[32];
};

/* The agent's hello, of one transport. */
struct vg_guest_stats {
	vg_word32 present;
	vg_word32 version;
	char agent[32];
	char kernel[64];
};

/* Between the server and a lane's session; no guest sees it. */
struct vg_lane_words {
	_Alignas(128) vg_word32 wake; /* futex: rises to wake the session */
	vg_word32 asleep;
	vg_word32 closing;       /* the lane is going away: the session ends */
	vg_word32 pid;           /* of the session's process; 0: none */
	vg_word32 stuck;         /* it was killed and does not end */
};

/* A process that was killed, does not end, and whose lane others have. */
struct vg_stuck_stats {
	vg_word32 pid;           /* 0: none */
	vg_word32 lane;
};

/* A session that ended and should not have. */
struct vg_ended_stats {
	vg_word32 lane;          /* 0: none */
	vg_word32 pid;           /* of the guest's process, by its own word */
	vg_word64 at_s;          /* CLOCK_REALTIME, as below */
	vg_word32 status;        /* as waitpid() has it */
	char name[28];           /* of the guest's process */
};

/* A call that the driver has had for long. */
struct vg_slow_stats {
	vg_word32 lane;          /* 0: none */
	vg_word32 op;
	vg_word64 since_s;
	char name[40];           /* of the operation */
};

/* A call that the guest's libraries refused because it is not supported. */
struct vg_refused_stats {
	vg_word32 state;         /* see worker_refused.c */
	vg_word32 zero;
	vg_word64 count;
	char name[VG_REFUSED_NAME];
};

struct vg_health_stats {
	vg_word64 faults;                            /* of sessions_lost: by a fault of the process */
	vg_word64 overdue;                           /* ended because a call lasted too long */
	struct vg_ended_stats ended[VG_ENDED_MAX];   /* the last ones, the n-th at n modulo their number */
	struct vg_slow_stats slow[VG_SLOW_MAX];
	vg_word64 stuck_s[VG_LANE_TABLE];            /* since when `stuck` of the lane's words says so */
	vg_word64 aside_s[VG_STUCK_MAX];             /* the same of vg_stuck_stats */
	vg_word64 refused_more;                      /* calls for whose names there was no place */
	struct vg_refused_stats refused[VG_REFUSED_MAX];
};

/* What a VM may hold at once, over all its sessions; then what it may take a second. See worker_limits.h. */
enum vg_limit {
	VG_LIMIT_DEVICE_MEMORY,
	VG_LIMIT_CONTEXTS,
	VG_LIMIT_STREAMS,
	VG_LIMIT_EVENTS,
	VG_LIMIT_MODULES,
	VG_LIMIT_IMAGE_BYTES,
	VG_LIMIT_JIT,
	VG_LIMITS_HELD,
	VG_LIMIT_CALLS = VG_LIMITS_HELD,
	VG_LIMIT_BYTES,
	VG_LIMITS,
};

struct vg_limit_stats {
	vg_word64 most;          /* UINT64_MAX: no limit */
	vg_word64 used, refused;
	vg_word64 waited_ns;     /* of a rate */
};

struct vg_stats {
	vg_word32 serial_connected;
	vg_word32 mismatches;    /* processes, and agents, whose operations differ from the worker's */
	vg_word64 violations;
	vg_word64 doorbells;
	vg_word64 lanes_opened;
	vg_word64 calls, posts, bytes_in, bytes_out; /* of lanes that have ended */
	char violation[VG_STATS_TEXT];               /* the last one */
	char mismatch[VG_STATS_TEXT];                /* the last of them, naming both versions */
	char api_version[32];                        /* of the worker */
	uint8_t hash[VG_HASH_SIZE];
	struct vg_guest_stats guest[2];              /* ring, serial */
	struct vg_lane_stats lane[VG_LANE_TABLE];
	vg_word64 sessions_lost;                     /* ended by a crash or a signal */
	char session_lost[VG_STATS_TEXT];            /* the last one */
	struct vg_stuck_stats stuck[VG_STUCK_MAX];
	struct vg_lane_words words[VG_LANE_TABLE];
	struct vg_health_stats health;
	struct vg_limit_stats limit[VG_LIMITS];
	vg_word32 limits;                            /* how many of them the worker knows; 0: none yet, or an older one */
	vg_word64 opened_bytes;                      /* that sessions have of others' memory: a driver may count them for each */
};
enum { VG_STATS_SIZE = 16384 };
_Static_assert(sizeof(struct vg_stats) <= VG_STATS_SIZE, "fits its memory");

/*
 * Which call each thread of each session executes, for the server, which finds those that last: op + 1 in the low half, a
 * number of this call in the high one; 0: none. A memory of the worker's own.
 */
enum { VG_WATCHED_THREADS = 72 };
struct vg_watched {
	_Alignas(64) vg_word64 running;
};
struct vg_watch {
	struct vg_watched thread[VG_LANE_TABLE][VG_WATCHED_THREADS];
};

/* Between keeper and worker, on a socket pair that keeps message boundaries. */
enum vg_keeper_message {
	VG_WORKER_READY = 1,
	VG_WORKER_FAILED = 2,
	VG_KEEPER_STOP = 3,
	VG_WORKER_SERIAL = 4, /* asks for a connection to the serial stream */
	VG_KEEPER_SERIAL = 5, /* the answer, with the descriptor; none where nobody listens */
	VG_KEEPER_LIMIT = 6,  /* "NUMBER BYTES": another limit of device memory */
	VG_WORKER_LIMIT = 7,  /* the answer: "NUMBER ERROR"; 0: it holds, as errno has them else */
};

struct vg_note {
	uint32_t what;
	char text[VG_STATS_TEXT];
};

/* The worker's option that names what it inherits: --channel=memory:3,doorbell:4,stats:5,control:6,epoch:7 */
#define VG_OPTION_CHANNEL "--channel="
#define VG_OPTION_SERIAL "--channel-serial="
/* in the place of a path: the keeper connects, for whose worker there is no socket to see */
#define VG_SERIAL_OF_KEEPER "keeper"
#define VG_OPTION_NUMBER "--channel-number="
#define VG_OPTION_DEVICE "--channel-device="
/* The watchdog's: seconds after which a call is named, and after which its session ends; 0: never */
#define VG_OPTION_WATCHDOG "--watchdog="
/* A session's: --session=memory:3,stats:4,socket:5,watch:7,limits:8 */
#define VG_OPTION_SESSION "--session="

#endif
