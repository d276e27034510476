/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of cuDNN travels (docs/wire-format.md, "Mathematics libraries"). A tree of descriptors: their number, then each one
 * behind those that it refers to. A descriptor: a word with its type and (upper half) how many attributes were set, then
 * these: a word with number (16 bits), type (16) and how many elements (32), and the elements, padded to a whole word. A reference is
 * the place of a descriptor in the tree, a word; a handle is no word at all: it is the one that the call is made with.
 */
#ifndef VG_DNN_WIRE_H
#define VG_DNN_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "vg_dnn.h"

enum {
	/* a tree. Whether the library finalises it */
	DNN_CHECK = 1,
	/* an attribute, its type; a tree. Gives back how many elements the last descriptor has of it, and these */
	DNN_GET,
	/* an attribute, how many to leave out; a tree. Gives back how many descriptors there are,
	 * how many follow, how many to leave out to get the others, and these, see below */
	DNN_FIND,
	/* a tree that ends in an execution plan, which is kept. Gives back the bytes of its workspace */
	DNN_PLAN,
	/* a plan, the workspace's address; how many tensors, for each its unique id and its address; how many values, for each its
	 * unique id, its bytes and the value, padded */
	DNN_EXECUTE,
	/* nothing. Gives back the newest device that the library knows, and the runtime that it was built with */
	DNN_VERSIONS,
	/* a descriptor of the classic interface, of dropout: its states begin */
	DNN_SET_DROPOUT,
};

/*
 * Descriptors that DNN_FIND gives back: engine configurations are the engine's global index, the number of choices and for each the
 * knob's type and value; knobs their type, largest and least value and stride; layouts the tensor's unique id, the number of types
 * and these.
 */

enum { DNN_TREE = 256, DNN_TREE_ATTRIBUTES = 32, DNN_DIMENSIONS = 8, DNN_VALUES = 32, DNN_VALUE_BYTES = 16, DNN_KNOBS = 64,
       DNN_NOTES = 64, DNN_ANY_OPERATION = 254, DNN_NO_TARGET = 255 };

/* cudnnStatus_t */
enum { DNN_OK = 0, DNN_NOT_INITIALIZED = 1001, DNN_BAD_PARAM = 2000, DNN_NULL_POINTER = 2002, DNN_NOT_FINALIZED = 2004,
       DNN_ATTRIBUTE_TYPE = 2010, DNN_DESCRIPTOR_TYPE = 2012, DNN_NOT_SUPPORTED = 3000, DNN_INTERNAL_ERROR = 4000, DNN_ALLOC_FAILED = 4003, DNN_EXECUTION_FAILED = 5000 };

/* cudnnDataType_t: those that a scalar may have, and the last */
enum { DNN_FLOAT = 0, DNN_DOUBLE = 1, DNN_LAST_DATA_TYPE = 21 };

struct dnn_attribute {
	uint16_t number, count;   /* count: of elements, at most */
	uint8_t descriptor;       /* that has it */
	uint8_t target;           /* that it refers to */
	uint8_t get;              /* the library sets it */
	uint64_t types;           /* a bit for each */
};

extern const struct dnn_attribute dnn_attributes[DNN_ATTRIBUTES];

/* NULL: not known here, and so not supported. */
const struct dnn_attribute *dnn_attribute(uint64_t number);
/* Whether a descriptor has it that may be what an attribute refers to. */
bool dnn_refers_to(const struct dnn_attribute *a, uint64_t descriptor);
/* Whether there are such descriptors. */
bool dnn_is_descriptor(uint64_t type);
/* Bytes of an element as the program has it; 0: there is no such type. A reference has a pointer's, a handle too. */
size_t dnn_element_bytes(uint64_t type);
/* Bytes of an element of a tensor; 0: of none that has whole bytes. */
size_t dnn_data_bytes(uint64_t data_type);

static inline uint64_t dnn_head(uint64_t number, uint64_t type, uint64_t count)
{
	return number | type << 16 | count << 32;
}
static inline uint64_t dnn_head_number(uint64_t head)
{
	return head & 0xffff;
}
static inline uint64_t dnn_head_type(uint64_t head)
{
	return head >> 16 & 0xffff;
}
static inline uint64_t dnn_head_count(uint64_t head)
{
	return head >> 32;
}
static inline size_t dnn_padded(size_t bytes)
{
	return (bytes + 7) / 8 * 8;
}

/* ---- the classic interface */

enum dnn_kind {
	DNN_INT_ARGUMENT, DNN_SIZE_ARGUMENT, DNN_DOUBLE_ARGUMENT, DNN_DEVICE_ARGUMENT,
	DNN_IN_ARGUMENT, DNN_VALUE_ARGUMENT, /* on the host: a word that says whether there is one, and the value */
	DNN_OUT_ARGUMENT, DNN_NUMBER_ARGUMENT, /* no word; a word is given back */
	DNN_WANTED_ARGUMENT,                 /* a number, at most DNN_PERFS */
	DNN_PERFS_ARGUMENT,                  /* no word; as many are given back as the number before says */
	/* descriptors: how many words follow, 0 for none, and these: see dnn_forms */
	DNN_TENSOR_ARGUMENT, DNN_FILTER_ARGUMENT, DNN_CONVOLUTION_ARGUMENT, DNN_POOLING_ARGUMENT, DNN_ACTIVATION_ARGUMENT,
	DNN_OPTENSOR_ARGUMENT, DNN_REDUCTION_ARGUMENT, DNN_LRN_ARGUMENT, DNN_DROPOUT_ARGUMENT, DNN_KINDS,
};

enum { DNN_ARGUMENTS = 36, DNN_FORM_WORDS = 32, DNN_PERFS = 16, DNN_PERF_BYTES = 48 };

/* A descriptor's words: so many of its own, of which one is the number of dimensions, then arrays of as many. */
struct dnn_form {
	uint8_t words, dimensions, arrays; /* dimensions: that word's place, if there are arrays */
};

/*
 * tensor: data type, dimensions; sizes, strides. filter: data type, format, dimensions; sizes. convolution: mode, compute
 * type, mathematics, groups, reordering, dimensions; paddings, strides, dilations. pooling: mode, NaNs, dimensions; windows,
 * paddings, strides. activation: mode, NaNs, coefficient, beta. optensor: operation, type, NaNs. reduction: operation, type,
 * NaNs, indices and their type. lrn: n, alpha, beta, k. dropout: probability, states and their bytes, seed.
 */
extern const struct dnn_form dnn_forms[DNN_KINDS];

/* Words of a descriptor whose own ones are there; 0: there is none with so many dimensions. */
size_t dnn_form_words(enum dnn_kind kind, const uint64_t *words);

struct dnn_function {
	uint64_t id;
	const char *name;
	unsigned int count;
	uint8_t arguments[DNN_ARGUMENTS];
};

extern const struct dnn_function dnn_functions[DNN_FUNCTIONS];

/* NULL: there is none. */
const struct dnn_function *dnn_find(uint64_t id);

static inline uint64_t dnn_bits(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}
static inline double dnn_double(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

#endif
