/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in memory: any rank, any strides. */
#include <string.h>

#include "dnn.h"

int64_t dn_elements(const struct dn_tensor *t)
{
	int64_t n = 1;

	for (int i = 0; i < t->nd; i++)
		if (__builtin_mul_overflow(n, t->dims[i], &n))
			return -1;
	return n;
}

int64_t dn_bytes(const struct dn_tensor *t)
{
	int64_t last = 0, part, bytes;

	for (int i = 0; i < t->nd; i++) {
		if (!t->dims[i])
			return 0;
		if (__builtin_mul_overflow(t->dims[i] - 1, t->strides[i], &part) || __builtin_add_overflow(last, part, &last))
			return -1;
	}
	if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, (int64_t)dn_type_bytes(t->type), &bytes))
		return -1;
	return bytes;
}

void dn_walk_begin(struct dn_walk *w, const struct dn_tensor *shape)
{
	memset(w, 0, sizeof *w);
	w->nd = shape->nd;
	memcpy(w->dims, shape->dims, sizeof w->dims);
}

void dn_walk_add(struct dn_walk *w, const struct dn_tensor *t)
{
	for (int i = 0; i < w->nd; i++)
		w->steps[w->n][i] = t->dims[i] == 1 ? 0 : t->strides[i];
	w->n++;
}

bool dn_walk_next(struct dn_walk *w)
{
	for (int i = w->nd - 1; i >= 0; i--) {
		bool carry = ++w->index[i] == w->dims[i];

		for (int k = 0; k < w->n; k++)
			w->at[k] += carry ? -(w->dims[i] - 1) * w->steps[k][i] : w->steps[k][i];
		if (!carry)
			return true;
		w->index[i] = 0;
	}
	return false;
}

void dn_pack(const struct dn_tensor *t, const void *data, bool wide, void *out)
{
	struct dn_walk w;
	int64_t i = 0;

	if (dn_elements(t) <= 0)
		return;
	dn_walk_begin(&w, t);
	dn_walk_add(&w, t);
	do {
		double value = dn_get(data, t->type, w.at[0]);

		if (wide)
			((double *)out)[i++] = value;
		else
			((float *)out)[i++] = (float)value;
	} while (dn_walk_next(&w));
}

void dn_unpack(const struct dn_tensor *t, void *data, bool wide, const void *in, double alpha, double beta)
{
	struct dn_walk w;
	int64_t i = 0;

	if (dn_elements(t) <= 0)
		return;
	dn_walk_begin(&w, t);
	dn_walk_add(&w, t);
	do {
		double value = alpha * (wide ? ((const double *)in)[i] : ((const float *)in)[i]);

		if (beta != 0) /* with 0 the old value is not read: it may be a NaN */
			value += beta * dn_get(data, t->type, w.at[0]);
		dn_put(data, t->type, w.at[0], value);
		i++;
	} while (dn_walk_next(&w));
}
