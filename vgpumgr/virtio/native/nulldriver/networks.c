/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN without arithmetic: descriptors keep what is set, plans and executions succeed at once. What a variant pack has for a tensor on
 * the host is read, with as many bytes as the tensor has, so that a sanitizer notices where it is not.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { OK = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, ALLOC_FAILED = 4003, PERF_BYTES = 48 };
/* Types of descriptors and of elements, attributes: as in cudnn_graph.h. */
enum { ENGINECFG = 3, PLAN = 5, PACK = 16, TENSOR = 17 };
enum { TYPE_HANDLE = 0, TYPE_BOOLEAN = 2, TYPE_INT64 = 3, TYPE_DOUBLE = 5, TYPE_POINTER = 6, TYPE_DESCRIPTOR = 15, TYPE_FRACTION = 26 };
enum { RESULTS = 202, CONFIG_ENGINE = 300, CHOICES = 302, WORKSPACE = 402, DATA_TYPE = 901, DIMENSIONS = 902, UNIQUE_ID = 906,
       BY_VALUE = 908, IDS = 1000, POINTERS = 1001, KNOB_INFO = 1302, LAYOUT_INFO = 1304 };

struct value {
	struct value *next;
	int number, type;
	int64_t count;
	uint8_t bytes[];
};

struct descriptor {
	int type;
	struct value *values;
};

/* Handles and descriptors that were made and have not ended. */
static atomic_ulong live;

API unsigned long null_networks_live(void);
unsigned long null_networks_live(void)
{
	return atomic_load(&live);
}

static size_t bytes_of(int type)
{
	switch (type) {
	case TYPE_BOOLEAN:
		return 1;
	case TYPE_HANDLE: case TYPE_INT64: case TYPE_DOUBLE: case TYPE_POINTER: case TYPE_DESCRIPTOR:
		return 8;
	case TYPE_FRACTION:
		return 16;
	default:
		return 4;
	}
}

static const struct value *find(const struct descriptor *d, int number)
{
	const struct value *v = d->values;

	while (v && v->number != number)
		v = v->next;
	return v;
}

API int cudnnCreate(void **handle);
int cudnnCreate(void **handle)
{
	*handle = malloc(1);
	if (!*handle)
		return ALLOC_FAILED;
	atomic_fetch_add(&live, 1);
	return OK;
}

API int cudnnDestroy(void *handle);
int cudnnDestroy(void *handle)
{
	free(handle);
	atomic_fetch_sub(&live, 1);
	return OK;
}

API int cudnnGetProperty(int number, int *value);
int cudnnGetProperty(int number, int *value)
{
	*value = number == 0 ? 9 : number == 1 ? 24 : 0;
	return OK;
}

API size_t cudnnGetMaxDeviceVersion(void);
size_t cudnnGetMaxDeviceVersion(void)
{
	return 1210;
}

API int cudnnBackendCreateDescriptor(int type, void **descriptor);
int cudnnBackendCreateDescriptor(int type, void **descriptor)
{
	struct descriptor *d = calloc(1, sizeof(*d));

	if (!d)
		return ALLOC_FAILED;
	d->type = type;
	*descriptor = d;
	atomic_fetch_add(&live, 1);
	return OK;
}

API int cudnnBackendDestroyDescriptor(void *descriptor);
int cudnnBackendDestroyDescriptor(void *descriptor)
{
	struct descriptor *d = descriptor;

	while (d->values) {
		struct value *next = d->values->next;

		free(d->values);
		d->values = next;
	}
	free(d);
	atomic_fetch_sub(&live, 1);
	return OK;
}

API int cudnnBackendSetAttribute(void *descriptor, int number, int type, int64_t count, const void *elements);
int cudnnBackendSetAttribute(void *descriptor, int number, int type, int64_t count, const void *elements)
{
	struct descriptor *d = descriptor;
	size_t bytes = (size_t)count * bytes_of(type);
	struct value *v;

	if (find(d, number))
		return BAD_PARAM; /* once: what is checked is what is kept */
	v = malloc(sizeof(*v) + bytes);
	if (!v)
		return ALLOC_FAILED;
	*v = (struct value){ d->values, number, type, count };
	memcpy(v->bytes, elements, bytes);
	d->values = v;
	return OK;
}

/* Tensors have a shape; all else is as it is set. */
API int cudnnBackendFinalize(void *descriptor);
int cudnnBackendFinalize(void *descriptor)
{
	const struct descriptor *d = descriptor;

	return d->type == TENSOR && !find(d, DIMENSIONS) ? BAD_PARAM : OK;
}

/* What the library would have made, without content: of results more than one answer holds. */
static int64_t count_made(int number)
{
	switch (number) {
	case RESULTS:
		return 300;
	case KNOB_INFO: case LAYOUT_INFO: case CHOICES:
		return 3;
	default:
		return number == CONFIG_ENGINE;
	}
}

static int get_made(int number, int type, int64_t wanted, int64_t *count, void *elements)
{
	int64_t have = type == TYPE_DESCRIPTOR ? count_made(number) : 1;

	if (elements && wanted < have)
		have = wanted;
	*count = have;
	if (elements && type != TYPE_DESCRIPTOR)
		memset(elements, 0, (size_t)have * bytes_of(type));
	return OK;
}

API int cudnnBackendGetAttribute(void *descriptor, int number, int type, int64_t wanted, int64_t *count, void *elements);
int cudnnBackendGetAttribute(void *descriptor, int number, int type, int64_t wanted, int64_t *count, void *elements)
{
	const struct value *v = find(descriptor, number);
	int64_t n;

	if (!v)
		return get_made(number, type, wanted, count, elements);
	if (v->type != type)
		return BAD_PARAM;
	n = elements && wanted < v->count ? wanted : v->count;
	*count = n;
	if (elements)
		memcpy(elements, v->bytes, (size_t)n * bytes_of(type));
	return OK;
}

/* ---- execution */

/* Bytes of an element, as cudnnDataType_t. */
static size_t element_bytes(const struct descriptor *tensor)
{
	static const uint8_t bytes[] = { 4, 8, 2, 1, 4, 0, 1, 0, 0, 2, 8, 1, 1, 1, 0, 1, 0, 0, 0, 4, 8, 16 };
	const struct value *v = find(tensor, DATA_TYPE);
	int type = 0;

	if (v)
		memcpy(&type, v->bytes, sizeof(type));
	return type >= 0 && (size_t)type < sizeof(bytes) ? bytes[type] : 0;
}

static int read_tensor(const struct descriptor *tensor, const int64_t *ids, void *const *pointers, int64_t count)
{
	const struct value *by_value = find(tensor, BY_VALUE), *id = find(tensor, UNIQUE_ID), *sizes = find(tensor, DIMENSIONS);
	size_t bytes = element_bytes(tensor);
	int sum = 0;

	if (!by_value || !by_value->bytes[0] || !id || !sizes)
		return 0;
	for (int64_t i = 0; i < sizes->count; i++)
		bytes *= (size_t)((const int64_t *)(const void *)sizes->bytes)[i];
	for (int64_t i = 0; i < count; i++)
		for (size_t b = 0; !memcmp(&ids[i], id->bytes, sizeof(*ids)) && b < bytes; b++)
			sum += ((const volatile uint8_t *)pointers[i])[b];
	return sum;
}

static int read_values(const struct descriptor *d, const int64_t *ids, void *const *pointers, int64_t count, int depth)
{
	int sum = d->type == TENSOR ? read_tensor(d, ids, pointers, count) : 0;

	for (const struct value *v = d->values; v && depth; v = v->next)
		for (int64_t i = 0; v->type == TYPE_DESCRIPTOR && i < v->count; i++)
			sum += read_values(((struct descriptor *const *)(const void *)v->bytes)[i], ids, pointers, count, depth - 1);
	return sum;
}

API int cudnnBackendExecute(void *handle, void *plan, void *pack);
int cudnnBackendExecute(void *handle, void *plan, void *pack)
{
	const struct value *ids = find(pack, IDS), *pointers = find(pack, POINTERS);

	(void)handle;
	if (!ids || !pointers || ids->count != pointers->count)
		return BAD_PARAM;
	return read_values(plan, (const int64_t *)(const void *)ids->bytes, (void *const *)(const void *)pointers->bytes, ids->count, 8) ==
	       -1 ? NOT_SUPPORTED : OK;
}

/* ---- the classic interface: descriptors are made, and all else is in the generated part */

#define OBJECTS(name)                                              \
	API int cudnnCreate##name##Descriptor(void **object);      \
	int cudnnCreate##name##Descriptor(void **object)           \
	{                                                          \
		return cudnnCreate(object);                        \
	}                                                          \
	API int cudnnDestroy##name##Descriptor(void *object);      \
	int cudnnDestroy##name##Descriptor(void *object)           \
	{                                                          \
		return cudnnDestroy(object);                       \
	}
OBJECTS(Tensor)
OBJECTS(Filter)
OBJECTS(Convolution)
OBJECTS(Pooling)
OBJECTS(Activation)
OBJECTS(OpTensor)
OBJECTS(ReduceTensor)
OBJECTS(LRN)
OBJECTS(Dropout)

/* As many results as there is place for. */
#define RESULTS_OF(name)                                                                                                  \
	API int cudnnGetConvolution##name##Algorithm_v7(void *handle, void *first, void *second, void *convolution, void *third, \
							int wanted, int *count, void *results);                         \
	int cudnnGetConvolution##name##Algorithm_v7(void *handle, void *first, void *second, void *convolution, void *third,    \
						    int wanted, int *count, void *results)                              \
	{                                                                                                                 \
		(void)handle, (void)first, (void)second, (void)convolution, (void)third;                                  \
		memset(results, 0, (size_t)wanted * PERF_BYTES);                                                          \
		*count = wanted;                                                                                          \
		return OK;                                                                                                \
	}
RESULTS_OF(Forward)
RESULTS_OF(BackwardData)
RESULTS_OF(BackwardFilter)

/* Arrays are read as far as they should go. */
API int cudnnSetTensorNdDescriptor(void *object, int type, int count, const int *sizes, const int *strides);
int cudnnSetTensorNdDescriptor(void *object, int type, int count, const int *sizes, const int *strides)
{
	int sum = type;

	(void)object;
	for (int i = 0; i < count; i++)
		sum ^= ((const volatile int *)sizes)[i] ^ ((const volatile int *)strides)[i];
	return count > 8 || sum == INT32_MIN ? BAD_PARAM : OK;
}

/* A scalar that is not there is an error, one that is must be. */
API int cudnnAddTensor(void *handle, const void *alpha, void *a, const void *from, const void *beta, void *c, void *to);
int cudnnAddTensor(void *handle, const void *alpha, void *a, const void *from, const void *beta, void *c, void *to)
{
	(void)handle, (void)a, (void)from, (void)c, (void)to;
	if (!alpha || !beta)
		return BAD_PARAM;
	return *(const volatile float *)alpha + *(const volatile float *)beta > 1e38f ? NOT_SUPPORTED : OK;
}
