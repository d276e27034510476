/* SPDX-License-Identifier: Apache-2.0 */
/* Initialisation, errors, and the ways to hand a value to the caller. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "nvml_sim.h"

/* Calls hold `lock` shared, so that nvmlShutdown cannot take the machine from under them. */
static struct {
	pthread_rwlock_t lock;
	pthread_once_t once;
	unsigned int users; /* nvmlInit calls without their nvmlShutdown */
	struct sim *sim;
} library = { .lock = PTHREAD_RWLOCK_INITIALIZER, .once = PTHREAD_ONCE_INIT };

static void fork_child(void)
{
	/* other threads of the parent may have held it; none of them is here */
	pthread_rwlock_init(&library.lock, NULL);
}

static void register_fork_handler(void)
{
	pthread_atfork(NULL, NULL, fork_child);
}

struct sim *nvml_enter(void)
{
	pthread_rwlock_rdlock(&library.lock);
	if (library.users)
		return library.sim;
	pthread_rwlock_unlock(&library.lock);
	return NULL;
}

void nvml_leave(void)
{
	pthread_rwlock_unlock(&library.lock);
}

struct sim *nvml_state(void)
{
	return library.sim;
}

nvmlReturn_t nvml_refuse(nvmlReturn_t status)
{
	if (!nvml_enter())
		return NVML_ERROR_UNINITIALIZED;
	nvml_leave();
	return status;
}

nvmlReturn_t nvml_not_offered(void)
{
	return nvml_refuse(NVML_ERROR_NOT_SUPPORTED);
}

nvmlReturn_t nvml_from_errno(int err)
{
	switch (-err) {
	case 0:
		return NVML_SUCCESS;
	case ENOENT:
	case ENOTDIR:
		return NVML_ERROR_DRIVER_NOT_LOADED;
	case EPROTO: /* a state file that another build of the simulator wrote */
		return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	case EACCES:
	case EPERM:
		return NVML_ERROR_NO_PERMISSION;
	case ENOMEM:
		return NVML_ERROR_MEMORY;
	default:
		return NVML_ERROR_UNKNOWN;
	}
}

nvmlReturn_t nvml_check_root(void)
{
	uid_t uid = geteuid();

	return !uid || uid == sim_owner(library.sim) ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

/* Without a GPU for it the driver is not loaded. */
static nvmlReturn_t check_driver(struct sim *sim)
{
	const struct sim_machine *m = sim_read(sim);
	bool any;

	if (!m)
		return nvml_from_errno(-errno);
	any = m->n_gpus;
	sim_end(sim);
	return any ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}

static nvmlReturn_t open_machine(void)
{
	int err = sim_open(NULL, &library.sim);
	nvmlReturn_t status;

	if (err)
		return nvml_from_errno(err);
	status = check_driver(library.sim);
	if (status) {
		sim_close(library.sim);
		library.sim = NULL;
	}
	return status;
}

static nvmlReturn_t initialise(void)
{
	nvmlReturn_t status = library.users ? NVML_SUCCESS : open_machine();

	if (status)
		return status;
	library.users++;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	nvmlReturn_t status;

	if (flags & ~(unsigned int)(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH))
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_once(&library.once, register_fork_handler);
	pthread_rwlock_wrlock(&library.lock);
	status = initialise();
	pthread_rwlock_unlock(&library.lock);
	return status;
}

nvmlReturn_t nvmlInit(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit_v2(void)
{
	return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t status = NVML_ERROR_UNINITIALIZED;

	pthread_rwlock_wrlock(&library.lock);
	if (library.users) {
		status = NVML_SUCCESS;
		if (!--library.users) {
			sim_close(library.sim);
			library.sim = NULL;
		}
	}
	pthread_rwlock_unlock(&library.lock);
	return status;
}

nvmlReturn_t put_text(char *to, unsigned int length, const char *from)
{
	size_t need = strlen(from) + 1;

	if (!to)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (length < need)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(to, from, need);
	return NVML_SUCCESS;
}

nvmlReturn_t put_uint(unsigned int *to, unsigned int value)
{
	if (!to)
		return NVML_ERROR_INVALID_ARGUMENT;
	*to = value;
	return NVML_SUCCESS;
}
