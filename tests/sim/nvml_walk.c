/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NVML client of the ordinary kind: compiled against NVIDIA's header, linked with -lnvidia-ml. Walks the whole MIG
 * interface on the first GPU: for every profile of the board it makes an instance in every place, a compute instance
 * in it, looks at the MIG device from all sides, and takes everything away again. What a profile is, and where it
 * may stand, is asked first with MIG mode off.
 */
#include <nvml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(call)                                                                                   \
	do {                                                                                         \
		nvmlReturn_t status_ = (call);                                                       \
		if (status_ != NVML_SUCCESS) {                                                       \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                \
				nvmlErrorString(status_));                                           \
			exit(1);                                                                     \
		}                                                                                    \
	} while (0)
#define CHECK(condition)                                                                             \
	do {                                                                                         \
		if (!(condition)) {                                                                  \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);      \
			exit(1);                                                                     \
		}                                                                                    \
	} while (0)

static int is_listed(nvmlDevice_t gpu, nvmlDevice_t mig)
{
	unsigned int count;

	MUST(nvmlDeviceGetMaxMigDeviceCount(gpu, &count));
	for (unsigned int i = 0; i < count; i++) {
		nvmlDevice_t device;

		if (nvmlDeviceGetMigDeviceHandleByIndex(gpu, i, &device) != NVML_SUCCESS)
			return 0;
		if (device == mig)
			return 1;
	}
	return 0;
}

static void check_mig_device(nvmlDevice_t gpu, nvmlDevice_t mig, const nvmlGpuInstanceProfileInfo_v2_t *profile)
{
	char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE], uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
	nvmlDeviceAttributes_t attributes;
	nvmlDevice_t other;
	nvmlMemory_t memory;
	unsigned int is_mig = 0;

	MUST(nvmlDeviceIsMigDeviceHandle(mig, &is_mig));
	CHECK(is_mig);
	MUST(nvmlDeviceGetName(mig, name, sizeof(name)));
	CHECK(strstr(name, profile->name));
	MUST(nvmlDeviceGetUUID(mig, uuid, sizeof(uuid)));
	CHECK(!strncmp(uuid, "MIG-", 4));
	MUST(nvmlDeviceGetHandleByUUID(uuid, &other));
	CHECK(other == mig);
	MUST(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig, &other));
	CHECK(other == gpu);
	MUST(nvmlDeviceGetMemoryInfo(mig, &memory));
	CHECK(memory.total >> 20 == profile->memorySizeMB);
	MUST(nvmlDeviceGetAttributes(mig, &attributes));
	CHECK(attributes.multiprocessorCount == profile->multiprocessorCount);
	CHECK(attributes.gpuInstanceSliceCount == profile->sliceCount);
	CHECK(attributes.computeInstanceSliceCount == profile->sliceCount);
	CHECK(attributes.memorySizeMB == profile->memorySizeMB);
	CHECK(attributes.sharedCopyEngineCount == profile->copyEngineCount);
	CHECK(attributes.sharedDecoderCount == profile->decoderCount);
	CHECK(is_listed(gpu, mig));
}

/* The MIG device says which instances it is made of, and each of them is found by that number. */
static void check_ids(nvmlDevice_t mig, nvmlGpuInstance_t gi, nvmlComputeInstance_t compute)
{
	nvmlComputeInstanceInfo_t info;
	nvmlComputeInstance_t same;
	nvmlGpuInstanceInfo_t owner;
	unsigned int id;

	MUST(nvmlGpuInstanceGetInfo(gi, &owner));
	MUST(nvmlComputeInstanceGetInfo(compute, &info));
	MUST(nvmlDeviceGetGpuInstanceId(mig, &id));
	CHECK(id == owner.id);
	MUST(nvmlDeviceGetComputeInstanceId(mig, &id));
	CHECK(id == info.id);
	MUST(nvmlGpuInstanceGetComputeInstanceById(gi, id, &same));
	CHECK(same == compute);
	CHECK(info.placement.start == 0);
}

/* All forms of a GPU instance profile's information agree, and a version that is none is refused. */
static void check_versions(nvmlDevice_t gpu, unsigned int profile, const nvmlGpuInstanceProfileInfo_v2_t *v2)
{
	nvmlGpuInstanceProfileInfo_v3_t v3 = { .version = nvmlGpuInstanceProfileInfo_v3 };
	nvmlGpuInstanceProfileInfo_v2_t by_id = { .version = nvmlGpuInstanceProfileInfo_v2 };
	nvmlGpuInstanceProfileInfo_v2_t wrong = { .version = 99 };
	nvmlGpuInstanceProfileInfo_t v1;

	MUST(nvmlDeviceGetGpuInstanceProfileInfo(gpu, profile, &v1));
	CHECK(v1.id == v2->id && v1.sliceCount == v2->sliceCount && v1.memorySizeMB == v2->memorySizeMB);
	MUST(nvmlDeviceGetGpuInstanceProfileInfoV(gpu, profile, (nvmlGpuInstanceProfileInfo_v2_t *)&v3));
	CHECK(v3.id == v2->id && v3.instanceCount == v2->instanceCount && v3.memorySizeMB == v2->memorySizeMB);
	CHECK(!strcmp(v3.name, v2->name));
	MUST(nvmlDeviceGetGpuInstanceProfileInfoByIdV(gpu, v2->id, &by_id));
	CHECK(!memcmp(&by_id, v2, sizeof(by_id)));
	CHECK(nvmlDeviceGetGpuInstanceProfileInfoV(gpu, profile, &wrong) == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
}

static void check_compute_versions(nvmlGpuInstance_t gi, unsigned int profile,
				   const nvmlComputeInstanceProfileInfo_v2_t *v2)
{
	nvmlComputeInstanceProfileInfo_v3_t v3 = { .version = nvmlComputeInstanceProfileInfo_v3 };
	nvmlComputeInstanceProfileInfo_t v1;

	MUST(nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, profile, 0, &v1));
	CHECK(v1.id == v2->id && v1.sliceCount == v2->sliceCount && v1.instanceCount == v2->instanceCount);
	MUST(nvmlGpuInstanceGetComputeInstanceProfileInfoV(gi, profile, 0, (nvmlComputeInstanceProfileInfo_v2_t *)&v3));
	CHECK(v3.id == v2->id && v3.sliceCount == v2->sliceCount && !strcmp(v3.name, v2->name));
}

/* With MIG mode off: the same profiles and places as with it, and no instance can be made. */
static unsigned int look_without_mig(nvmlDevice_t gpu, unsigned int profile)
{
	nvmlGpuInstanceProfileInfo_v2_t info = { .version = nvmlGpuInstanceProfileInfo_v2 };
	nvmlGpuInstancePlacement_t places[16];
	nvmlGpuInstance_t gi;
	unsigned int count = 0;

	if (nvmlDeviceGetGpuInstanceProfileInfoV(gpu, profile, &info) != NVML_SUCCESS)
		return 0;
	check_versions(gpu, profile, &info);
	MUST(nvmlDeviceGetGpuInstancePossiblePlacements(gpu, info.id, NULL, &count));
	CHECK(count && count <= 16);
	MUST(nvmlDeviceGetGpuInstancePossiblePlacements(gpu, info.id, places, &count));
	CHECK(nvmlDeviceCreateGpuInstanceWithPlacement(gpu, info.id, &places[0], &gi) != NVML_SUCCESS);
	return count;
}

/* The compute instance that takes the whole GPU instance. */
static nvmlComputeInstance_t make_compute(nvmlGpuInstance_t gi, unsigned int slices)
{
	nvmlComputeInstanceProfileInfo_v2_t info;
	nvmlComputeInstance_t compute;

	for (unsigned int profile = 0; profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; profile++) {
		info.version = nvmlComputeInstanceProfileInfo_v2;
		if (nvmlGpuInstanceGetComputeInstanceProfileInfoV(gi, profile, 0, &info) != NVML_SUCCESS ||
		    info.sliceCount != slices)
			continue;
		check_compute_versions(gi, profile, &info);
		MUST(nvmlGpuInstanceCreateComputeInstance(gi, info.id, &compute));
		return compute;
	}
	fprintf(stderr, "no compute instance of %u slices\n", slices);
	exit(1);
}

static void walk_placement(nvmlDevice_t gpu, const nvmlGpuInstanceProfileInfo_v2_t *profile,
			   const nvmlGpuInstancePlacement_t *at)
{
	nvmlComputeInstanceInfo_t compute_info;
	nvmlComputeInstance_t compute;
	nvmlGpuInstanceInfo_t info;
	nvmlGpuInstance_t gi, same;

	MUST(nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile->id, at, &gi));
	CHECK(nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile->id, at, &same) ==
	      NVML_ERROR_INSUFFICIENT_RESOURCES);
	MUST(nvmlGpuInstanceGetInfo(gi, &info));
	CHECK(info.placement.start == at->start && info.placement.size == at->size && info.device == gpu);
	MUST(nvmlDeviceGetGpuInstanceById(gpu, info.id, &same));
	CHECK(same == gi);
	compute = make_compute(gi, profile->sliceCount);
	MUST(nvmlComputeInstanceGetInfo(compute, &compute_info));
	CHECK(compute_info.gpuInstance == gi);
	check_mig_device(gpu, compute_info.device, profile);
	check_ids(compute_info.device, gi, compute);
	CHECK(nvmlGpuInstanceDestroy(gi) == NVML_ERROR_IN_USE);
	MUST(nvmlComputeInstanceDestroy(compute));
	MUST(nvmlGpuInstanceDestroy(gi));
}

static unsigned int walk_profile(nvmlDevice_t gpu, unsigned int profile, unsigned int expected)
{
	nvmlGpuInstanceProfileInfo_v2_t info = { .version = nvmlGpuInstanceProfileInfo_v2 };
	nvmlGpuInstancePlacement_t places[16];
	unsigned int count = 0, remaining;

	if (nvmlDeviceGetGpuInstanceProfileInfoV(gpu, profile, &info) == NVML_ERROR_NOT_SUPPORTED)
		return 0;
	check_versions(gpu, profile, &info);
	MUST(nvmlDeviceGetGpuInstancePossiblePlacements(gpu, info.id, NULL, &count));
	CHECK(count == expected && count <= 16);
	MUST(nvmlDeviceGetGpuInstancePossiblePlacements(gpu, info.id, places, &count));
	MUST(nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, info.id, &remaining));
	CHECK(remaining == info.instanceCount);
	for (unsigned int i = 0; i < count; i++)
		walk_placement(gpu, &info, &places[i]);
	printf("%s %u %u\n", info.name, info.id, count);
	return 1;
}

int main(void)
{
	nvmlReturn_t activation;
	unsigned int current, pending, profiles = 0, places[NVML_GPU_INSTANCE_PROFILE_COUNT];
	nvmlDevice_t gpu;

	MUST(nvmlInit());
	MUST(nvmlDeviceGetHandleByIndex(0, &gpu));
	for (unsigned int i = 0; i < NVML_GPU_INSTANCE_PROFILE_COUNT; i++)
		places[i] = look_without_mig(gpu, i);
	MUST(nvmlDeviceSetMigMode(gpu, NVML_DEVICE_MIG_ENABLE, &activation));
	MUST(activation);
	MUST(nvmlDeviceGetMigMode(gpu, &current, &pending));
	CHECK(current == NVML_DEVICE_MIG_ENABLE && pending == NVML_DEVICE_MIG_ENABLE);
	for (unsigned int i = 0; i < NVML_GPU_INSTANCE_PROFILE_COUNT; i++)
		profiles += walk_profile(gpu, i, places[i]);
	CHECK(profiles);
	MUST(nvmlShutdown());
	return 0;
}
