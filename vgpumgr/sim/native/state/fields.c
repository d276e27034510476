/* SPDX-License-Identifier: Apache-2.0 */
#include "fields.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY(type, member, kind) { #member, kind, offsetof(struct type, member), sizeof(((struct type *)0)->member) }
#define TEXT(type, member) ENTRY(type, member, FIELD_TEXT)
#define U32(type, member) ENTRY(type, member, FIELD_U32)
#define I32(type, member) ENTRY(type, member, FIELD_I32)
#define U64(type, member) ENTRY(type, member, FIELD_U64)
#define BOOL(type, member) ENTRY(type, member, FIELD_BOOL)

const struct field machine_fields[] = {
	TEXT(sim_machine, name), TEXT(sim_machine, driver_version), TEXT(sim_machine, nvml_version),
	I32(sim_machine, cuda_driver_version), { NULL },
};

const struct field gpu_fields[] = {
	TEXT(sim_gpu, name), TEXT(sim_gpu, uuid), TEXT(sim_gpu, serial), TEXT(sim_gpu, vbios),
	TEXT(sim_gpu, part_number), TEXT(sim_gpu, cpus),
	U32(sim_gpu, pci_domain), U32(sim_gpu, pci_bus), U32(sim_gpu, pci_device), U32(sim_gpu, pci_device_id),
	U32(sim_gpu, pci_subsystem_id), I32(sim_gpu, numa_node), U32(sim_gpu, architecture), U32(sim_gpu, brand),
	U32(sim_gpu, minor), U32(sim_gpu, cc_major), U32(sim_gpu, cc_minor), U32(sim_gpu, sm_count),
	U32(sim_gpu, cores_per_sm), U32(sim_gpu, sm_clock_mhz), U32(sim_gpu, mem_clock_mhz),
	U32(sim_gpu, memory_bus_bits), U32(sim_gpu, power_limit_mw), U32(sim_gpu, idle_power_mw),
	U32(sim_gpu, idle_temperature_c), U32(sim_gpu, max_temperature_c), U32(sim_gpu, pcie_gen),
	U32(sim_gpu, pcie_width), U32(sim_gpu, pcie_switch), U32(sim_gpu, copy_engines), U32(sim_gpu, decoders),
	U32(sim_gpu, encoders), U32(sim_gpu, jpegs), U32(sim_gpu, ofas), U32(sim_gpu, compute_mode),
	U64(sim_gpu, memory_bytes), U64(sim_gpu, memory_reserved_bytes), U64(sim_gpu, bar1_bytes),
	BOOL(sim_gpu, mig_capable), BOOL(sim_gpu, mig_needs_reset), BOOL(sim_gpu, mig_current),
	BOOL(sim_gpu, mig_pending), BOOL(sim_gpu, ecc_current), BOOL(sim_gpu, ecc_pending),
	BOOL(sim_gpu, persistence), U32(sim_gpu, ecc_single), U32(sim_gpu, ecc_double), U32(sim_gpu, temperature_c),
	BOOL(sim_gpu, lost), BOOL(sim_gpu, detached), U32(sim_gpu, vgpu_family), U32(sim_gpu, vgpu_slots),
	BOOL(sim_gpu, vgpu_sriov), BOOL(sim_gpu, vgpu_mdev), BOOL(sim_gpu, vgpu_mixed_capable),
	BOOL(sim_gpu, vgpu_mixed), U32(sim_gpu, compute_slices), U32(sim_gpu, memory_slices),
	{ NULL },
};

const struct field profile_fields[] = {
	TEXT(sim_profile, name), U32(sim_profile, profile_enum), U32(sim_profile, id), U32(sim_profile, slices),
	U32(sim_profile, max_instances), U32(sim_profile, sm_count), U32(sim_profile, copy_engines),
	U32(sim_profile, decoders), U32(sim_profile, encoders), U32(sim_profile, jpegs), U32(sim_profile, ofas),
	U64(sim_profile, memory_bytes), BOOL(sim_profile, media), BOOL(sim_profile, media_all),
	BOOL(sim_profile, no_media), BOOL(sim_profile, gfx), { NULL },
};

const struct field vgpu_type_fields[] = {
	U32(sim_vgpu_type, family), U32(sim_vgpu_type, id), TEXT(sim_vgpu_type, name),
	TEXT(sim_vgpu_type, class_name), TEXT(sim_vgpu_type, license), U32(sim_vgpu_type, framebuffer_mib),
	U32(sim_vgpu_type, size), U32(sim_vgpu_type, max_instances), U32(sim_vgpu_type, max_per_vm),
	U32(sim_vgpu_type, max_per_gi), U32(sim_vgpu_type, gi_profile), U32(sim_vgpu_type, heads),
	U32(sim_vgpu_type, max_x), U32(sim_vgpu_type, max_y), U32(sim_vgpu_type, frame_rate_limit),
	U32(sim_vgpu_type, device_id), U32(sim_vgpu_type, subsystem_id), { NULL },
};

static int parse_number(const char *text, intmax_t min, uintmax_t max, uintmax_t *value)
{
	char *end;

	if (!*text)
		return -EINVAL;
	errno = 0;
	if (*text == '-') {
		intmax_t n = strtoimax(text, &end, 0);

		if (errno || n < min)
			return -ERANGE;
		*value = (uintmax_t)n;
	} else {
		*value = strtoumax(text, &end, 0);
		if (errno || *value > max)
			return -ERANGE;
	}
	return *end ? -EINVAL : 0;
}

static int set_text(const struct field *f, char *at, const char *value)
{
	if (strlen(value) >= f->size)
		return -ERANGE;
	memset(at, 0, f->size);
	memcpy(at, value, strlen(value));
	return 0;
}

static int set_number(const struct field *f, void *at, const char *value)
{
	static const struct {
		intmax_t min;
		uintmax_t max;
	} range[] = {
		[FIELD_U32] = { 0, UINT32_MAX },
		[FIELD_I32] = { INT32_MIN, INT32_MAX },
		[FIELD_U64] = { 0, UINT64_MAX },
		[FIELD_BOOL] = { 0, 1 },
	};
	uintmax_t n;
	int err = parse_number(value, range[f->kind].min, range[f->kind].max, &n);

	if (err)
		return err;
	if (f->kind == FIELD_BOOL)
		*(bool *)at = n;
	else if (f->kind == FIELD_U64)
		*(uint64_t *)at = n;
	else
		*(uint32_t *)at = (uint32_t)n;
	return 0;
}

int field_set(const struct field *table, void *base, const char *name, const char *value)
{
	for (const struct field *f = table; f->name; f++) {
		void *at = (char *)base + f->offset;

		if (!strcmp(f->name, name))
			return f->kind == FIELD_TEXT ? set_text(f, at, value) : set_number(f, at, value);
	}
	return -ENOENT;
}

static void print_value(FILE *out, const struct field *f, const void *at)
{
	switch (f->kind) {
	case FIELD_TEXT:
		fprintf(out, "%.*s\n", (int)f->size, (const char *)at);
		break;
	case FIELD_U32:
		fprintf(out, "%" PRIu32 "\n", *(const uint32_t *)at);
		break;
	case FIELD_I32:
		fprintf(out, "%" PRId32 "\n", *(const int32_t *)at);
		break;
	case FIELD_U64:
		fprintf(out, "%" PRIu64 "\n", *(const uint64_t *)at);
		break;
	case FIELD_BOOL:
		fprintf(out, "%d\n", *(const bool *)at);
		break;
	}
}

void fields_print(FILE *out, const struct field *table, const void *base, const char *prefix)
{
	for (const struct field *f = table; f->name; f++) {
		fprintf(out, "%s%s ", prefix, f->name);
		print_value(out, f, (const char *)base + f->offset);
	}
}
