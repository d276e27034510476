/* SPDX-License-Identifier: Apache-2.0 */
/* devinfo: what the runtime says of each device, one line each; ends with PASS and the number of devices. */
#define PROGRAM "devinfo"
#include "check.h"

static void print_uuid(const cudaUUID_t &uuid)
{
	for (int i = 0; i < 16; i++)
		std::printf("%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)uuid.bytes[i]);
}

static void describe(int device)
{
	cudaDeviceProp properties;
	size_t free_bytes, total_bytes;
	char bus_id[32];
	int by_id = -1, sm_count = 0;

	CHECK(cudaSetDevice(device));
	CHECK(cudaGetDeviceProperties(&properties, device));
	CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
	CHECK(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device));
	CHECK(cudaDeviceGetByPCIBusId(&by_id, bus_id));
	CHECK(cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device));
	if (free_bytes > total_bytes || total_bytes > properties.totalGlobalMem)
		FAIL("device %d: %zu bytes free of %zu, memory %zu", device, free_bytes, total_bytes,
		     properties.totalGlobalMem);
	if (sm_count != properties.multiProcessorCount || properties.warpSize != 32 || !properties.name[0])
		FAIL("device %d: properties and attributes disagree", device);
	std::printf("device=%d name=\"%s\" uuid=", device, properties.name);
	print_uuid(properties.uuid);
	std::printf(" pci=%s cc=%d.%d sms=%d memory_bytes=%zu free_bytes=%zu\n", bus_id, properties.major,
		    properties.minor, properties.multiProcessorCount, properties.totalGlobalMem, free_bytes);
}

int main()
{
	int count = 0, driver = 0, runtime = 0;

	CHECK(cudaGetDeviceCount(&count));
	CHECK(cudaDriverGetVersion(&driver));
	CHECK(cudaRuntimeGetVersion(&runtime));
	for (int i = 0; i < count; i++)
		describe(i);
	PASS("%d devices, driver %d, runtime %d", count, driver, runtime);
}
