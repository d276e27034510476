/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access to other devices' memory (CUDA driver API, "Peer Context Memory Access"). Every allocation has an address of its own
 * in the process, so access is only a question of permission. Instances of MIG have none (NVIDIA MIG user guide).
 */
#include "cuda_sim.h"

static bool can_access(const struct device *a, const struct device *b)
{
	return a != b && a->gi_id < 0 && b->gi_id < 0;
}

uint32_t peer_devices(const struct device *dev)
{
	uint32_t all = UINT32_C(1) << dev->ordinal;

	for (int i = 0; i < drv.n_devices; i++)
		if (can_access(&drv.devices[i], dev))
			all |= UINT32_C(1) << i;
	return all;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice peer)
{
	struct device *from = device_find(dev), *to = device_find(peer);

	DRIVER_CHECK();
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	if (!from || !to)
		return CUDA_ERROR_INVALID_DEVICE;
	*can = can_access(from, to);
	return CUDA_SUCCESS;
}

/* The host's atomic operations serve every device. There are no arrays. All pairs are of one rank, 0. */
CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice dev, CUdevice peer)
{
	struct device *from = device_find(dev), *to = device_find(peer);
	CUresult r = cuda_check_peer_attribute(attribute, dev, peer);

	DRIVER_CHECK();
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (!from || !to)
		return CUDA_ERROR_INVALID_DEVICE;
	if (r != CUDA_SUCCESS)
		return r;
	*value = can_access(from, to) && (attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED ||
					  attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
	return CUDA_SUCCESS;
}

/* Kernels read the list while it changes. 0: a free place. */
static uint64_t *find_peer(struct context *ctx, uint64_t id)
{
	for (int i = 0; i < MAX_PEERS; i++) {
		if (__atomic_load_n(&ctx->peers[i], __ATOMIC_RELAXED) == id)
			return &ctx->peers[i];
	}
	return NULL;
}

bool peer_permits(struct context *ctx, uint64_t id)
{
	return id == ctx->id || find_peer(ctx, id);
}

static CUresult add_peer(struct context *ctx, const struct context *peer)
{
	uint64_t *place;

	if (!can_access(ctx->dev, peer->dev))
		return ctx == peer ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (find_peer(ctx, peer->id))
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	place = find_peer(ctx, 0);
	if (!place)
		return CUDA_ERROR_TOO_MANY_PEERS;
	__atomic_store_n(place, peer->id, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	CUresult r = cuda_check_peer_access(peer, flags);

	CONTEXT_ENTER(ctx);
	if (r != CUDA_SUCCESS)
		return r;
	DRV_LOCKED();
	return handle_is(peer, HANDLE_CONTEXT) ? add_peer(ctx, (const struct context *)peer) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	uint64_t *place;

	CONTEXT_ENTER(ctx);
	DRV_LOCKED();
	if (!handle_is(peer, HANDLE_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	place = find_peer(ctx, ((const struct context *)peer)->id);
	if (!place)
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	__atomic_store_n(place, 0, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

static CUresult put_capabilities(unsigned int *to, const CUatomicOperation *operations, unsigned int count, unsigned int each)
{
	CUresult r = cuda_check_atomic_operations(to, operations, count);

	for (unsigned int i = 0; r == CUDA_SUCCESS && i < count; i++)
		to[i] = each;
	return r;
}

/* Nothing of the kind over the machine's bus, as CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED says. */
CUresult cuDeviceGetHostAtomicCapabilities(unsigned int *to, const CUatomicOperation *operations, unsigned int count, CUdevice dev)
{
	DRIVER_CHECK();
	if (!device_find(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	return put_capabilities(to, operations, count, 0);
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *to, const CUatomicOperation *operations, unsigned int count, CUdevice dev,
					  CUdevice peer)
{
	unsigned int all = CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED | CU_ATOMIC_CAPABILITY_REDUCTION |
			   CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64;
	int native;
	CUresult r = cuDeviceGetP2PAttribute(&native, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, dev, peer);

	return r == CUDA_SUCCESS ? put_capabilities(to, operations, count, native ? all : 0) : r;
}
