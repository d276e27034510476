/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, and the objects by which kernels name them. */
#ifndef VGPUMGR_WORKER_ARRAY_H
#define VGPUMGR_WORKER_ARRAY_H

#include <cuda_rules.h>

#include "session.h"
#include "vg_worker.h"

#endif
