/* SPDX-License-Identifier: Apache-2.0 */
/* Variant packs: what a program has set, which travels with an execution. */
#include <stdlib.h>

#include "backend.h"

enum { UNIQUE_IDS = 1000, DATA_POINTERS = 1001, WORKSPACE = 1003, TYPE_POINTER = 6, PACK_MAX = DNN_TREE };

void dnn_pack_clear(struct dnn_descriptor *d)
{
	free(d->ids);
	free(d->pointers);
	d->ids = NULL;
	d->pointers = NULL;
	d->ids_count = d->pointers_count = 0;
	d->workspace = NULL;
	d->finalised = false;
}

static int keep(void **to, int64_t *to_count, int64_t count, const void *elements)
{
	void *copy = malloc((size_t)count * 8 + 1);

	if (!copy)
		return DNN_ALLOC_FAILED;
	if (count)
		memcpy(copy, elements, (size_t)count * 8);
	free(*to);
	*to = copy;
	*to_count = count;
	return DNN_OK;
}

int dnn_pack_set(struct dnn_descriptor *d, int number, int type, int64_t count, const void *elements)
{
	static atomic_flag told = ATOMIC_FLAG_INIT;

	if (count < 0 || count > PACK_MAX || (count && !elements))
		return DNN_BAD_PARAM;
	switch (number) {
	case UNIQUE_IDS:
		return type == DNN_TYPE_INT64 ? keep((void **)&d->ids, &d->ids_count, count, elements) : DNN_BAD_PARAM;
	case DATA_POINTERS:
		return type == TYPE_POINTER ? keep((void **)&d->pointers, &d->pointers_count, count, elements) : DNN_BAD_PARAM;
	case WORKSPACE:
		if (type != TYPE_POINTER || count != 1)
			return DNN_BAD_PARAM;
		memcpy(&d->workspace, elements, sizeof(d->workspace));
		return DNN_OK;
	default:
		return dnn_unsupported("an attribute of cuDNN's variant packs beside ids, pointers and a workspace", &told);
	}
}

int dnn_pack_get(const struct dnn_descriptor *d, int number, int type, int64_t wanted, int64_t *given, void *elements)
{
	const void *from = number == UNIQUE_IDS ? (const void *)d->ids : number == DATA_POINTERS ? (const void *)d->pointers :
			   number == WORKSPACE ? (const void *)&d->workspace : NULL;
	int64_t count = number == UNIQUE_IDS ? d->ids_count : number == DATA_POINTERS ? d->pointers_count : 1;

	if (!d->finalised)
		return DNN_NOT_INITIALIZED;
	if (!from || type != (number == UNIQUE_IDS ? (int)DNN_TYPE_INT64 : (int)TYPE_POINTER))
		return DNN_BAD_PARAM;
	if (elements && wanted < count)
		count = wanted;
	if (given)
		*given = count;
	if (elements && count > 0)
		memcpy(elements, from, (size_t)count * 8);
	return DNN_OK;
}

int dnn_pack_finalise(struct dnn_descriptor *d)
{
	if (d->ids_count != d->pointers_count)
		return DNN_BAD_PARAM;
	for (int64_t i = 0; i < d->ids_count; i++)
		for (int64_t j = 0; j < i; j++)
			if (d->ids[i] == d->ids[j])
				return DNN_BAD_PARAM;
	d->finalised = true;
	return DNN_OK;
}
