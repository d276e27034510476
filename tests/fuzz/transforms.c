/* SPDX-License-Identifier: Apache-2.0 */
/* cuFFT as guests could call it: shapes that are nearly right, as questions and for plans, and executions of these. */
#include "fft_wire.h"
#include "maths.h"

static _Atomic bool called[FFT_EXECUTE][FFT_WAYS], executed[FFT_EXECUTIONS];

static void put_layout(struct thread *t)
{
	put(t, once_in(t, 2));
	for (int i = 0; i < FFT_RANK; i++)
		put(t, once_in(t, 30) ? roll(t) : 1 + roll(t) % 64);
	put(t, once_in(t, 30) ? roll(t) : 1);
	put(t, once_in(t, 30) ? roll(t) : roll(t) % 64);
	put(t, roll(t) % 8);
}

void make_shape(struct thread *t, uint64_t function)
{
	uint64_t way = once_in(t, 60) ? roll(t) : 1 + roll(t) % (FFT_WAYS - 1);

	t->length = 0;
	put(t, way);
	put(t, once_in(t, 40) ? roll(t) % 9 : 1 + roll(t) % FFT_RANK);
	for (int i = 0; i < FFT_RANK; i++)
		put(t, once_in(t, 30) ? roll(t) : roll(t) % 64);
	put(t, 1 + roll(t) % 4);
	put(t, roll(t) % 0x70);
	put_layout(t);
	put_layout(t);
	put(t, once_in(t, 40) ? roll(t) : roll(t) % (1 << FFT_PROPERTIES));
	for (int i = 0; i < FFT_PROPERTIES; i++)
		put(t, roll(t));
	if (function < FFT_EXECUTE && way < FFT_WAYS)
		called[function][way] = true;
}

void make_transform(struct thread *t)
{
	uint64_t execution = once_in(t, 40) ? roll(t) : roll(t) % FFT_EXECUTIONS;

	t->length = 0;
	put(t, execution);
	put(t, once_in(t, 20) ? roll(t) : once_in(t, 2) ? 1 : ~0ull);
	for (int i = 0; i < 3; i++)
		put(t, once_in(t, 10) ? 0 : roll(t));
	if (execution < FFT_EXECUTIONS)
		executed[execution] = true;
}

unsigned int count_transforms(void)
{
	unsigned int found = 0;

	for (int f = FFT_PLAN; f < FFT_EXECUTE; f++)
		for (int way = 1; way < FFT_WAYS; way++)
			found += called[f][way];
	for (int e = 0; e < FFT_EXECUTIONS; e++)
		found += executed[e];
	return found;
}
