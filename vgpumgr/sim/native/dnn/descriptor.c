/* SPDX-License-Identifier: Apache-2.0 */
/* The backend interface: descriptors are created, filled, finalised and read. */
#include <stdlib.h>
#include <string.h>

#include "descriptor.h"
#include "exports.h"
#include "graph.h"
#include "operations.h"

enum { MAX_ELEMENTS = 1 << 20 };

int cudnnBackendCreateDescriptor(int type, void **descriptor)
{
	struct dn_descriptor *d;
	int n;

	if (!descriptor)
		return dn_fail(DN_NULL_POINTER, "no place for the descriptor");
	*descriptor = NULL;
	if (type < 0 || type >= DN_D_TYPES)
		return dn_fail(DN_NO_HOST_MEMORY, "no such descriptor"); /* what NVIDIA's library answers */
	if (!dn_rules(type, &n))
		return dn_fail(DN_NOT_SUPPORTED, "a descriptor that is not simulated");
	d = dn_object_create(DN_BACKEND, sizeof *d);
	if (!d)
		return dn_fail(DN_NO_HOST_MEMORY, "no memory for a descriptor");
	d->content = dn_content_create(type);
	if (!d->content) {
		dn_object_destroy(d, DN_BACKEND);
		return dn_fail(DN_NO_HOST_MEMORY, "no memory for a descriptor");
	}
	*descriptor = d;
	return DN_SUCCESS;
}

static int find(const void *pointer, struct dn_descriptor **out)
{
	*out = dn_object_find(pointer, DN_BACKEND);
	if (*out)
		return DN_SUCCESS;
	return pointer ? dn_fail(DN_BAD_PARAM, "no descriptor") : dn_fail(DN_NULL_POINTER, "no descriptor");
}

int cudnnBackendDestroyDescriptor(void *descriptor)
{
	struct dn_descriptor *d;
	struct dn_content *content;
	int status = find(descriptor, &d);

	if (status != DN_SUCCESS)
		return status;
	content = d->content;
	dn_object_destroy(d, DN_BACKEND);
	dn_content_release(content);
	return DN_SUCCESS;
}

int cudnnBackendInitialize(void *descriptor)
{
	struct dn_descriptor *d;
	struct dn_content *fresh;
	int status = find(descriptor, &d);

	if (status != DN_SUCCESS)
		return status;
	fresh = dn_content_create(d->content->type);
	if (!fresh)
		return dn_fail(DN_NO_HOST_MEMORY, "no memory for a descriptor");
	dn_content_release(d->content);
	d->content = fresh;
	return DN_SUCCESS;
}

int dn_descriptor_read(const void *pointer, int type, struct dn_content **out)
{
	struct dn_descriptor *d;
	int status = find(pointer, &d);

	if (status != DN_SUCCESS)
		return status;
	if (d->content->type != type)
		return dn_fail(DN_DESCRIPTOR_TYPE, "a descriptor of another type");
	if (!d->content->finalized)
		return dn_fail(DN_NOT_FINALIZED, "a descriptor that is not finalised");
	*out = d->content;
	return DN_SUCCESS;
}

static bool is_target(const struct dn_rule *rule, int type)
{
	return rule->target == DN_ANY_OPERATION ? dn_is_operation(type) : rule->target == type;
}

/* Descriptors as values: finalised ones of the type that the attribute has; their contents are shared. */
static int store_descriptors(struct dn_content *c, const struct dn_rule *rule, int64_t count, void *const *values)
{
	struct dn_content **contents = calloc((size_t)count + 1, sizeof *contents);
	struct dn_descriptor *d;
	int status = contents ? DN_SUCCESS : dn_fail(DN_NO_HOST_MEMORY, "no memory for a value");

	for (int64_t i = 0; i < count && status == DN_SUCCESS; i++) {
		status = find(values[i], &d);
		if (status != DN_SUCCESS)
			break;
		contents[i] = d->content;
		if (!is_target(rule, d->content->type))
			status = dn_fail(DN_BAD_PARAM, "a descriptor of another type than the attribute has");
		else if (!d->content->finalized)
			status = dn_fail(DN_NOT_FINALIZED, "a descriptor that is not finalised");
	}
	if (status == DN_SUCCESS && !dn_content_store(c, rule->id, DN_T_DESCRIPTOR, count, contents))
		status = dn_fail(DN_NO_HOST_MEMORY, "no memory for a value");
	free(contents);
	return status;
}

static int check_handle(void *const *values)
{
	if (!values[0])
		return dn_fail(DN_NULL_POINTER, "no handle");
	return dn_object_find(values[0], DN_HANDLE) ? DN_SUCCESS : dn_fail(DN_BAD_PARAM, "no handle");
}

static bool is_type(const struct dn_rule *rule, int type)
{
	if (rule->flags & DN_EITHER_REAL)
		return type == DN_T_FLOAT || type == DN_T_DOUBLE;
	return type == rule->type;
}

static int check_value(const struct dn_rule *rule, int type, int64_t count, const void *values)
{
	if (rule->flags & DN_READ_ONLY)
		return dn_fail(DN_BAD_PARAM, "an attribute that is only read");
	if (!is_type(rule, type))
		return dn_fail(DN_ATTRIBUTE_TYPE, "the attribute has another type");
	/* a configuration without choices of knobs may say so */
	if (count < (rule->id == DN_A_CONFIG_KNOBS ? 0 : 1) || count > (rule->most ? rule->most : MAX_ELEMENTS))
		return dn_fail(DN_BAD_PARAM, "a number of elements that the attribute does not have");
	if (!values && count)
		return dn_fail(DN_BAD_PARAM, "no values");
	return type == DN_T_HANDLE ? check_handle(values) : DN_SUCCESS;
}

int cudnnBackendSetAttribute(void *descriptor, int id, int type, int64_t count, const void *values)
{
	struct dn_descriptor *d;
	const struct dn_rule *rule;
	int status = find(descriptor, &d);

	if (status != DN_SUCCESS)
		return status;
	if (d->content->finalized)
		return dn_fail(DN_BAD_PARAM, "the descriptor is finalised");
	rule = dn_content_rule(d->content, id);
	if (!rule)
		return dn_fail(DN_BAD_PARAM, "the descriptor has no such attribute");
	status = check_value(rule, type, count, values);
	if (status != DN_SUCCESS)
		return status;
	if (type == DN_T_DESCRIPTOR)
		return store_descriptors(d->content, rule, count, values);
	if (!dn_content_store(d->content, id, type, count, values))
		return dn_fail(DN_NO_HOST_MEMORY, "no memory for a value");
	return DN_SUCCESS;
}

/* The program's own descriptors get the contents. */
static int load_descriptors(const struct dn_value *v, int64_t n, void *const *descriptors)
{
	struct dn_descriptor *d;

	for (int64_t i = 0; i < n; i++) {
		struct dn_content *found = ((struct dn_content **)v->data)[i];
		int status = find(descriptors[i], &d);

		if (status != DN_SUCCESS || d->content->type != found->type)
			return dn_fail(DN_BAD_PARAM, "no descriptor of the type that the attribute has");
		dn_content_keep(found);
		dn_content_release(d->content);
		d->content = found;
	}
	return DN_SUCCESS;
}

static int load(const struct dn_value *v, int64_t wanted, int64_t *count, void *values)
{
	int64_t n = wanted < v->count ? wanted : v->count;
	int status = DN_SUCCESS;

	if (!values) { /* how many there are */
		if (count)
			*count = v->count;
		return DN_SUCCESS;
	}
	if (v->type == DN_T_DESCRIPTOR)
		status = load_descriptors(v, n, values);
	else
		memcpy(values, v->data, (size_t)n * dn_attribute_bytes(v->type));
	if (status == DN_SUCCESS && count)
		*count = n;
	return status;
}

int cudnnBackendGetAttribute(void *descriptor, int id, int type, int64_t wanted, int64_t *count, void *values)
{
	struct dn_descriptor *d;
	const struct dn_rule *rule;
	const struct dn_value *value;
	int status = find(descriptor, &d);

	if (status != DN_SUCCESS)
		return status;
	if (!d->content->finalized)
		return dn_fail(DN_NOT_INITIALIZED, "the descriptor is not finalised");
	rule = dn_content_rule(d->content, id);
	if (!rule || wanted < 0)
		return dn_fail(DN_BAD_PARAM, "no such attribute, or a negative number of elements");
	value = dn_content_value(d->content, id);
	if (!is_type(rule, type))
		return dn_fail(DN_ATTRIBUTE_TYPE, "the attribute has another type");
	if ((rule->flags & DN_SINGLE) && values && wanted != 1)
		return dn_fail(DN_BAD_PARAM, "one element may be asked for");
	if (!value)
		return dn_fail(DN_NOT_SUPPORTED, "an attribute that was not set");
	if (value->type != type)
		return dn_fail(DN_BAD_PARAM, "the attribute was set with another type");
	return load(value, wanted, count, values);
}

static int check_pack(const struct dn_content *c)
{
	if (dn_content_count(c, DN_A_PACK_UIDS) != dn_content_count(c, DN_A_PACK_POINTERS))
		return dn_fail(DN_BAD_PARAM, "another number of identities than of addresses");
	return DN_SUCCESS;
}

static int check_operation(const struct dn_content *c)
{
	struct dn_operands operands;
	struct dn_operation o;

	return dn_operation_read(c, &o, &operands);
}

static int check(struct dn_content *c)
{
	switch (c->type) {
	case DN_D_TENSOR:
		return dn_tensor_check(c);
	case DN_D_CONVOLUTION:
		return dn_operator_check(c);
	case DN_D_REDUCTION:
		return dn_reduction_check(c);
	case DN_D_GRAPH:
		return dn_graph_finalize(c);
	case DN_D_ENGINE:
		return dn_engine_finalize(c);
	case DN_D_CONFIG:
		return dn_config_finalize(c);
	case DN_D_HEURISTICS:
		return dn_heuristics_finalize(c);
	case DN_D_PLAN:
		return dn_plan_finalize(c);
	case DN_D_PACK:
		return check_pack(c);
	case DN_D_KNOB_CHOICE:
		return dn_content_value(c, DN_A_CHOICE_TYPE) ? DN_SUCCESS : dn_fail(DN_BAD_PARAM, "a choice of no knob");
	case DN_D_KNOB_INFO:
	case DN_D_LAYOUT_INFO:
		return dn_fail(DN_NOT_SUPPORTED, "a descriptor that only the library finalises");
	default:
		return dn_is_operation(c->type) ? check_operation(c) : DN_SUCCESS;
	}
}

int cudnnBackendFinalize(void *descriptor)
{
	struct dn_descriptor *d;
	int status = find(descriptor, &d);

	if (status != DN_SUCCESS)
		return status;
	if (d->content->finalized)
		return dn_fail(DN_BAD_PARAM, "the descriptor is finalised");
	status = check(d->content);
	d->content->finalized = status == DN_SUCCESS;
	return status;
}
