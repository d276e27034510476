/* SPDX-License-Identifier: Apache-2.0 */
/* cuRAND as guests could call it: types of generators, and calls that are nearly right, with settings before them. */
#include "maths.h"
#include "rand_wire.h"

static _Atomic bool called[RAND_OUTPUTS], set[RAND_WHICHES];

void make_generator(struct thread *t)
{
	static const uint64_t types[] = { RAND_PSEUDO_DEFAULT, RAND_XORWOW, RAND_MRG32K3A, RAND_MTGP32, RAND_MT19937, RAND_PHILOX,
					  RAND_QUASI_DEFAULT, RAND_SOBOL32, RAND_SOBOL64 };

	t->length = 0;
	put(t, once_in(t, 20) ? roll(t) : types[roll(t) % (sizeof(types) / sizeof(types[0]))]);
}

void make_numbers(struct thread *t)
{
	uint64_t output = once_in(t, 40) ? roll(t) : roll(t) % RAND_OUTPUTS, settings = roll(t) % (RAND_SETTINGS + 1);

	t->length = 0;
	put(t, output);
	put(t, once_in(t, 20) ? roll(t) : roll(t) % 64);
	for (int i = 0; i < 3; i++)
		put(t, roll(t));
	for (uint64_t i = 0; i < RAND_SETTINGS; i++) {
		uint64_t which = i >= settings ? RAND_UNSET : once_in(t, 60) ? roll(t) : 1 + roll(t) % RAND_SETTINGS;

		put(t, which);
		put(t, once_in(t, 20) ? roll(t) : 100 + roll(t) % 5);
		if (which < RAND_WHICHES)
			set[which] = true;
	}
	if (output < RAND_OUTPUTS)
		called[output] = true;
}

unsigned int count_randoms(void)
{
	unsigned int found = 0;

	for (int i = 0; i < RAND_OUTPUTS; i++)
		found += called[i];
	for (int i = 0; i < RAND_WHICHES; i++)
		found += set[i];
	return found;
}
