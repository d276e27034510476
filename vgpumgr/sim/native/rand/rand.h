/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated cuRAND, inside. It stands on the simulated cuBLAS's way to device memory and streams (../blas/blas.h). A generator's
 * state belongs to its work: each piece of it goes on where the last one on the stream has ended, and so does each replay of a graph.
 */
#ifndef VGPUMGR_SIM_RAND_H
#define VGPUMGR_SIM_RAND_H

#include <stdatomic.h>

#include "blas.h"
#include "rand_exports.h"

/* curandStatus_t */
enum { RD_SUCCESS = 0, RD_NOT_INITIALIZED = 101, RD_ALLOCATION_FAILED = 102, RD_TYPE_ERROR = 103, RD_OUT_OF_RANGE = 104,
       RD_LENGTH_NOT_MULTIPLE = 105, RD_LAUNCH_FAILURE = 201, RD_INITIALIZATION_FAILED = 203, RD_ARCH_MISMATCH = 204,
       RD_INTERNAL_ERROR = 999 };

/* curandRngType */
enum { RD_DEFAULT = 100, RD_XORWOW = 101, RD_MRG32K3A = 121, RD_MTGP32 = 141, RD_MT19937 = 142, RD_PHILOX = 161, RD_QUASI = 200,
       RD_LAST_QUASI = 204 };

/* curandOrdering */
enum { RD_BEST = 100, RD_ORDINARY = 101, RD_SEEDED = 102, RD_LEGACY = 103 };

/* A lane is one of the subsequences that an ordering interleaves. cuRAND's guide has their number for each type. */
enum { RD_LANES_XORWOW = 4096, RD_LANES_MRG = 81920, RD_LANES_PHILOX = 65536, RD_LANE_WORDS = 6 };

enum { RD_TWISTER_WORDS = 624 };

/* What is set, each with how often it was: work applies what is newer than what the state has. */
struct rd_settings {
	uint64_t seed, offset;
	int ordering;
	unsigned int seeded, moved; /* times */
};

struct rd_state {
	atomic_uint users;
	int type;
	struct rd_settings settings;
	bool begun;
	uint64_t position;        /* numbers that were made, and that the offset leaves out */
	uint32_t turn;            /* the lane of the next ones */
	uint32_t (*lanes)[RD_LANE_WORDS];
	uint32_t twister[RD_TWISTER_WORDS];
	unsigned int used;        /* of the twister's words */
};

/* What one unit is made of: a number or a pair, of 32 bits each or of twice as many. */
struct rd_unit {
	unsigned int numbers;
	bool wide;
	uint32_t words[4];
};

/* ---- state.c */
struct rd_state *rd_state_new(int type);
void rd_state_leave(struct rd_state *state);
/* On the runner's thread: as it is set. False: no memory. */
bool rd_state_settle(struct rd_state *state, const struct rd_settings *settings);
void rd_draw(struct rd_state *state, struct rd_unit *unit);

/* ---- lanes.c: subsequences of XORWOW and MRG32k3a */
bool rd_lanes_begin(struct rd_state *state);
uint32_t rd_lanes_count(const struct rd_state *state);

/* ---- xorwow.c, mrg.c: the lanes from a seed, each `skip` numbers on and the first `more` of them one more; and a lane's next word */
void rd_xorwow_begin(uint32_t (*lanes)[RD_LANE_WORDS], const struct rd_settings *settings, uint64_t skip, uint32_t more);
uint32_t rd_xorwow_next(uint32_t lane[RD_LANE_WORDS]);
void rd_mrg_begin(uint32_t (*lanes)[RD_LANE_WORDS], uint32_t count, uint64_t seed, uint64_t skip, uint32_t more);
uint32_t rd_mrg_next(uint32_t lane[RD_LANE_WORDS]);

/* ---- philox.c */
void rd_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* Of a place in the sequence of a seed: one word, or two of a number of twice the bits. */
void rd_philox_words(uint64_t seed, uint64_t place, bool wide, uint32_t *words);

/* ---- twister.c */
void rd_twister_begin(struct rd_state *state, uint32_t seed);
uint32_t rd_twister_next(struct rd_state *state);

/* ---- distribution.c: of a unit's words, by the generator's type */
uint32_t rd_bits(int type, const uint32_t *words);
float rd_uniform(int type, const uint32_t *words);
double rd_uniform_double(int type, const uint32_t *words);
/* A pair by the method of Box and Muller. */
void rd_normal(int type, const struct rd_unit *unit, double pair[2]);

/* ---- poisson.c: the distribution's sums, for a search */
struct rd_poisson {
	unsigned int first, count;
	double *sums;
};
bool rd_poisson_begin(struct rd_poisson *poisson, double lambda);
unsigned int rd_poisson_of(const struct rd_poisson *poisson, double uniform);
void rd_poisson_end(struct rd_poisson *poisson);

/* ---- generator.c */
enum { RD_MAGIC = 0x52a4d0, RD_OWN_BYTES = 1 << 20 };
struct rand_generator {
	uint32_t magic;
	CUstream stream;
	CUdeviceptr own;          /* device memory, as the genuine one has */
	struct rd_settings settings;
	struct rd_state *state;
};
/* NULL: there is none. */
struct rand_generator *rd_generator(struct rand_generator *generator);
/* A status of the part that is shared with the simulated cuBLAS. */
int rd_status(int blas_status);

#endif
