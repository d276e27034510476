/* SPDX-License-Identifier: Apache-2.0 */
/* By hand: waits for values in memory and writes of values, in the order of a stream. */
#include <codec/memory_wire.h>
#include <string.h>

#include "share.h"
#include "vg_worker.h"

CUresult wk_read_memory_operations(struct wk_call *c, const struct vg_bytes *given, CUstreamBatchMemOpParams *list,
				   unsigned int *count, bool *waits)
{
	uint64_t word[VG_MEMORY_WORDS];
	struct cuda_memory_operation m;
	CUresult r = CUDA_SUCCESS;

	*count = given->length / sizeof(word);
	if (given->length % sizeof(word))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < *count && r == CUDA_SUCCESS; i++) {
		memcpy(word, (const uint8_t *)given->data + i * sizeof(word), sizeof(word));
		vg_unpack_memory_operation(word, &list[i]);
		r = cuda_read_memory_operation(&list[i], false, &m);
		*waits = *waits || cuda_is_wait(&m);
		if (r == CUDA_SUCCESS)
			r = wk_check_range(c, m.address, m.bytes, 1, 1, 0);
	}
	return r == CUDA_SUCCESS ? cuda_check_memory_operations(list, *count, 0) : r;
}

CUresult wk_do_stream_memory(struct wk_call *c, const struct vg_stream_memory_request *in)
{
	struct wk_object *stream WK_HELD = NULL;
	CUstreamBatchMemOpParams list[CUDA_MEMORY_OPERATIONS];
	bool waits = false, alone = false, captures;
	unsigned int count;
	CUresult r = wk_hold(c, WK_STREAM, in->stream, &stream);

	if (r == CUDA_SUCCESS)
		r = wk_read_memory_operations(c, &in->operations, list, &count, &waits);
	if (r == CUDA_SUCCESS)
		r = wk_capture_asks(c, stream, &captures);
	if (r != CUDA_SUCCESS)
		return r;
	waits = waits && !captures; /* in a graph, something may follow it: it counts as work, as the rest of the launch */
	if (waits)
		alone = wk_share_wait_begin(c, stream);
	r = wk_driver.cuStreamBatchMemOp_v2(wk_raw(stream), count, list, 0);
	if (waits)
		wk_share_wait_end(c, stream, alone, r);
	return r;
}
