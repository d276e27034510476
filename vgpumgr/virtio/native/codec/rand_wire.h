/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of cuRAND travels (docs/wire-format.md, "Mathematics libraries"). What is set of a generator travels with its next call, in
 * the order in which it was set; so do the stream and where the numbers go.
 */
#ifndef VG_RAND_WIRE_H
#define VG_RAND_WIRE_H

#include <stdint.h>

enum {
	/* to math_make, a curandRngType: a generator, which is kept */
	RAND_GENERATOR = 1,
	/* to a generator: numbers, its states, or nothing but what is set */
	RAND_GENERATE,
	RAND_FUNCTIONS,
};

/* What is made: by which of the library's functions. RAND_SET: nothing. */
enum rand_output { RAND_SET, RAND_STATES, RAND_BITS, RAND_LONG_LONG, RAND_UNIFORM, RAND_UNIFORM_DOUBLE, RAND_NORMAL, RAND_NORMAL_DOUBLE,
		   RAND_LOG_NORMAL, RAND_LOG_NORMAL_DOUBLE, RAND_POISSON, RAND_OUTPUTS };

/* What can be set, each once. RAND_UNSET: the end of what was set. */
enum rand_which { RAND_UNSET, RAND_SEED, RAND_OFFSET, RAND_ORDERING, RAND_DIMENSIONS, RAND_WHICHES };
enum { RAND_SETTINGS = RAND_WHICHES - 1 };

struct rand_setting {
	uint64_t which, value;
};

struct rand_generate {
	uint64_t output, count, address;
	double first, second;     /* mean and deviation, or the mean of Poisson's distribution: of a float, too, nothing is lost */
	struct rand_setting settings[RAND_SETTINGS];
};

_Static_assert(sizeof(struct rand_generate) == 13 * sizeof(uint64_t), "words only");

/* curandStatus_t */
enum { RAND_OK = 0, RAND_NOT_INITIALIZED = 101, RAND_ALLOCATION_FAILED = 102, RAND_TYPE_ERROR = 103, RAND_OUT_OF_RANGE = 104,
       RAND_LENGTH_NOT_MULTIPLE = 105, RAND_LAUNCH_FAILURE = 201, RAND_PREEXISTING_FAILURE = 202, RAND_INITIALIZATION_FAILED = 203,
       RAND_ARCH_MISMATCH = 204, RAND_INTERNAL_ERROR = 999 };

/* curandRngType */
enum { RAND_PSEUDO_DEFAULT = 100, RAND_XORWOW = 101, RAND_MRG32K3A = 121, RAND_MTGP32 = 141, RAND_MT19937 = 142, RAND_PHILOX = 161,
       RAND_QUASI_DEFAULT = 200, RAND_SOBOL32 = 201, RAND_SCRAMBLED_SOBOL32 = 202, RAND_SOBOL64 = 203, RAND_SCRAMBLED_SOBOL64 = 204 };

/* curandOrdering */
enum { RAND_PSEUDO_BEST = 100, RAND_PSEUDO_ORDINARY = 101, RAND_PSEUDO_SEEDED = 102, RAND_PSEUDO_LEGACY = 103,
       RAND_PSEUDO_DYNAMIC = 104, RAND_QUASI_ORDINARY = 201 };

/* As documented: of a quasirandom generator, and of curandGeneratePoisson. */
enum { RAND_MOST_DIMENSIONS = 20000, RAND_MOST_LAMBDA = 400000 };

#endif
