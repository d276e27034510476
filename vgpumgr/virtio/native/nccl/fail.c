/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator that does nothing any more. */
#include <stdarg.h>
#include <stdio.h>

#include "nccl.h"

void comm_fail(ncclComm_t comm, ncclResult_t result, const char *format, ...)
{
	va_list words;

	if (comm->failed)
		return;
	pthread_mutex_lock(&comm->lock);
	va_start(words, format);
	vsnprintf(comm->text, sizeof(comm->text), format, words);
	va_end(words);
	nccl_error(result, "rank %d: %s", comm->rank, comm->text);
	comm->failed = true;
	atomic_store(&comm->async, result); /* what sees this can have the sentence, too */
	if (comm->segment)
		atomic_store(&sg_state(comm->segment, comm->rank)->state, SG_FAILED);
	if (comm->stream)
		cu.cuStreamWriteValue32(comm->stream, comm->word, comm->number, 0);
	pthread_cond_broadcast(&comm->less);
	pthread_mutex_unlock(&comm->lock);
}
