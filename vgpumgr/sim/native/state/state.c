/* SPDX-License-Identifier: Apache-2.0 */
/* The state file: mapping, locks, the two slots and the switch between them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layout.h"

/* All handles of the process, for the child of a fork. */
static struct {
	pthread_mutex_t mutex;
	pthread_once_t once;
	struct sim *first;
} handles = { .mutex = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT };

static int init_mutex(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attr;
	int err = pthread_mutexattr_init(&attr);

	if (err)
		return -err;
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	err = pthread_mutex_init(mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	return -err;
}

/*
 * flock belongs to the open file description, which a child shares with its parent: the child needs its own, or it
 * would release the parent's lock, or hold it beyond the parent's death.
 */
static void reopen(struct sim *sim)
{
	char path[64];
	int old = sim->fd;

	if (old >= 0) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", old);
		sim->fd = open(path, O_RDWR | O_CLOEXEC);
		close(old);
	}
	sim->pid = getpid();
	sim->copy_generation = 0;
	sim->start_time = 0;
}

static void fork_prepare(void)
{
	pthread_mutex_lock(&handles.mutex);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&handles.mutex);
}

static void fork_child(void)
{
	for (struct sim *sim = handles.first; sim; sim = sim->next) {
		init_mutex(&sim->mutex);
		reopen(sim);
	}
	pthread_mutex_init(&handles.mutex, NULL);
}

static void register_fork_handlers(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static void handles_add(struct sim *sim)
{
	pthread_once(&handles.once, register_fork_handlers);
	pthread_mutex_lock(&handles.mutex);
	sim->next = handles.first;
	handles.first = sim;
	pthread_mutex_unlock(&handles.mutex);
}

static void handles_remove(struct sim *sim)
{
	pthread_mutex_lock(&handles.mutex);
	for (struct sim **p = &handles.first; *p; p = &(*p)->next) {
		if (*p == sim) {
			*p = sim->next;
			break;
		}
	}
	pthread_mutex_unlock(&handles.mutex);
}

static int state_path(const char *dir, const char *suffix, char path[PATH_MAX])
{
	int n = snprintf(path, PATH_MAX, "%s/" SIM_STATE_FILE "%s", dir, suffix);

	return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int check_header(const struct sim *sim)
{
	const struct sim_header *h = sim_header(sim);

	if (memcmp(h->magic, SIM_MAGIC, sizeof(h->magic)) || h->machine_size != sizeof(struct sim_machine) ||
	    h->live_size != sizeof(struct sim_live))
		return -EPROTO;
	return 0;
}

static int map_file(struct sim *sim)
{
	struct stat st;

	if (fstat(sim->fd, &st))
		return -errno;
	if (st.st_size != (off_t)SIM_FILE_SIZE)
		return -EPROTO;
	sim->owner = st.st_uid;
	sim->map = mmap(NULL, SIM_FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, sim->fd, 0);
	if (sim->map == MAP_FAILED) {
		sim->map = NULL;
		return -errno;
	}
	return check_header(sim);
}

static int open_file(struct sim *sim, const char *dir)
{
	char path[PATH_MAX];
	int err = state_path(dir, "", path);

	if (err)
		return err;
	sim->fd = open(path, O_RDWR | O_CLOEXEC);
	if (sim->fd < 0)
		return -errno;
	sim->pid = getpid();
	sim->copy = calloc(1, sizeof(*sim->copy));
	if (!sim->copy)
		return -ENOMEM;
	return map_file(sim);
}

static void release(struct sim *sim)
{
	if (sim->map)
		munmap(sim->map, SIM_FILE_SIZE);
	if (sim->fd >= 0)
		close(sim->fd);
	free(sim->copy);
	free(sim);
}

int sim_open(const char *dir, struct sim **out)
{
	struct sim *sim;
	int err;

	*out = NULL;
	if (!dir)
		dir = getenv("VGPUMGR_SIM");
	if (!dir || !*dir)
		return -ENOENT;
	sim = calloc(1, sizeof(*sim));
	if (!sim)
		return -ENOMEM;
	sim->fd = -1;
	sim_own_pid(); /* asked now: later a sandbox may allow no socket */
	err = init_mutex(&sim->mutex);
	if (!err)
		err = open_file(sim, dir);
	if (err) {
		release(sim);
		return err;
	}
	handles_add(sim);
	*out = sim;
	return 0;
}

void sim_close(struct sim *sim)
{
	if (!sim)
		return;
	handles_remove(sim);
	pthread_mutex_destroy(&sim->mutex);
	release(sim);
}

uid_t sim_owner(const struct sim *sim)
{
	return sim->owner;
}

/* True if the section could be entered; else errno says why. */
static bool enter(struct sim *sim, int operation)
{
	int err = pthread_mutex_lock(&sim->mutex);

	if (err) {
		errno = err;
		return false;
	}
	if (sim->pid != getpid()) /* a clone that ran no fork handlers */
		reopen(sim);
	while (flock(sim->fd, operation)) {
		if (errno == EINTR)
			continue;
		err = errno;
		pthread_mutex_unlock(&sim->mutex);
		errno = err;
		return false;
	}
	return true;
}

static void leave(struct sim *sim)
{
	flock(sim->fd, LOCK_UN);
	pthread_mutex_unlock(&sim->mutex);
}

uint64_t sim_generation(const struct sim *sim)
{
	return atomic_load(&sim_header(sim)->generation);
}

static uint32_t clients_in_use(const struct sim_machine *m)
{
	uint32_t n = SIM_MAX_CLIENTS;

	while (n && !m->clients[n - 1].used)
		n--;
	return n;
}

/* Only what is in use: a machine of 8 GPUs with few clients is a third of the structure. */
static void copy_machine(struct sim_machine *to, const struct sim_machine *from)
{
	uint32_t gpus = from->n_gpus <= SIM_MAX_GPUS ? from->n_gpus : SIM_MAX_GPUS;
	uint32_t clients = clients_in_use(from);

	memcpy(to, from, offsetof(struct sim_machine, gpus) + gpus * sizeof(from->gpus[0]));
	uint32_t types = from->n_vgpu_types <= SIM_MAX_VGPU_TYPES ? from->n_vgpu_types : SIM_MAX_VGPU_TYPES;
	uint32_t vgpus = from->n_vgpus <= SIM_MAX_VGPUS ? from->n_vgpus : SIM_MAX_VGPUS;
	size_t counts = offsetof(struct sim_machine, n_vgpu_types);

	memcpy((char *)to + counts, (const char *)from + counts, offsetof(struct sim_machine, vgpu_types) - counts);
	memcpy(to->vgpu_types, from->vgpu_types, types * sizeof(from->vgpu_types[0]));
	memcpy(to->vgpus, from->vgpus, vgpus * sizeof(from->vgpus[0]));
	memcpy(to->clients, from->clients, clients * sizeof(from->clients[0]));
	for (uint32_t i = clients; i < SIM_MAX_CLIENTS; i++)
		to->clients[i].used = false;
}

static struct sim_machine *slot(const struct sim *sim, uint64_t generation)
{
	return (struct sim_machine *)(sim->map + SIM_SLOT_OFFSET(generation % 2));
}

/* Makes the copy current. False (errno EPROTO) if the file is damaged. */
static bool refresh(struct sim *sim)
{
	uint64_t generation = atomic_load_explicit(&sim_header(sim)->generation, memory_order_acquire);

	if (sim->copy_generation == generation)
		return true;
	sim->copy_generation = 0;
	copy_machine(sim->copy, slot(sim, generation));
	if (sim_check(sim->copy)) {
		errno = EPROTO;
		return false;
	}
	sim->copy_generation = generation;
	return true;
}

static struct sim_machine *begin(struct sim *sim, int operation)
{
	if (!enter(sim, operation))
		return NULL;
	if (!refresh(sim)) {
		leave(sim);
		return NULL;
	}
	return sim->copy;
}

const struct sim_machine *sim_read(struct sim *sim)
{
	struct sim_machine *m = begin(sim, LOCK_SH);

	if (m) {
		sim_drop_dead(sim, m);
		sim_merge_busy(sim, m);
	}
	return m;
}

void sim_end(struct sim *sim)
{
	leave(sim);
}

struct sim_machine *sim_write_quick(struct sim *sim)
{
	return begin(sim, LOCK_EX);
}

struct sim_machine *sim_write(struct sim *sim)
{
	struct sim_machine *m = begin(sim, LOCK_EX);

	if (m) {
		sim_drop_dead(sim, m);
		sim_merge_busy(sim, m);
	}
	return m;
}

int sim_commit(struct sim *sim)
{
	uint64_t next = atomic_load(&sim_header(sim)->generation) + 1;

	if (sim_check(sim->copy)) {
		sim_abort(sim);
		return -EPROTO;
	}
	copy_machine(slot(sim, next), sim->copy);
	/* from here on the new state is the machine; a writer killed before leaves the old one */
	atomic_store_explicit(&sim_header(sim)->generation, next, memory_order_release);
	sim->copy_generation = next;
	leave(sim);
	return 0;
}

void sim_abort(struct sim *sim)
{
	sim->copy_generation = 0;
	leave(sim);
}

static int write_file(int fd, const struct sim_machine *m)
{
	struct sim_header *h;
	char *map;

	if (fchmod(fd, 0666) || ftruncate(fd, SIM_FILE_SIZE))
		return -errno;
	map = mmap(NULL, SIM_FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	h = (struct sim_header *)map;
	memcpy(h->magic, SIM_MAGIC, sizeof(h->magic));
	h->machine_size = sizeof(struct sim_machine);
	h->live_size = sizeof(struct sim_live);
	memcpy(map + SIM_SLOT_OFFSET(0), m, sizeof(*m));
	atomic_store(&h->generation, 2);
	munmap(map, SIM_FILE_SIZE);
	return 0;
}

int sim_create(const char *dir, const struct sim_machine *m)
{
	char path[PATH_MAX], temporary[PATH_MAX];
	int fd, err = sim_check(m);

	if (!err)
		err = state_path(dir, "", path);
	if (!err)
		err = state_path(dir, ".XXXXXX", temporary);
	if (err)
		return err;
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = write_file(fd, m);
	close(fd);
	/* link, not rename: of two creators one fails */
	if (!err && link(temporary, path))
		err = -errno;
	unlink(temporary);
	return err;
}
