/* SPDX-License-Identifier: Apache-2.0 */
/* How many blocks an SM holds: the least of what threads, blocks, shared memory and registers allow. */
#include "cuda_sim.h"

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* Registers are given out per warp, in units of 256 (NVIDIA's occupancy calculator). */
static int by_registers(const struct function *f, int warps)
{
	int per_warp = (function_registers(f) * WARP_SIZE + 255) / 256 * 256;

	return REGISTERS_PER_SM / (per_warp * warps);
}

CUresult occupancy_blocks(const struct device *dev, const struct function *f, int threads, size_t dynamic_shared,
			  int *blocks)
{
	const struct arch_limits *a = arch_limits(dev);
	int warps = (threads + WARP_SIZE - 1) / WARP_SIZE;
	size_t shared = f->info.static_shared_bytes + dynamic_shared;

	if (threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	*blocks = 0;
	if (threads > (int)f->info.max_threads || shared > (size_t)a->shared_optin)
		return CUDA_SUCCESS;
	*blocks = least(a->blocks_per_sm, a->threads_per_sm / (warps * WARP_SIZE));
	*blocks = least(*blocks, a->shared_per_sm / (int)(shared + SHARED_RESERVED));
	*blocks = least(*blocks, by_registers(f, warps));
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction handle, int threads,
							      size_t dynamic_shared, unsigned int flags)
{
	struct function *f;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!blocks || flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	r = function_info(handle, &f);
	return r == CUDA_SUCCESS ? occupancy_blocks(ctx->dev, f, threads, dynamic_shared, blocks) : r;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle, int threads, size_t dynamic_shared)
{
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, threads, dynamic_shared, 0);
}

/* The largest block size among those with most resident threads. */
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction handle,
						   CUoccupancyB2DSize shared_of, size_t dynamic_shared, int limit,
						   unsigned int flags)
{
	struct function *f;
	int best = 0, blocks;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!grid || !block || limit < 0 || flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	r = function_info(handle, &f);
	if (r != CUDA_SUCCESS)
		return r;
	limit = limit ? least(limit, (int)f->info.max_threads) : (int)f->info.max_threads;
	*grid = *block = 0;
	for (int threads = limit; threads > 0; threads = (threads - 1) / WARP_SIZE * WARP_SIZE) {
		occupancy_blocks(ctx->dev, f, threads, shared_of ? shared_of(threads) : dynamic_shared, &blocks);
		if (blocks * threads > best) {
			best = blocks * threads;
			*block = threads;
			*grid = blocks * (int)ctx->dev->sm_count;
		}
	}
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction handle, CUoccupancyB2DSize shared_of,
					  size_t dynamic_shared, int limit)
{
	return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, handle, shared_of, dynamic_shared, limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *size, CUfunction handle, int blocks, int threads)
{
	struct function *f;
	long available;
	CUresult r;

	CONTEXT_ENTER(ctx);
	if (!size || blocks <= 0 || threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	r = function_info(handle, &f);
	if (r != CUDA_SUCCESS)
		return r;
	available = arch_limits(ctx->dev)->shared_per_sm / blocks - SHARED_RESERVED - (long)f->info.static_shared_bytes;
	*size = available > 0 ? (size_t)available : 0;
	return CUDA_SUCCESS;
}

/* ---- clusters */

/* What NVIDIA does not document is a guess: the multiprocessors of a cluster share a GPC, which has 16 of them. */
enum { GPC = 16 };

/* Blocks that may be resident at once, GPC by GPC, in whole clusters of `blocks`. */
static int count_clusters(const struct device *dev, int per_sm, int blocks)
{
	int sms = (int)dev->sm_count;

	return sms / GPC * (GPC * per_sm / blocks) + sms % GPC * per_sm / blocks;
}

static CUresult check_clusters(CUfunction handle, const CUlaunchConfig *config, const struct device *dev, struct function **f,
			       struct cuda_cluster_limits *limits, int *per_sm)
{
	CUresult r = config ? function_info(handle, f) : CUDA_ERROR_INVALID_VALUE;

	if (r != CUDA_SUCCESS)
		return r;
	function_clusters(*f, dev, limits);
	if (!limits->most)
		return CUDA_ERROR_NOT_SUPPORTED;
	return occupancy_blocks(dev, *f, (int)(config->blockDimX * config->blockDimY * config->blockDimZ),
				config->sharedMemBytes, per_sm);
}

CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction handle, const CUlaunchConfig *config)
{
	struct cuda_launch_options options; /* read for what is wrong in them: no size is asked for */
	struct cuda_cluster_limits limits;
	struct function *f;
	int per_sm;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = size ? cuda_read_launch_attributes(config, &options) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = check_clusters(handle, config, ctx->dev, &f, &limits, &per_sm);
	if (r != CUDA_SUCCESS)
		return r;
	for (*size = (int)limits.most; *size && !count_clusters(ctx->dev, per_sm, *size);)
		*size /= 2;
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction handle, const CUlaunchConfig *config)
{
	struct cuda_launch_options options;
	struct cuda_cluster_limits limits;
	struct function *f;
	int per_sm;
	CUresult r;

	CONTEXT_ENTER(ctx);
	r = clusters ? cuda_read_launch_attributes(config, &options) : CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = check_clusters(handle, config, ctx->dev, &f, &limits, &per_sm);
	if (r == CUDA_SUCCESS)
		r = cuda_check_clusters(config, &limits, &options);
	if (r != CUDA_SUCCESS)
		return r;
	if (!options.cluster[0])
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	*clusters = count_clusters(ctx->dev, per_sm, (int)(options.cluster[0] * options.cluster[1] * options.cluster[2]));
	return CUDA_SUCCESS;
}
