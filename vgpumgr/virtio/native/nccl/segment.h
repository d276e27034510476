/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that the ranks of a communicator share: a file of their user's in /dev/shm, which has no name any more once all have
 * joined. What another rank has written is checked by the rank that reads it.
 */
#ifndef VG_NCCL_SEGMENT_H
#define VG_NCCL_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "api.h"

enum { SG_RANKS = 64, SG_SLOTS = 4, SG_LETTERS = 2, SG_TEXT = 192 };

enum sg_state { SG_ABSENT, SG_JOINED, SG_LEFT, SG_FAILED };

/* What a unique id says: of which system and user, the file's name, and what only those who were given the id know. */
struct sg_id {
	char magic[8];
	uint32_t version, user;
	uint8_t system[16], name[16], secret[64];
	uint8_t unused[16];
};

/* A rank's progress, each word written by that rank alone: rounds of collectives that it has put up, reduced and taken. */
struct sg_rank {
	_Alignas(128) _Atomic uint32_t state;
	_Atomic uint64_t published, reduced, consumed;
};

/* What a rank says of the round in its slot; others compare it with their own. */
struct sg_form {
	uint64_t kind, count, first;
	int32_t type, op, root, scaled;
	uint64_t scalar; /* of a sum that is multiplied before */
};

/* From one rank to another: pieces ever sent and taken. */
struct sg_mail {
	_Alignas(128) _Atomic uint64_t sent;
	_Alignas(128) _Atomic uint64_t taken;
	uint64_t total[SG_LETTERS], length[SG_LETTERS];
};

struct sg_layout {
	uint32_t ranks;
	size_t piece, letter; /* bytes of a slot, and of a letter from rank to rank */
	size_t states, forms, mails, slots, results, letters, bytes;
};

struct segment {
	struct segment *next;
	struct sg_id id;
	struct sg_layout at;
	char path[64];
	uint8_t *map;
	int file;
	unsigned int uses;
	_Atomic bool local[SG_RANKS]; /* joined by this process */
};

/* An id of this system and user. False: the system gives no random numbers. */
bool sg_make_id(struct sg_id *id, const uint8_t random[96]);
bool sg_random(void *bytes, size_t length);
/* ncclSuccess, or why another one is refused, with a sentence. */
ncclResult_t sg_check_id(const struct sg_id *id, char text[SG_TEXT]);
/* Files of this user's that no process has any more are removed. */
void sg_sweep(void);

ncclResult_t sg_join(const struct sg_id *id, int ranks, int rank, struct segment **segment, char text[SG_TEXT]);
void sg_leave(struct segment *segment, int rank, enum sg_state how);
/* How many have joined so far. */
int sg_joined(const struct segment *segment);
/* In a child of fork: what the parent has joined is not the child's. */
void sg_forget(void);

struct sg_rank *sg_state(const struct segment *s, int rank);
struct sg_form *sg_form(const struct segment *s, int rank, uint64_t round);
uint8_t *sg_slot(const struct segment *s, int rank, uint64_t round);
uint8_t *sg_result(const struct segment *s, uint64_t round);
struct sg_mail *sg_mail(const struct segment *s, int from, int to);
uint8_t *sg_letter(const struct segment *s, int from, int to, uint64_t number);

/* Whether the rank can still do its part: its process lives, and it has neither left nor failed. */
enum sg_life { SG_ALIVE, SG_DEAD, SG_GONE, SG_BROKEN };
enum sg_life sg_life(const struct segment *s, int rank);

#endif
