/* SPDX-License-Identifier: Apache-2.0 */
/* Contents of descriptors: values by attribute. */
#include <stdlib.h>
#include <string.h>

#include "backend.h"

struct dn_content *dn_content_create(int descriptor)
{
	struct dn_content *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->references = 1;
	c->type = descriptor;
	c->rules = dn_rules(descriptor, &c->n);
	c->values = calloc((size_t)c->n + 1, sizeof *c->values);
	if (c->values)
		return c;
	free(c);
	return NULL;
}

struct dn_content *dn_content_keep(struct dn_content *c)
{
	__atomic_add_fetch(&c->references, 1, __ATOMIC_RELAXED);
	return c;
}

static void clear(struct dn_value *v)
{
	struct dn_content **refs = v->data;

	if (v->is_set && v->type == DN_T_DESCRIPTOR)
		for (int64_t i = 0; i < v->count; i++)
			dn_content_release(refs[i]);
	free(v->data);
	*v = (struct dn_value){ 0 };
}

void dn_content_release(struct dn_content *c)
{
	if (!c || __atomic_sub_fetch(&c->references, 1, __ATOMIC_ACQ_REL))
		return;
	for (int i = 0; i < c->n; i++)
		clear(&c->values[i]);
	if (c->program)
		c->release_program(c->program);
	free(c->values);
	free(c);
}

static int index_of(const struct dn_content *c, int id)
{
	for (int i = 0; i < c->n; i++)
		if (c->rules[i].id == id)
			return i;
	return -1;
}

const struct dn_rule *dn_content_rule(const struct dn_content *c, int id)
{
	int i = index_of(c, id);

	return i < 0 ? NULL : &c->rules[i];
}

const struct dn_value *dn_content_value(const struct dn_content *c, int id)
{
	int i = index_of(c, id);

	return i < 0 || !c->values[i].is_set ? NULL : &c->values[i];
}

bool dn_content_store(struct dn_content *c, int id, int type, int64_t count, const void *data)
{
	struct dn_value *v = &c->values[index_of(c, id)];
	size_t bytes = (size_t)count * dn_attribute_bytes(type);
	void *copy = malloc(bytes + 1);
	struct dn_content *const *refs = data;

	if (!copy)
		return false;
	if (bytes)
		memcpy(copy, data, bytes);
	if (type == DN_T_DESCRIPTOR)
		for (int64_t i = 0; i < count; i++)
			dn_content_keep(refs[i]);
	clear(v);
	*v = (struct dn_value){ .type = type, .is_set = true, .count = count, .data = copy };
	return true;
}

bool dn_content_store_int(struct dn_content *c, int id, int64_t value)
{
	int type = dn_content_rule(c, id)->type;
	int32_t narrow = (int32_t)value;
	bool truth = value;

	if (dn_attribute_bytes(type) == sizeof value)
		return dn_content_store(c, id, type, 1, &value);
	return type == DN_T_BOOLEAN ? dn_content_store(c, id, type, 1, &truth) : dn_content_store(c, id, type, 1, &narrow);
}

bool dn_content_default(struct dn_content *c, int id, int64_t value)
{
	return dn_content_value(c, id) || dn_content_store_int(c, id, value);
}

int64_t dn_content_int(const struct dn_content *c, int id, int64_t missing)
{
	const struct dn_value *v = dn_content_value(c, id);
	int64_t wide = 0;
	int32_t narrow = 0;
	bool truth = false;

	if (!v || !v->count)
		return missing;
	if (v->type == DN_T_BOOLEAN)
		return *(const unsigned char *)memcpy(&truth, v->data, sizeof truth) != 0;
	if (dn_attribute_bytes(v->type) == sizeof wide)
		return *(int64_t *)memcpy(&wide, v->data, sizeof wide);
	return *(int32_t *)memcpy(&narrow, v->data, sizeof narrow);
}

double dn_content_real(const struct dn_content *c, int id, double missing)
{
	const struct dn_value *v = dn_content_value(c, id);

	if (!v || !v->count)
		return missing;
	return v->type == DN_T_FLOAT ? *(const float *)v->data : *(const double *)v->data;
}

struct dn_content *dn_content_ref(const struct dn_content *c, int id, int64_t i)
{
	const struct dn_value *v = dn_content_value(c, id);

	return v && i < v->count ? ((struct dn_content **)v->data)[i] : NULL;
}

int64_t dn_content_count(const struct dn_content *c, int id)
{
	const struct dn_value *v = dn_content_value(c, id);

	return v ? v->count : 0;
}
