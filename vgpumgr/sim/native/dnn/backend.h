/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of the backend interface. What a program has set is a content: values by attribute. A finalised content never
 * changes and is shared, by reference count, among the descriptors and contents that have it; it outlives its descriptor.
 */
#ifndef VGPUMGR_SIM_DNN_BACKEND_H
#define VGPUMGR_SIM_DNN_BACKEND_H

#include "dnn.h"

/* cudnnBackendDescriptorType_t: those that are simulated */
enum {
	DN_D_POINTWISE = 0,
	DN_D_CONVOLUTION = 1,
	DN_D_ENGINE = 2,
	DN_D_CONFIG = 3,
	DN_D_HEURISTICS = 4,
	DN_D_PLAN = 5,
	DN_D_KNOB_CHOICE = 7,
	DN_D_KNOB_INFO = 8,
	DN_D_LAYOUT_INFO = 9,
	DN_D_FORWARD = 10,
	DN_D_BACKWARD_FILTER = 11,
	DN_D_BACKWARD_DATA = 12,
	DN_D_POINTWISE_OP = 13,
	DN_D_GRAPH = 15,
	DN_D_PACK = 16,
	DN_D_TENSOR = 17,
	DN_D_MATMUL = 18,
	DN_D_MATMUL_OP = 19,
	DN_D_REDUCTION = 21,
	DN_D_REDUCTION_OP = 22,
	DN_D_TYPES = 51,
};

/* cudnnBackendAttributeType_t */
enum {
	DN_T_HANDLE = 0,
	DN_T_DATA_TYPE = 1,
	DN_T_BOOLEAN = 2,
	DN_T_INT64 = 3,
	DN_T_FLOAT = 4,
	DN_T_DOUBLE = 5,
	DN_T_POINTER = 6,
	DN_T_CONVOLUTION_MODE = 7,
	DN_T_HEURISTIC_MODE = 8,
	DN_T_KNOB = 9,
	DN_T_NAN = 10,
	DN_T_NUMERICAL = 11,
	DN_T_LAYOUT = 12,
	DN_T_POINTWISE_MODE = 14,
	DN_T_DESCRIPTOR = 15,
	DN_T_REDUCTION = 18,
	DN_T_BEHAVIOR = 19,
	DN_T_REORDERING = 20,
	DN_T_INT32 = 23,
	DN_T_GRAPH_MODE = 32,
	DN_T_TYPES = 33,
};

/* cudnnBackendAttributeName_t: those that are simulated */
enum {
	DN_A_POINTWISE_MODE = 0,
	DN_A_POINTWISE_PRECISION = 1,
	DN_A_POINTWISE_NAN = 2,
	DN_A_RELU_LOWER = 3,
	DN_A_RELU_UPPER = 4,
	DN_A_RELU_SLOPE = 5,
	DN_A_ELU_ALPHA = 6,
	DN_A_SOFTPLUS_BETA = 7,
	DN_A_SWISH_BETA = 8,
	DN_A_POINTWISE_AXIS = 9,
	DN_A_CONV_TYPE = 100,
	DN_A_CONV_MODE = 101,
	DN_A_CONV_DILATIONS = 102,
	DN_A_CONV_STRIDES = 103,
	DN_A_CONV_POST = 104,
	DN_A_CONV_PRE = 105,
	DN_A_CONV_DIMS = 106,
	DN_A_HEUR_MODE = 200,
	DN_A_HEUR_GRAPH = 201,
	DN_A_HEUR_RESULTS = 202,
	DN_A_HEUR_SMS = 203,
	DN_A_CONFIG_ENGINE = 300,
	DN_A_CONFIG_KNOBS = 302,
	DN_A_CONFIG_WORKSPACE = 303,
	DN_A_CONFIG_SHARED = 304,
	DN_A_PLAN_HANDLE = 400,
	DN_A_PLAN_CONFIG = 401,
	DN_A_PLAN_WORKSPACE = 402,
	DN_A_CHOICE_TYPE = 600,
	DN_A_CHOICE_VALUE = 601,
	DN_A_FORWARD = 700, /* and five that follow: ALPHA, BETA, CONV_DESC, W, X, Y */
	DN_A_BACKWARD_DATA = 706, /* the same: W, DX, DY */
	DN_A_BACKWARD_FILTER = 712, /* the same: DW, X, DY */
	DN_A_PW_DESC = 750,
	DN_A_PW_X = 751,
	DN_A_PW_B = 752,
	DN_A_PW_Y = 753,
	DN_A_PW_ALPHA1 = 754,
	DN_A_PW_ALPHA2 = 755,
	DN_A_PW_DX = 756,
	DN_A_PW_DY = 757,
	DN_A_PW_T = 758,
	DN_A_GRAPH_HANDLE = 800,
	DN_A_GRAPH_OPS = 801,
	DN_A_GRAPH_ENGINES = 802,
	DN_A_GRAPH_DYNAMIC = 803,
	DN_A_GRAPH_MODE = 806,
	DN_A_TENSOR_ALIGNMENT = 900,
	DN_A_TENSOR_TYPE = 901,
	DN_A_TENSOR_DIMS = 902,
	DN_A_TENSOR_STRIDES = 903,
	DN_A_TENSOR_VECTOR = 904,
	DN_A_TENSOR_VECTOR_DIM = 905,
	DN_A_TENSOR_UID = 906,
	DN_A_TENSOR_VIRTUAL = 907,
	DN_A_TENSOR_BY_VALUE = 908,
	DN_A_TENSOR_REORDERING = 909,
	DN_A_PACK_UIDS = 1000,
	DN_A_PACK_POINTERS = 1001,
	DN_A_PACK_INTERMEDIATES = 1002,
	DN_A_PACK_WORKSPACE = 1003,
	DN_A_LAYOUT_UID = 1100,
	DN_A_LAYOUT_TYPES = 1101,
	DN_A_KNOB_TYPE = 1200,
	DN_A_KNOB_MAXIMUM = 1201,
	DN_A_KNOB_MINIMUM = 1202,
	DN_A_KNOB_STRIDE = 1203,
	DN_A_ENGINE_GRAPH = 1300,
	DN_A_ENGINE_INDEX = 1301,
	DN_A_ENGINE_KNOBS = 1302,
	DN_A_ENGINE_NUMERICAL = 1303,
	DN_A_ENGINE_LAYOUT = 1304,
	DN_A_ENGINE_BEHAVIOR = 1305,
	DN_A_ENGINE_SMS = 1306,
	DN_A_MATMUL_TYPE = 1500,
	DN_A_MATMUL_PADDING = 1503,
	DN_A_MATMUL_A = 1520,
	DN_A_MATMUL_B = 1521,
	DN_A_MATMUL_C = 1522,
	DN_A_MATMUL_DESC = 1523,
	DN_A_REDUCTION_OPERATOR = 1600,
	DN_A_REDUCTION_TYPE = 1601,
	DN_A_REDUCTION_DETERMINISTIC = 1602,
	DN_A_REDUCTION_X = 1610,
	DN_A_REDUCTION_Y = 1611,
	DN_A_REDUCTION_DESC = 1612,
};

/* rules.c: which attributes a descriptor has */
/*
 * DN_EITHER_REAL: float is accepted where double is named, and the other way round. DN_SINGLE: only one element may be
 * asked for, though there is never more than one of others.
 */
enum { DN_READ_ONLY = 1, DN_EITHER_REAL = 2, DN_SINGLE = 4 };
enum { DN_ANY_OPERATION = -2 };
struct dn_rule {
	short descriptor, id, type;
	unsigned char most, flags; /* elements; 0: any number */
	short target; /* of a descriptor: its type */
};
/* The rules of a descriptor's type, one after the other; NULL: it is not simulated. */
const struct dn_rule *dn_rules(int descriptor, int *n);
/* Bytes of an element; 0: no such type. */
size_t dn_attribute_bytes(int type);
bool dn_is_operation(int descriptor);

/* content.c */
struct dn_program;
struct dn_value {
	int type;
	bool is_set;
	int64_t count;
	void *data; /* of DN_T_DESCRIPTOR: pointers to contents */
};
struct dn_content {
	int references, type;
	bool finalized;
	int n;
	const struct dn_rule *rules;
	struct dn_value *values;
	struct dn_program *program; /* of a graph */
	void (*release_program)(struct dn_program *program);
};
struct dn_content *dn_content_create(int descriptor);
struct dn_content *dn_content_keep(struct dn_content *c);
void dn_content_release(struct dn_content *c);
const struct dn_rule *dn_content_rule(const struct dn_content *c, int id);
/* The value, if it is set. */
const struct dn_value *dn_content_value(const struct dn_content *c, int id);
/* Sets a value, whatever the rules say; references of descriptors are taken. False: no memory. */
bool dn_content_store(struct dn_content *c, int id, int type, int64_t count, const void *data);
bool dn_content_store_int(struct dn_content *c, int id, int64_t value);
/* A value that was not set gets its default. */
bool dn_content_default(struct dn_content *c, int id, int64_t value);
int64_t dn_content_int(const struct dn_content *c, int id, int64_t missing);
double dn_content_real(const struct dn_content *c, int id, double missing);
struct dn_content *dn_content_ref(const struct dn_content *c, int id, int64_t i);
int64_t dn_content_count(const struct dn_content *c, int id);

#endif
