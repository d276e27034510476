/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout. The states in device memory are a seed and how many numbers have been drawn of it; the reserved space has a bit for
 * each element that was kept. The numbers are not those of a GPU.
 */
#include "classic.h"
#include "exports.h"
#include "layer.h"

struct states {
	uint64_t seed, drawn;
};

struct descriptor {
	struct dn_object object;
	float rate;
	void *states;
	unsigned long long seed;
};

enum { STATES_BYTES = 4096 };

struct dropout {
	struct work work;
	struct dn_placed in, out;
	bool backward;
	double rate;
	struct states *states;
	uint64_t seed;
	unsigned char *reserve;
};

int cudnnCreateDropoutDescriptor(void **descriptor)
{
	return dn_object_give(DN_DROPOUT, sizeof(struct descriptor), descriptor);
}

int cudnnDestroyDropoutDescriptor(void *descriptor)
{
	return dn_object_take(descriptor, DN_DROPOUT);
}

int cudnnDropoutGetStatesSize(void *handle, size_t *bytes)
{
	if (!dn_object_find(handle, DN_HANDLE) || !bytes)
		return dn_fail(DN_BAD_PARAM, "no handle, or no place for the size");
	*bytes = STATES_BYTES;
	return DN_SUCCESS;
}

int cudnnDropoutGetReserveSpaceSize(const void *x_desc, size_t *bytes)
{
	const struct dn_tensor *x = dn_tensor_find(x_desc);

	if (!x || !bytes)
		return dn_fail(DN_BAD_PARAM, "no tensor, or no place for the size");
	*bytes = ((size_t)dn_elements(x) + 7) / 8;
	return DN_SUCCESS;
}

int cudnnRestoreDropoutDescriptor(void *descriptor, void *handle, float rate, void *states, size_t bytes, unsigned long long seed)
{
	struct descriptor *d = dn_object_find(descriptor, DN_DROPOUT);

	if (!d || !dn_object_find(handle, DN_HANDLE) || !(rate >= 0 && rate <= 1))
		return dn_fail(DN_BAD_PARAM, "no descriptor, no handle, or no such rate");
	if (states && bytes < STATES_BYTES)
		return dn_fail(DN_BAD_PARAM, "the states are too small");
	d->rate = rate;
	d->states = states;
	d->seed = seed;
	return DN_SUCCESS;
}

static void begin(struct work *work)
{
	struct dropout *d = (struct dropout *)work;

	work->wild = false;
	if (bl_reach(work, d->states, STATES_BYTES))
		*d->states = (struct states){ d->seed, 0 };
}

int cudnnSetDropoutDescriptor(void *descriptor, void *handle, float rate, void *states, size_t bytes, unsigned long long seed)
{
	struct dropout d = { .states = states, .seed = seed };
	int status = cudnnRestoreDropoutDescriptor(descriptor, handle, rate, states, bytes, seed);

	if (status != DN_SUCCESS || !states)
		return status;
	return dn_layer_post(handle, &d.work, sizeof d, begin);
}

int cudnnGetDropoutDescriptor(const void *descriptor, void *handle, float *rate, void **states, unsigned long long *seed)
{
	const struct descriptor *d = dn_object_find(descriptor, DN_DROPOUT);

	if (!d || !dn_object_find(handle, DN_HANDLE) || !rate || !states || !seed)
		return dn_fail(DN_BAD_PARAM, "no descriptor, no handle, or no place for the values");
	*rate = d->rate;
	*states = d->states;
	*seed = d->seed;
	return DN_SUCCESS;
}

/* A number from 0 to below 1 for each place in the sequence: the finaliser of SplitMix64. */
static double draw(uint64_t seed, uint64_t place)
{
	uint64_t z = seed + (place + 1) * 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static void run(struct work *work)
{
	struct dropout *d = (struct dropout *)work;
	int64_t n = dn_elements(&d->in.tensor), i = 0;
	struct dn_walk w;

	work->wild = false;
	if (!dn_placed_reach(work, &d->in) || !dn_placed_reach(work, &d->out) || !bl_reach(work, d->reserve, (n + 7) / 8) ||
	    (!d->backward && !bl_reach(work, d->states, STATES_BYTES)))
		return;
	dn_walk_begin(&w, &d->in.tensor);
	dn_walk_add(&w, &d->in.tensor);
	dn_walk_add(&w, &d->out.tensor);
	do {
		unsigned char bit = (unsigned char)(1 << i % 8);
		bool kept = d->backward ? d->reserve[i / 8] & bit : draw(d->states->seed, d->states->drawn + (uint64_t)i) >= d->rate;
		double value = dn_get(d->in.data, d->in.tensor.type, w.at[0]);

		if (!d->backward)
			d->reserve[i / 8] = (unsigned char)((d->reserve[i / 8] & ~bit) | (kept ? bit : 0));
		dn_put(d->out.data, d->out.tensor.type, w.at[1], kept ? value / (1 - d->rate) : 0);
		i++;
	} while (dn_walk_next(&w));
	if (!d->backward)
		d->states->drawn += (uint64_t)n;
}

static int post(void *handle, const void *descriptor, struct dropout *d, void *reserve, size_t bytes)
{
	const struct descriptor *how = dn_object_find(descriptor, DN_DROPOUT);

	if (!how || (!how->states && !d->backward) || !dn_placed_alike(&d->in, &d->out))
		return dn_fail(DN_BAD_PARAM, "no descriptor, no states, or tensors of two shapes");
	if (!reserve || bytes < ((size_t)dn_elements(&d->in.tensor) + 7) / 8)
		return dn_fail(DN_BAD_PARAM, "the reserved space is too small");
	d->rate = how->rate;
	d->states = how->states;
	d->reserve = reserve;
	return dn_layer_post(handle, &d->work, sizeof *d, run);
}

int cudnnDropoutForward(void *handle, const void *descriptor, const void *x_desc, const void *x, const void *y_desc, void *y,
			void *reserve, size_t bytes)
{
	struct dropout d = { .backward = false };
	int status = dn_place(&d.in, x_desc, x, true);

	if (status == DN_SUCCESS)
		status = dn_place(&d.out, y_desc, y, true);
	return status == DN_SUCCESS ? post(handle, descriptor, &d, reserve, bytes) : status;
}

int cudnnDropoutBackward(void *handle, const void *descriptor, const void *dy_desc, const void *dy, const void *dx_desc, void *dx,
			 void *reserve, size_t bytes)
{
	struct dropout d = { .backward = true };
	int status = dn_place(&d.in, dy_desc, dy, true);

	if (status == DN_SUCCESS)
		status = dn_place(&d.out, dx_desc, dx, true);
	return status == DN_SUCCESS ? post(handle, descriptor, &d, reserve, bytes) : status;
}
